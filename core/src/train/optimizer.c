/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps, driven by the rows of optimizers.def. */
#include "train/optimizer.h"

#include "base/units.h"

#include <string.h>

typedef struct row {
    const char *name;
    int states;
    int step; /* 1: fused, with a counter on the device; 2: fused */
    char made;
    bool decays;
    const char *lists, *reads;
} row;

static const row optimizer_rows[] = {
#define TIDE_OPTIMIZER(name, title, states, step, made, decays, lists, reads)                                          \
    {#name, states, step, made, decays, lists, reads},
#include "job/optimizers.def"
#undef TIDE_OPTIMIZER
};

typedef struct parameter_state {
    tide_tensor *tensor;
    uint32_t module, group, kind;
    bool is_redistributed, is_replicated;
    uint8_t mesh_dims;
    bool is_of_experts;
    tide_list *state; /* tensors; empty before the first step */
    bool has_state;
} parameter_state;

struct tide_optimizer {
    tide_model *model;
    const row *row, *rest;       /* rest: for the second group, if it differs */
    parameter_state *parameters; /* those of the first group, then of the second */
    uint32_t count;
    bool has_trainer;           /* created by transformers' Trainer */
    bool has_moved_steps;       /* to the device, by accelerate */
    bool decays;                /* the first group has weight decay; a second has none */
    tide_list *shared;          /* tensors that belong to the optimizer as a whole */
    tide_function *init, *body; /* from library/optimizers.json; NULL: none */
};

/* isinstance() of a module. */
static bool is_a(tide_model *model, uint32_t instance, const char *name) {
    enum { DEPTH_LIMIT = 8 };
    const tide_class *of = model->instances[instance].of;
    for (int depth = 0; of && depth < DEPTH_LIMIT; depth++) {
        if (tide_text_is(of->name, name)) return true;
        of = of->base.length ? tide_class_find(model->descriptions, of->description, of->base) : NULL;
    }
    return false;
}

/* In a loop without a trainer: no weight decay for norms and biases. */
static bool is_norm_or_bias(const char *name) {
    return tide_text_ends(tide_text_of(name), TIDE_TEXT("bias")) || strstr(name, "norm");
}

/* transformers/trainer.py, get_decay_parameter_names: parameters that are not among them. */
static bool is_without_decay(tide_model *model, const tide_parameter_row *p) {
    char *lower = tide_text_copy(model->m->arena, tide_text_of(p->name));
    for (char *c = lower; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    if (is_a(model, p->module, "LayerNorm") || strstr(lower, "bias") || strstr(lower, "layernorm") ||
        strstr(lower, "rmsnorm"))
        return true;
    tide_text rest = tide_text_of(lower), part;
    while (tide_piece_next(&rest, '.', &part))
        if (tide_text_is(part, "norm") || (part.length > 4 && memcmp(part.at + part.length - 5, "_norm", 5) == 0))
            return true;
    return false;
}

static tide_tensor *state_like(tide_model *model, const parameter_state *p, const tide_tensor *of) {
    tide_machine *m = model->m;
    m->module = p->module;
    m->state.factor = TIDE_FACTOR_OPTIMIZER;
    tide_tensor *state = tide_empty_like(m, of, p->tensor->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return state;
}

static const row *row_of(const tide_optimizer *optimizer, const parameter_state *p) {
    return p->group && optimizer->rest ? optimizer->rest : optimizer->row;
}

/* Lives as long as the optimizer. */
static void make_step(tide_optimizer *optimizer, const parameter_state *p) {
    tide_machine *m = optimizer->model->m;
    m->module = p->module;
    m->state.factor = TIDE_FACTOR_OPTIMIZER;
    tide_scalar(m, TIDE_FP32);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* are_clones: of the gradient (momentum_buffer without weight decay) */
static void make_states(tide_optimizer *optimizer, parameter_state *p, bool are_clones) {
    tide_machine *m = optimizer->model->m;
    const tide_tensor *of = are_clones && p->is_redistributed ? p->tensor->grad : p->tensor;
    const row *kind = row_of(optimizer, p);
    if (p->has_state) return;
    p->has_state = true;
    if (kind->step == 1) make_step(optimizer, p);
    for (int i = 0; i < kind->states; i++)
        tide_list_push(m, p->state, tide_of_tensor(state_like(optimizer->model, p, of)));
}

/* of: the parameter, or its gradient, which may be a DTensor of another placement. */
static tide_tensor *temporary_like(tide_optimizer *optimizer, const parameter_state *p, const tide_tensor *of) {
    optimizer->model->m->module = p->module;
    return tide_empty_like(optimizer->model->m, of, p->tensor->dtype);
}

/* Temporaries in a list that a Python name refers to. */
typedef struct held {
    tide_tensor **made;
    uint32_t count;
} held;

enum { MOST_LISTS = 3 };

static void let_go(tide_machine *m, held *h) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "optimizer.step");
    m->module = m->statement = 0;
    while (h->count) tide_release(m, h->made[--h->count]);
    *h = (held){0};
    tide_freeing_ends(m, before);
}

/* What comes before the '|', or after it for a group with weight decay; if that is empty, the same for both. */
static const char *form_of(const char *forms, bool decays, const char **end) {
    const char *bar = strchr(forms, '|');
    *end = bar && !decays ? bar : forms + strlen(forms);
    return bar && decays ? bar + 1 : forms;
}

/* Whether a gradient is whole where its parameter is cut. */
static bool is_gathered(const parameter_state *p) {
    return p->is_redistributed && tide_count(p->tensor->grad) > tide_count(p->tensor);
}

/* Every operation that reads gradients, some of them twice, redistributes those with another placement; *last: the
 * result of the last one is kept alive. are_made: of those that follow the lists. */
static void redistribute_gradients(tide_optimizer *optimizer, parameter_state **with, uint32_t count, bool decays,
                                   bool are_made, held *last) {
    tide_machine *m = optimizer->model->m;
    const char *end, *read = form_of(optimizer->row->reads, decays, &end),
                     *later = memchr(read, ';', (size_t)(end - read));
    uint32_t some = 0;
    for (uint32_t i = 0; i < count; i++) some += with[i]->is_redistributed;
    if (some && read == end)
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "%s over DTensors is not described; use adamw, adamw_fused or sgd",
                  optimizer->row->name);
    if (are_made)
        read = later ? later + 1 : end;
    else if (later)
        end = later;
    for (; some && read < end && !m->has_failed; read++) {
        held now = {TIDE_NEW(m->arena, tide_tensor *, (size_t)some * 9), 0};
        for (int turn = 0; *read != 'g' && turn < *read - '0'; turn++)
            for (uint32_t i = 0; i < count; i++)
                if (with[i]->is_redistributed)
                    now.made[now.count++] = temporary_like(optimizer, with[i], with[i]->tensor);
        for (uint32_t i = 0; *read == 'g' && i < count; i++)
            if (is_gathered(with[i])) now.made[now.count++] = temporary_like(optimizer, with[i], with[i]->tensor->grad);
        if (last && read + 1 == end)
            *last = now;
        else
            let_go(m, &now);
    }
}

/* ---- parameter by parameter: functions of the description language ---- */

typedef struct turns {
    tide_optimizer *optimizer;
    parameter_state **with;
    bool decays;
} turns;

enum { BODY_PARAMETERS = 5 };

/* The arguments (param, grad, state, shared, decays) of one iteration. */
static void next_turn(void *user, uint32_t turn, tide_value *arguments) {
    const turns *t = user;
    parameter_state *p = t->with[turn];
    tide_model *model = t->optimizer->model;
    bool is_embedding = t->optimizer->has_trainer && is_a(model, p->module, "Embedding");
    bool adds = t->decays && p->is_redistributed && strchr(t->optimizer->row->reads, '|');
    if (turn) redistribute_gradients(t->optimizer, &t->with[turn - 1], 1, t->decays, true, NULL);
    if (!adds) redistribute_gradients(t->optimizer, &p, 1, t->decays, false, NULL);
    model->m->module = p->module;
    *tide_model_setting(model, "state_is_fp32") = tide_of_bool(is_embedding);
    *tide_model_setting(model, "grad_is_placed_otherwise") = tide_of_bool(p->is_redistributed && !adds);
    arguments[0] = tide_of_tensor(tide_retain(p->tensor));
    arguments[1] = tide_of_tensor(adds ? temporary_like(t->optimizer, p, p->tensor) : tide_retain(p->tensor->grad));
    arguments[2] = tide_value_retain((tide_value){.kind = TIDE_VALUE_LIST, .list = p->state});
    arguments[3] = tide_value_retain((tide_value){.kind = TIDE_VALUE_LIST, .list = t->optimizer->shared});
    arguments[4] = tide_of_bool(t->decays);
}

static void claim_states(tide_machine *m, const tide_list *list) {
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].kind == TIDE_VALUE_TENSOR) tide_set_factor(m, list->items[i].tensor, TIDE_FACTOR_OPTIMIZER);
}

static void play_turns(tide_optimizer *optimizer, tide_function *function, parameter_state **with, uint32_t count,
                       bool decays) {
    tide_machine *m = optimizer->model->m;
    if (!function || !count) return;
    if (function->parameter_count != BODY_PARAMETERS) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "the function of an optimizer takes (param, grad, state, shared, decays)");
        return;
    }
    turns t = {optimizer, with, decays};
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_model_loop(optimizer->model, function, count, next_turn, &t);
    redistribute_gradients(optimizer, &with[count - 1], 1, decays, true, NULL);
    m->state.grad_enabled = grad_enabled;
    for (uint32_t i = 0; i < count; i++) claim_states(m, with[i]->state);
    claim_states(m, optimizer->shared);
}

tide_optimizer *tide_optimizer_new(tide_model *model, const tide_job *job) {
    tide_machine *m = model->m;
    tide_optimizer *optimizer = TIDE_NEW(m->arena, tide_optimizer, 1);
    optimizer->model = model;
    optimizer->has_trainer = tide_job_has_trainer(job);
    optimizer->row = &optimizer_rows[job->optimizer];
    const char *name = optimizer->row->name;
    bool is_of_matrices = optimizer->row->made == 'm';
    if (is_of_matrices) optimizer->rest = &optimizer_rows[TIDE_optimizer_adamw];
    optimizer->parameters = TIDE_NEW(m->arena, parameter_state, model->parameter_count + 1);
    bool has_two = (optimizer->has_trainer || job->param_groups == TIDE_param_groups_trainer) && !is_of_matrices;
    optimizer->decays = optimizer->has_trainer ? job->trainer_weight_decay > 0
                                               : has_two || job->parallel_kind == TIDE_parallel_kind_megatron;
    for (int group = 0; group < 2; group++) {
        for (uint32_t i = 0; i < model->parameter_count; i++) {
            const tide_parameter_row *p = &model->parameters[i];
            bool is_apart = optimizer->has_trainer ? is_without_decay(model, p) : is_norm_or_bias(p->name),
                 is_second = is_of_matrices ? p->tensor->shape->dims != 2 : has_two && is_apart;
            if (!p->tensor->requires_grad || is_second != (group == 1)) continue;
            optimizer->parameters[optimizer->count++] = (parameter_state){
                .tensor = p->tensor, .module = p->module, .group = (uint32_t)group, .state = tide_list_new(m)};
        }
    }
    bool is_apart = optimizer->count && optimizer->parameters[optimizer->count - 1].group == 1;
    if (!optimizer->has_trainer && has_two && !is_apart)
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/param_groups",
                    "has no effect: no norm or bias trains", NULL);
    optimizer->shared = tide_list_new(m);
    optimizer->body = tide_function_find(model->descriptions, NULL, tide_text_of(name));
    optimizer->init =
        tide_function_find(model->descriptions, NULL, tide_text_of(tide_format(m->arena, "%s_init", name)));
    return optimizer;
}

void tide_optimizer_construct(tide_optimizer *optimizer) {
    optimizer->model->m->op = "optimizer";
    for (uint32_t i = 0; i < optimizer->count && optimizer->row->made == 'c'; i++)
        make_states(optimizer, &optimizer->parameters[i], false);
}

void tide_optimizer_prepared(tide_optimizer *optimizer) {
    if (optimizer->row->made != 'c' || optimizer->row->step) return;
    optimizer->has_moved_steps = true;
    for (uint32_t i = 0; i < optimizer->count; i++) make_step(optimizer, &optimizer->parameters[i]);
}

bool tide_optimizer_load_state(tide_optimizer *optimizer) {
    for (uint32_t i = 0; i < optimizer->count; i++)
        if (row_of(optimizer, &optimizer->parameters[i])->states < 1) return false;
    for (uint32_t i = 0; i < optimizer->count; i++) make_states(optimizer, &optimizer->parameters[i], false);
    return true;
}

int tide_optimizer_states(const tide_optimizer *optimizer) {
    return optimizer->row->states;
}

bool tide_optimizer_has_step(const tide_optimizer *optimizer) {
    return optimizer->row->step == 1 || optimizer->has_moved_steps;
}

bool tide_optimizer_is_fused(const tide_optimizer *optimizer) {
    return optimizer->row->step != 0;
}

uint32_t tide_optimizer_members(const tide_optimizer *optimizer, tide_optimized *members) {
    for (uint32_t i = 0; members && i < optimizer->count; i++) {
        const parameter_state *p = &optimizer->parameters[i];
        members[i] = (tide_optimized){p->tensor,           p->module,        p->group,     p->kind,
                                      p->is_redistributed, p->is_replicated, p->mesh_dims, p->is_of_experts};
    }
    return optimizer->count;
}

void tide_optimizer_replace(tide_optimizer *optimizer, const tide_optimized *members, uint32_t count) {
    optimizer->parameters = TIDE_NEW(optimizer->model->m->arena, parameter_state, count + 1);
    optimizer->count = count;
    for (uint32_t i = 0; i < count; i++)
        optimizer->parameters[i] = (parameter_state){.tensor = members[i].tensor,
                                                     .module = members[i].module,
                                                     .group = members[i].group,
                                                     .kind = members[i].kind,
                                                     .is_redistributed = members[i].is_redistributed,
                                                     .is_replicated = members[i].is_replicated,
                                                     .mesh_dims = members[i].mesh_dims,
                                                     .is_of_experts = members[i].is_of_experts,
                                                     .state = tide_list_new(optimizer->model->m)};
}

static held make_list(tide_optimizer *optimizer, parameter_state **with, uint32_t count, bool is_placed) {
    held now = {TIDE_NEW(optimizer->model->m->arena, tide_tensor *, (size_t)count + 1), count};
    for (uint32_t i = 0; i < count; i++)
        now.made[i] = temporary_like(optimizer, with[i], is_placed ? with[i]->tensor : with[i]->tensor->grad);
    return now;
}

static void bind(tide_machine *m, held *name, const held *list) {
    let_go(m, name);
    *name = *list;
}

/* The foreach implementation for one dtype, by the letters of optimizers.def. names: those that refer to lists from one
 * iteration to the next; read: what lives until the first list is made. Returns what ends with the iteration. */
static held play_lists(tide_optimizer *optimizer, parameter_state **with, uint32_t count, const char *lists,
                       const char *end, bool makes_states, held *read, held *names) {
    tide_machine *m = optimizer->model->m;
    held of_turn = {0}, bound_last = {0};
    for (const char *list = lists; list < end; list++) {
        bool is_placed = *list >= 'a';
        char letter = (char)(*list | 0x20);
        held now = make_list(optimizer, with, count, is_placed);
        let_go(m, read);
        if (makes_states && list == lists)
            for (uint32_t i = 0; i < count; i++) make_states(optimizer, with[i], false);
        if (letter == 'd') let_go(m, &now);
        if (letter == 't') of_turn = now;
        if (letter == 'l') bound_last = now;
        if (letter == 'n') bind(m, names++, &now);
    }
    if (bound_last.count) bind(m, names, &bound_last);
    return of_turn;
}

static void let_all_go(tide_machine *m, held *names) {
    for (int i = 0; i < MOST_LISTS; i++) let_go(m, &names[i]);
}

/* _group_tensors_by_device_and_dtype: an unordered map, in which the newest dtype comes first. */
static void add_dtype(tide_dtype *dtypes, uint32_t *count, tide_dtype dtype) {
    for (uint32_t i = 0; i < *count; i++)
        if (dtypes[i] == dtype) return;
    dtypes[(*count)++] = dtype;
}

/* names: of lists that may outlive the step of this group. */
static void step_range(tide_optimizer *optimizer, uint32_t from, uint32_t to, held *names) {
    tide_machine *m = optimizer->model->m;
    if (from == to) return;
    const row *kind = row_of(optimizer, &optimizer->parameters[from]);
    bool is_rest = kind != optimizer->row;
    parameter_state **with = TIDE_NEW(m->arena, parameter_state *, to - from + 1); /* those with a gradient */
    uint32_t count = 0;
    m->op = "optimizer.step";
    for (uint32_t i = from; i < to; i++)
        if (optimizer->parameters[i].tensor->grad) with[count++] = &optimizer->parameters[i];
    bool decays = optimizer->parameters[from].group == 0 && (optimizer->decays || kind->decays);
    const char *end, *lists = form_of(kind->lists, decays, &end);
    bool adds = decays && strchr(kind->lists, '|'); /* weight decay is added to gradients out of place */
    bool is_late = kind->made == 'l' && lists < end, is_first = count && !with[0]->has_state;
    if (!is_late)
        for (uint32_t i = 0; i < count; i++) make_states(optimizer, with[i], kind->made == 'l');
    if (is_first && !is_rest) play_turns(optimizer, optimizer->init, with, count, decays);
    parameter_state **alike = TIDE_NEW(m->arena, parameter_state *, count + 1);
    tide_dtype dtypes[TIDE_DTYPE_COUNT];
    uint32_t dtype_count = 0;
    for (uint32_t i = 0; i < count; i++) add_dtype(dtypes, &dtype_count, (tide_dtype)with[i]->tensor->dtype);
    while (dtype_count--) {
        uint32_t alike_count = 0;
        for (uint32_t i = 0; i < count; i++)
            if (with[i]->tensor->dtype == dtypes[dtype_count]) alike[alike_count++] = with[i];
        held sum = {0};
        if (!optimizer->body) redistribute_gradients(optimizer, alike, alike_count, decays, false, adds ? &sum : NULL);
        held of_turn = play_lists(optimizer, alike, alike_count, lists, end, is_late, &sum, names);
        let_go(m, &sum);
        if (!optimizer->body) redistribute_gradients(optimizer, alike, alike_count, decays, true, NULL);
        let_go(m, &of_turn);
    }
    if (kind->made != 'g') let_all_go(m, names);
    if (!is_rest) play_turns(optimizer, optimizer->body, with, count, decays);
    m->module = 0;
}

void tide_optimizer_step(tide_optimizer *optimizer) {
    const parameter_state *p = optimizer->parameters;
    held names[MOST_LISTS] = {{0}};
    for (uint32_t from = 0, to = 0; from < optimizer->count; from = to) {
        while (to < optimizer->count &&
               (optimizer->row->made == 'b' || (p[to].group == p[from].group && p[to].kind == p[from].kind)))
            to++;
        step_range(optimizer, from, to, names);
    }
    let_all_go(optimizer->model->m, names);
}

void tide_optimizer_step_one(tide_optimizer *optimizer, uint32_t member) {
    held names[MOST_LISTS] = {{0}};
    step_range(optimizer, member, member + 1, names);
    let_all_go(optimizer->model->m, names);
}

void tide_zero_grad(tide_optimizer *optimizer, bool set_to_none) {
    tide_machine *m = optimizer->model->m;
    if (!set_to_none) return;
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "zero_grad");
    m->module = m->statement = 0;
    for (uint32_t i = 0; i < optimizer->count; i++) tide_release_at(m, &optimizer->parameters[i].tensor->grad);
    tide_freeing_ends(m, before);
}

/* ---- clip_grad_norm_: torch/nn/utils/clip_grad.py over _foreach_norm (cuda/ForeachReduceOp.cu) ---- */

enum { FOREACH_CHUNK = 65536 };

/* torch.linalg.vector_norm(torch.stack(norms)). Norms of DTensors are partial on each rank of the mesh
 * (distributed/tensor/_ops/_math_ops.py, _NormPartial): those that are replicated along a dimension are first made
 * partial or reduced to match, then stacked; the result is reduced over one dimension of the mesh after the other. */
static tide_tensor *norm_of_norms(const tide_optimizer *optimizer, bool of_experts, int64_t count, tide_dtype dtype) {
    tide_machine *m = optimizer->model->m;
    int64_t bytes = count * tide_dtype_bytes(dtype);
    unsigned dims = 0;
    uint32_t parts = 0;
    tide_tensor **partitioned = TIDE_NEW(m->arena, tide_tensor *, optimizer->count);
    for (uint32_t i = 0; i < optimizer->count; i++) {
        const parameter_state *p = &optimizer->parameters[i];
        if (p->is_of_experts != of_experts) continue;
        if (p->mesh_dims > dims) dims = p->mesh_dims;
        if (p->tensor->grad && (p->is_replicated || is_gathered(p))) partitioned[parts++] = tide_scalar(m, dtype);
    }
    tide_tensor *stacked = tide_scratch(m, bytes), *reduced = NULL;
    while (parts) tide_release(m, partitioned[--parts]);
    for (unsigned i = 0; i < dims; i++) {
        tide_tensor *powers = tide_scratch(m, bytes), *sums = tide_scratch(m, bytes), *roots = tide_scratch(m, bytes);
        tide_release(m, powers);
        tide_release(m, sums);
        tide_release(m, reduced);
        reduced = roots;
    }
    tide_tensor *total = tide_scalar(m, dtype);
    tide_release(m, reduced);
    tide_release(m, stacked);
    return total;
}

/* A gradient that is partial on each rank is reduced first. */
static tide_tensor *reduced_gradient(const tide_optimizer *optimizer, const parameter_state *p) {
    bool is_partial = p->is_redistributed && !is_gathered(p);
    return is_partial ? tide_empty_like(optimizer->model->m, p->tensor->grad, p->tensor->grad->dtype) : NULL;
}

/* _foreach_norm of the gradients of a type, in their order; returns how many. Each has a result, and those without
 * elements, which the kernel passes over, another one in its place. */
static int64_t norms_of(const tide_optimizer *optimizer, bool of_experts, tide_dtype dtype, tide_tensor **norms) {
    tide_machine *m = optimizer->model->m;
    tide_tensor **results = TIDE_NEW(m->arena, tide_tensor *, optimizer->count + 1);
    tide_tensor **reduced = TIDE_NEW(m->arena, tide_tensor *, optimizer->count + 1);
    bool *is_empty = TIDE_NEW(m->arena, bool, optimizer->count + 1);
    int64_t count = 0, full = 0, chunks = 0, used = 0;
    for (uint32_t i = 0; i < optimizer->count; i++) {
        const tide_tensor *g = optimizer->parameters[i].tensor->grad;
        if (!g || g->dtype != dtype || optimizer->parameters[i].is_of_experts != of_experts) continue;
        reduced[count] = reduced_gradient(optimizer, &optimizer->parameters[i]);
        is_empty[count] = tide_count(g) == 0;
        full += !is_empty[count++];
        chunks += TIDE_CEIL_DIV(tide_count(g), FOREACH_CHUNK);
    }
    tide_tensor *offsets = tide_scratch(m, 8 * (full + 1)), *partial = tide_scratch(m, 4 * chunks);
    for (int64_t i = 0; i < count; i++) results[i] = tide_scalar(m, dtype);
    for (int64_t i = 0; i < count; i++) norms[i] = is_empty[i] ? tide_scalar(m, dtype) : results[used++];
    for (int64_t i = used; i < count; i++) tide_release(m, results[i]);
    tide_release(m, partial);
    tide_release(m, offsets);
    for (int64_t i = 0; i < count; i++) tide_release(m, reduced[i]);
    return count;
}

/* get_total_norm() of the gradients of experts, or of the others, and their dtype; NULL: there are none. */
static tide_tensor *total_norm(tide_optimizer *optimizer, bool of_experts, tide_dtype *dtype) {
    tide_machine *m = optimizer->model->m;
    int64_t count = 0;
    tide_dtype dtypes[TIDE_DTYPE_COUNT];
    uint32_t dtype_count = 0;
    for (uint32_t i = 0; i < optimizer->count; i++) {
        const tide_tensor *g = optimizer->parameters[i].tensor->grad;
        if (g && optimizer->parameters[i].is_of_experts == of_experts)
            add_dtype(dtypes, &dtype_count, (tide_dtype)g->dtype);
    }
    if (dtype_count == 0) return NULL;
    *dtype = dtype_count == 1 ? dtypes[0] : TIDE_FP32; /* stack() widens them */
    tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, optimizer->count);
    while (dtype_count--) count += norms_of(optimizer, of_experts, dtypes[dtype_count], norms + count);
    tide_tensor *total = norm_of_norms(optimizer, of_experts, count, *dtype);
    for (int64_t i = count; i-- > 0;) tide_release(m, norms[i]);
    return total;
}

/* clip_grads_with_norm_() */
static void clip_with(tide_machine *m, tide_dtype dtype) {
    tide_tensor *sum = tide_scalar(m, dtype), *inverse = tide_scalar(m, dtype), *coefficient = tide_scalar(m, dtype);
    tide_release(m, inverse);
    tide_release(m, sum);
    tide_tensor *clamped = tide_scalar(m, dtype);
    tide_release(m, coefficient);
    tide_release(m, clamped);
}

/* torchtitan, distributed/utils.py: _clip_grad_norm_with_ep; rest: everything except experts. */
static tide_tensor *clip_apart(tide_machine *m, tide_tensor *of_experts, tide_tensor *rest, tide_dtype dtype) {
    tide_tensor *squares[2] = {tide_scalar(m, dtype), tide_scalar(m, dtype)}, *total = tide_scalar(m, dtype);
    for (int i = 0; i < 2; i++) tide_release(m, squares[i]);
    for (int i = 0; i < 2; i++) clip_with(m, dtype);
    tide_release(m, of_experts);
    tide_release(m, rest);
    return total;
}

tide_tensor *tide_clip_grad_norm(tide_optimizer *optimizer) {
    tide_machine *m = optimizer->model->m;
    tide_dtype dtype = TIDE_FP32;
    m->op = "clip_grad_norm_";
    tide_tensor *of_experts = total_norm(optimizer, true, &dtype), *total = total_norm(optimizer, false, &dtype);
    if (of_experts) return clip_apart(m, of_experts, total, dtype);
    if (total) clip_with(m, dtype);
    return total;
}
