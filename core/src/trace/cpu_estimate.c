/* SPDX-License-Identifier: Apache-2.0 */
/* A profile recorded without a GPU, converted to the allocations that the run would make on one (the approach of xMem,
 * arXiv 2510.21048): operators on the CPU allocate what those on the GPU do, apart from differences that are corrected
 * here if possible, and reported if not. */
#include "trace/cpu_estimate.h"

#include <stdlib.h>

#include "base/units.h"

/* Addresses for allocations that the CPU did not make. */
static const uint64_t MADE_UP = UINT64_C(1) << 62;
/* Step counters of optimizers stay on the host. */
enum { COUNTER_BYTES = 8, LT_WORKSPACE = 1 << 20 };
/* No other site has this size and stack. */
enum { EXPECTED_WORKSPACE = 32 << 20 };

typedef enum role {
    ROLE_NONE,
    ROLE_PRODUCT, /* cuBLAS */
    ROLE_LINEAR,  /* cuBLASLt */
    ROLE_BACKWARD,
    ROLE_OPTIMIZER,
    ROLE_DATA,
    ROLE_ROOT,
    ROLE_QUOTIENT,
    ROLE_ATTENTION,
    ROLE_DROPOUT,
    ROLE_CONVOLUTION,
    ROLE_COUNT
} role;

static const struct {
    const char *name;
    bool is_prefix;
    role is;
} roles[] = {
    {"aten::mm", false, ROLE_PRODUCT},
    {"aten::bmm", false, ROLE_PRODUCT},
    {"aten::baddbmm", false, ROLE_PRODUCT},
    {"aten::addmm", false, ROLE_LINEAR},
    {"autograd::engine::evaluate_function:", true, ROLE_BACKWARD},
    {"Optimizer.step#", true, ROLE_OPTIMIZER},
    {"enumerate(DataLoader)#", true, ROLE_DATA},
    {"aten::sqrt", false, ROLE_ROOT},
    {"aten::div", false, ROLE_QUOTIENT},
    {"aten::_scaled_dot_product_", true, ROLE_ATTENTION},
    {"aten::bernoulli_", true, ROLE_DROPOUT},
    {"aten::convolution", true, ROLE_CONVOLUTION},
};

/* The origin of what a slot holds. */
typedef struct born {
    uint64_t bytes;
    bool in_backward, before_backward;
} born;

typedef struct estimate {
    trace_walk walk;
    tide_tape *tape;
    unsigned char *roles; /* by name */
    bool seen[ROLE_COUNT];
    uint32_t workspace_stack;
    born *born; /* by slot */
    uint32_t born_capacity;
    uint64_t made_up;           /* blocks */
    uint64_t roots, first_root; /* those of the optimizer, numbers of added blocks */
    struct moved_tensor {
        uint64_t address;
    } * moved; /* their addresses on the CPU */
    uint32_t moved_count, moved_capacity;
    uint64_t found; /* bytes of parameters whose allocation is not in the trace */
    bool has_matched;
} estimate;

static role role_of(const estimate *e, uint32_t name) {
    return (role)e->roles[name];
}

static bool is_inside(const estimate *e, const trace_thread *thread, role wanted) {
    for (uint32_t i = 0; i < thread->count; i++)
        if (role_of(e, thread->spans[i].name) == wanted) return true;
    return false;
}

static role innermost(const estimate *e, const trace_thread *thread) {
    return thread->count ? role_of(e, thread->spans[thread->count - 1].name) : ROLE_NONE;
}

static void fill_roles(estimate *e) {
    const tide_names *names = &e->walk.r->names;
    e->roles = TIDE_NEW(e->walk.r->arena, unsigned char, names->count + 1);
    for (uint32_t i = 0; i < names->count; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(roles); k++) {
            bool is_it = roles[k].is_prefix ? tide_text_starts(names->names[i], tide_text_of(roles[k].name))
                                            : tide_text_is(names->names[i], roles[k].name);
            if (is_it) e->roles[i] = (unsigned char)roles[k].is;
        }
}

/* ---- parameters that are older than the trace ---- */

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* When the optimizer starts, each gradient must have a parameter of its size. One that is missing is older than the
 * trace. */
static void match_parameters(estimate *e) {
    tide_arena *arena = e->walk.r->arena;
    const tide_tape *t = e->tape;
    uint64_t *gradients = TIDE_NEW(arena, uint64_t, t->live_count + 1),
             *held = TIDE_NEW(arena, uint64_t, t->live_count + 1);
    uint32_t gradient_count = 0, held_count = 0, h = 0;
    if (e->has_matched || !e->seen[ROLE_BACKWARD]) return;
    e->has_matched = true;
    for (uint32_t i = 0; i < t->live_capacity; i++) {
        if (!t->live[i].state || t->live[i].what >= e->born_capacity) continue;
        const born *b = &e->born[t->live[i].what];
        if (b->in_backward)
            gradients[gradient_count++] = b->bytes;
        else if (b->before_backward)
            held[held_count++] = b->bytes;
    }
    qsort(gradients, gradient_count, sizeof *gradients, by_size);
    qsort(held, held_count, sizeof *held, by_size);
    for (uint32_t g = 0; g < gradient_count; g++) {
        while (h < held_count && held[h] < gradients[g]) h++;
        if (h < held_count && held[h] == gradients[g]) {
            h++;
            continue;
        }
        tide_tape_older_block(e->tape, MADE_UP + ++e->made_up * 512, gradients[g], 0, 0);
        e->found += gradients[g];
    }
}

/* ---- rows ---- */

static void note_birth(estimate *e, uint64_t bytes, bool in_backward) {
    uint32_t slot = e->tape->spare_count ? e->tape->spare[e->tape->spare_count - 1] : e->tape->slot_count;
    while (slot >= e->born_capacity) {
        uint32_t grown = e->born_capacity ? e->born_capacity * 2 : 1024;
        e->born =
            tide_arena_grow(e->walk.r->arena, e->born, e->born_capacity * sizeof *e->born, grown * sizeof *e->born);
        e->born_capacity = grown;
    }
    e->born[slot] = (born){bytes, in_backward, !in_backward && !e->seen[ROLE_BACKWARD]};
}

/* The workspace of a product is allocated after its output, and freed (Note [GEMM workspace] in tensor/ops/linear.c).
 */
static void end_span(trace_walk *walk, const trace_span *span) {
    estimate *e = (estimate *)walk;
    role is = role_of(e, span->name);
    if (is == ROLE_PRODUCT || is == ROLE_LINEAR) {
        uint64_t bytes = is == ROLE_LINEAR ? LT_WORKSPACE : EXPECTED_WORKSPACE;
        tide_tape_alloc(e->tape, MADE_UP, bytes, 0, e->workspace_stack);
        tide_tape_free(e->tape, MADE_UP, 0, 0);
    }
    if (is != ROLE_OPTIMIZER) return;
    for (; e->first_root < e->roots; e->first_root++) tide_tape_free(e->tape, MADE_UP * 2 + e->first_root * 512, 0, 0);
    e->moved_count = 0;
}

/* Square roots of second moments: a foreach optimizer computes those of all parameters before it uses the first, and
 * divides in place. */
static bool take_root(estimate *e, const trace_row *row, uint32_t stack) {
    TIDE_ROOM(e->walk.r->arena, e->moved, e->moved_count, e->moved_capacity);
    e->moved[e->moved_count++].address = row->extent;
    note_birth(e, (uint64_t)row->bytes, false);
    return tide_tape_alloc(e->tape, MADE_UP * 2 + e->roots++ * 512, (uint64_t)row->bytes, 0, stack);
}

static bool is_moved(estimate *e, uint64_t address) {
    for (uint32_t i = e->moved_count; i-- > 0;) {
        if (e->moved[i].address != address) continue;
        e->moved[i] = e->moved[--e->moved_count];
        return true;
    }
    return false;
}

static void take_memory(estimate *e, const trace_row *row, uint32_t stack) {
    const trace_thread *thread = &e->walk.threads[row->thread];
    bool is_stepping = is_inside(e, thread, ROLE_OPTIMIZER);
    if (row->bytes < 0) {
        if (!is_moved(e, row->extent) && tide_tape_is_live(e->tape, row->extent))
            tide_tape_free(e->tape, row->extent, 0, 0);
        return;
    }
    if (is_inside(e, thread, ROLE_DATA)) return;
    if (is_stepping && (row->bytes <= COUNTER_BYTES || innermost(e, thread) == ROLE_QUOTIENT)) return;
    tide_tape_time_is(e->tape, row->time / 1000);
    if (is_stepping && innermost(e, thread) == ROLE_ROOT) {
        take_root(e, row, stack);
        return;
    }
    note_birth(e, (uint64_t)row->bytes, is_inside(e, thread, ROLE_BACKWARD));
    tide_tape_alloc(e->tape, row->extent, (uint64_t)row->bytes, 0, stack);
}

static void take_row(estimate *e, const trace_row *row) {
    role is = row->kind == TRACE_SPAN ? role_of(e, (uint32_t)row->bytes) : ROLE_NONE;
    uint32_t stack = tide_trace_step(&e->walk, row);
    if (is == ROLE_OPTIMIZER) match_parameters(e);
    e->seen[is] = true;
    if (row->kind == TRACE_MEMORY) take_memory(e, row, stack);
}

/* ---- what it is worth ---- */

static void tell(estimate *e) {
    static const struct {
        role when;
        const char *text;
    } notes[] = {
        {ROLE_NONE, "sizes are those of the dtypes that ran on the CPU; tensors that the program keeps on the host are "
                    "counted as on the GPU"},
        {ROLE_NONE, "other GPU kernels may take scratch memory that the CPU's do not: reductions, sorting, gradients "
                    "of embeddings"},
        {ROLE_PRODUCT, "put right: a cuBLAS workspace around every matrix product, as PyTorch 2.15 takes it"},
        {ROLE_ROOT,
         "put right: the optimizer runs as foreach, which holds one temporary for every parameter until the step ends"},
        {ROLE_DATA, "put right: what the data loader makes stays on the host"},
        {ROLE_ATTENTION, "attention ran with the CPU's kernel: on the GPU its backward pass takes an accumulator in "
                         "fp32, or eager attention other temporaries"},
        {ROLE_DROPOUT, "dropout keeps a mask in the dtype of its input on the CPU, of one byte an element on the GPU"},
        {ROLE_CONVOLUTION, "convolutions: the workspaces of cuDNN are not counted"},
    };
    tide_recording *r = e->walk.r;
    for (size_t i = 0; i < TIDE_COUNT_OF(notes); i++)
        if (notes[i].when == ROLE_NONE || e->seen[notes[i].when]) r->notes[r->note_count++] = notes[i].text;
    if (e->found)
        r->notes[r->note_count++] = tide_format(r->arena,
                                                "put right: %llu bytes of parameters are older than the trace, and "
                                                "known by their gradients; optimizer state as old is not known",
                                                (unsigned long long)e->found);
    if (!e->seen[ROLE_OPTIMIZER])
        r->notes[r->note_count++] =
            "no Optimizer.step is in the trace: optimizer states and their temporaries are not counted";
}

void tide_cpu_estimate(tide_recording *r, const tide_profiler_trace *trace) {
    estimate *e = TIDE_NEW(r->arena, estimate, 1);
    e->walk.r = r;
    e->walk.on_end = end_span;
    e->tape = tide_recording_tape(r, 0);
    e->workspace_stack = tide_recording_stack(r, 0, tide_name(&r->names, TIDE_TEXT("cuBLAS workspace")));
    fill_roles(e);
    for (uint32_t i = 0; i < trace->row_count; i++) take_row(e, &trace->rows[i]);
    match_parameters(e);
    for (uint32_t i = 0; i < e->tape->site_count; i++)
        if (e->tape->sites[i].stack == e->workspace_stack && e->tape->sites[i].bytes == EXPECTED_WORKSPACE)
            e->tape->workspace_site = i + 1;
    tell(e);
    r->is_cpu = true;
}
