/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of autograd, as PyTorch has them: on what is saved, and on tensors. */
#include <stdio.h>
#include <string.h>

#include "tensor/ops/ops.h"

static unsigned passed, failed;

static void expect(bool holds, const char *what) {
    passed += holds;
    failed += !holds;
    if (!holds) printf("FAIL %s\n", what);
}

typedef struct bench {
    tide_arena arena;
    tide_diagnostics diags;
    tide_machine m;
} bench;

static void bench_open(bench *b) {
    tide_arena_init(&b->arena, tide_default_allocator(), NULL);
    tide_diagnostics_init(&b->diags, &b->arena);
    tide_machine_init(&b->m, &b->arena, &b->diags);
    b->m.state.grad_enabled = true;
}

static tide_tensor *matrix(tide_machine *m) {
    tide_shape shape = {.dims = 2, .dim = {{.size = 1024}, {.size = 1024}}};
    return tide_empty(m, &shape, TIDE_FP32);
}

static tide_tensor *leaf(tide_machine *m) {
    tide_tensor *t = matrix(m);
    t->requires_grad = t->is_leaf = true;
    return t;
}

/* Bytes that live, of matrices. */
static uint64_t live_matrices(const tide_machine *m) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < m->timeline.allocation_count; i++)
        count += *tide_timeline_died(&m->timeline, i) == TIDE_NEVER;
    return count;
}

/* ---- saved tensors: torch/autograd/graph.py, save_on_cpu ---- */

typedef struct save_on_cpu {
    tide_saved_tensors_hooks hooks;
    uint32_t packed, unpacked, dropped;
} save_on_cpu;

static save_on_cpu *owner_of(tide_saved_tensors_hooks *hooks) {
    return (save_on_cpu *)(void *)hooks;
}

static void pack_to_cpu(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t) {
    slot->packed_by = hooks;
    slot->packed = owner_of(hooks)->packed++;
    slot->tensor = tide_empty_host(m, t->shape, (tide_dtype)t->dtype);
}

static tide_tensor *unpack_from_cpu(tide_machine *m, tide_saved *slot) {
    owner_of(slot->packed_by)->unpacked++;
    return tide_empty(m, slot->tensor->shape, (tide_dtype)slot->tensor->dtype);
}

static void drop_on_cpu(tide_machine *m, tide_saved *slot) {
    (void)m;
    owner_of(slot->packed_by)->dropped++;
}

static void saved_tensors_are_packed(bool are_hooked) {
    static const tide_hook_pair pair = {pack_to_cpu, unpack_from_cpu, drop_on_cpu};
    save_on_cpu cpu = {.hooks = {&pair}};
    bench b;
    bench_open(&b);
    tide_machine *m = &b.m;
    if (are_hooked) m->state.saved_tensors_hooks = &cpu.hooks;
    tide_tensor *a = leaf(m), *w = leaf(m);
    tide_tensor *middle = tide_mul(m, a, w), *out = tide_mul(m, middle, w);
    m->state.saved_tensors_hooks = NULL;
    tide_release(m, middle);
    expect(live_matrices(m) == (are_hooked ? 3 : 4), "what is saved lives where the hooks have put it");
    tide_tensor *grad = matrix(m);
    tide_run_backward_from(m, &out, &grad, 1);
    uint32_t hooked = are_hooked ? 4 : 0;
    expect(cpu.packed == hooked && cpu.unpacked == hooked && cpu.dropped == hooked,
           "each saved tensor is packed, unpacked and dropped once");
    expect(a->grad && w->grad && !m->has_failed, "both leaves have a gradient");
    tide_release(m, grad);
    tide_release(m, out);
    expect(live_matrices(m) == 4, "the leaves and their gradients live");
    tide_arena_free(&b.arena);
}

static void unused_saved_tensors_are_dropped(void) {
    static const tide_hook_pair pair = {pack_to_cpu, unpack_from_cpu, drop_on_cpu};
    save_on_cpu cpu = {.hooks = {&pair}};
    bench b;
    bench_open(&b);
    b.m.state.saved_tensors_hooks = &cpu.hooks;
    tide_tensor *a = leaf(&b.m), *out = tide_mul(&b.m, a, a);
    tide_release(&b.m, out);
    expect(cpu.packed == 2 && cpu.unpacked == 0 && cpu.dropped == 2, "a graph that goes drops what hooks have packed");
    tide_arena_free(&b.arena);
}

/* ---- tensors: Tensor.register_hook ---- */

typedef struct noting {
    tide_tensor_hook hook;
    char name;
    char *runs, *drops; /* names, in order */
} noting;

static void append(char *names, char name) {
    size_t length = strlen(names);
    names[length] = name;
    names[length + 1] = 0;
}

static void note_run(tide_machine *m, tide_tensor_hook *hook) {
    (void)m;
    append(((noting *)(void *)hook)->runs, ((noting *)(void *)hook)->name);
}

static void note_drop(tide_machine *m, tide_tensor_hook *hook) {
    (void)m;
    append(((noting *)(void *)hook)->drops, ((noting *)(void *)hook)->name);
}

static void hooks_run_before_backward(bool runs_backward) {
    char runs[8] = "", drops[8] = "";
    noting first = {{note_run, note_drop, NULL}, 'a', runs, drops},
           second = {{note_run, note_drop, NULL}, 'b', runs, drops};
    bench b;
    bench_open(&b);
    tide_tensor *a = leaf(&b.m), *out = tide_mul(&b.m, a, a);
    tide_register_hook(out->node, &first.hook);
    tide_register_hook(out->node, &second.hook);
    if (runs_backward) {
        tide_tensor *grad = matrix(&b.m);
        tide_run_backward_from(&b.m, &out, &grad, 1);
        tide_release(&b.m, grad);
    }
    tide_release(&b.m, out);
    expect(strcmp(runs, runs_backward ? "ab" : "") == 0, "hooks run in the order in which they were registered");
    expect(strcmp(drops, "ab") == 0, "and go once, whether or not they have run");
    tide_arena_free(&b.arena);
}

static void long_lists_are_recycled(void) {
    bench b;
    uint64_t after_first = 0;
    bench_open(&b);
    for (int round = 0; round < 50; round++) {
        tide_list *list = tide_list_new(&b.m);
        for (int i = 0; i < 20000; i++) tide_list_push(&b.m, list, (tide_value){.kind = TIDE_VALUE_INT, .integer = i});
        expect(list->items[19999].integer == 19999, "a list keeps what was appended");
        tide_list_release(&b.m, list);
        if (round == 0) after_first = b.arena.bytes;
    }
    expect(b.arena.bytes == after_first, "what a long list took is taken by the next one");
    tide_arena_free(&b.arena);
}

int main(void) {
    saved_tensors_are_packed(false);
    saved_tensors_are_packed(true);
    unused_saved_tensors_are_dropped();
    hooks_run_before_backward(true);
    hooks_run_before_backward(false);
    long_lists_are_recycled();
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0;
}
