/* SPDX-License-Identifier: Apache-2.0 */
/* accelerate/utils/fsdp_utils.py, fsdp2_load_full_state_dict(): with cpu_ram_efficient_loading a Trainer's model is
 * sharded on the meta device, and gets its parts from rank 0. */
#include "parallel/fsdp2.h"

#include "base/units.h"

enum { CHUNKS_MOST = 4096 };

typedef struct full_state {
    fsdp2 *f;
    tide_tensor *full_param;            /* the whole one that was broadcast last */
    tide_tensor **sharded_sd;           /* what distribute_tensor() made of each */
    fsdp_param **params;                /* NULL: a name that tie_weights() takes away again */
    fsdp_param *shared;                 /* of the input embeddings */
    uint32_t *first_child, *next_child; /* by instance; 0: none */
    uint32_t count;
} full_state;

static tide_tensor *full_rows_of(tide_machine *m, const fsdp_param *param, int64_t rows, tide_factor factor) {
    const tide_shape *whole = param->unsharded_param->shape;
    tide_shape shape = whole->dims ? *whole : tide_shape1((tide_dim){1, 0});
    shape.dim[0].size = rows;
    m->state.factor = factor;
    tide_tensor *made = tide_empty(m, &shape, param->orig_dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return made;
}

/* Rank 0 drops a whole parameter before it copies the next to the device, the others after they made room for it.
 * Shard._shard_tensor() pads chunks that end early. */
static void distribute_full(full_state *s, fsdp_param *param, uint32_t module) {
    tide_machine *m = fsdp2_machine(s->f);
    const tide_shape *shape = param->unsharded_param->shape;
    int64_t ranks = s->f->mesh.ranks, rows = shape->dims ? shape->dim[0].size : 1, each = TIDE_CEIL_DIV(rows, ranks),
            whole = each ? rows / each : 0, padded = ranks > whole && ranks - whole < CHUNKS_MOST ? ranks - whole : 0;
    m->module = module;
    m->op = "fsdp2_load_full_state_dict";
    if (s->f->w->rank == 0) tide_release_at(m, &s->full_param);
    tide_tensor *full = full_rows_of(m, param, rows, TIDE_FACTOR_TEMPORARY), *chunks[CHUNKS_MOST];
    tide_release_at(m, &s->full_param);
    s->full_param = full;
    for (int64_t i = 0; i < padded; i++) chunks[i] = full_rows_of(m, param, each, TIDE_FACTOR_TEMPORARY);
    s->params[s->count] = module == param->module ? param : NULL;
    s->sharded_sd[s->count++] = full_rows_of(m, param, each, TIDE_FACTOR_PARAMETER);
    for (int64_t i = 0; i < padded; i++) tide_release(m, chunks[i]);
}

/* Children in the order of their modules: an adapter's layer is made after the one whose place it takes. */
static void list_full_children(full_state *s) {
    const tide_model *model = s->f->w->model;
    tide_arena *arena = model->m->arena;
    uint32_t count = model->instance_count, *place = TIDE_NEW(arena, uint32_t, count + 1),
             *last_child = TIDE_NEW(arena, uint32_t, count + 1);
    s->first_child = TIDE_NEW(arena, uint32_t, count + 1);
    s->next_child = TIDE_NEW(arena, uint32_t, count + 1);
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t at = i; at && !place[at]; at = model->instances[at].parent) place[at] = i;
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t at = i; at != model->root && place[at] == i; at = model->instances[at].parent) {
            uint32_t parent = model->instances[at].parent;
            *(s->first_child[parent] ? &s->next_child[last_child[parent]] : &s->first_child[parent]) = at;
            last_child[parent] = at;
        }
}

/* state_dict(): of a module, then of its children; a head that shares its weight has an entry too. */
static void distribute_full_below(full_state *s, uint32_t module) {
    const tide_model *model = s->f->w->model;
    uint32_t input = s->f->embeddings[0], output = s->f->embeddings[1];
    for (uint32_t k = 0; k < model->parameter_count; k++) {
        const tide_parameter_row *row = &model->parameters[k];
        fsdp_param *param = row->module == module ? fsdp2_param_of(s->f, row->tensor) : NULL;
        if (param && module == input && !s->shared) s->shared = param;
        if (param) distribute_full(s, param, module);
    }
    bool is_tied = module == output && input != output && s->shared && tide_shares_parameter(model, input, output);
    if (is_tied) distribute_full(s, s->shared, module);
    for (uint32_t i = s->first_child[module]; i; i = s->next_child[i]) distribute_full_below(s, i);
}

/* load_state_dict(assign=True): the parts become the parameters, and FSDPParam.reset_sharded_param() copies those that
 * end early to padded ones, after the module's children. */
static void assign_full(full_state *s) {
    tide_model *model = s->f->w->model;
    tide_machine *m = model->m;
    const uint32_t *order = tide_children_first(model);
    m->op = tide_fsdp2_name;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->params[i]) tide_set_data(m, s->params[i]->sharded_param, s->sharded_sd[i]);
    for (uint32_t n = 0; n < model->parameter_count; n++) {
        fsdp_param *param = fsdp2_param_of(s->f, model->parameters[order[n]].tensor);
        if (!param) continue;
        param->is_on_meta = false;
        if (param->sharded_numel == param->padded_sharded_numel) continue;
        m->module = param->module;
        tide_tensor *made =
            tide_flat_on(m, 0, tide_fsdp2_name, param->padded_sharded_numel, param->orig_dtype, TIDE_FACTOR_PARAMETER);
        tide_set_data(m, param->sharded_param, made);
        tide_release(m, made);
    }
}

/* Buffers of transformers' models that a state_dict() has: they are no DTensors. */
static bool check_full_buffers(const tide_model *model) {
    static const char persistent[] = "e_score_correction_bias|running_mean|running_var|num_batches_tracked|"
                                     "final_logits_bias|layer_scalar|relative_position_index";
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_class *of = model->instances[i].of;
        for (uint32_t k = 0; k < of->member_count; k++) {
            const tide_value *member = &model->instances[i].slots[of->parameter_count + k];
            tide_text name = of->members[k].name;
            if (member->kind != TIDE_VALUE_TENSOR || member->tensor->is_parameter ||
                !tide_text_matches_one(name, persistent))
                continue;
            tide_fail_setting(model->m, TIDE_ERR_CONFLICT, "parallel.meta_init",
                              "accelerate's cpu_ram_efficient_loading fails for this model, which has a buffer "
                              "%s.%.*s: \"'Tensor' object has no attribute 'device_mesh'\"; use false",
                              model->instances[i].path, (int)name.length, name.at);
            return false;
        }
    }
    return true;
}

void tide_fsdp2_load_full_state_dict(fsdp2 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    if (!check_full_buffers(model)) return;
    uint32_t most = model->parameter_count + 2;
    full_state s = {.f = f,
                    .sharded_sd = TIDE_NEW(m->arena, tide_tensor *, most),
                    .params = TIDE_NEW(m->arena, fsdp_param *, most)};
    list_full_children(&s);
    distribute_full_below(&s, model->root);
    assign_full(&s);
    tide_tensor *untied = NULL, *last = s.count ? s.sharded_sd[s.count - 1] : NULL;
    for (uint32_t i = 0; i < s.count; i++)
        if (!s.params[i]) untied = tide_alias(m, s.sharded_sd[i]);
    for (uint32_t i = 0; i + 1 < s.count; i++) tide_release(m, s.sharded_sd[i]);
    if (f->w->rank == 0)
        tide_release_at(m, &s.full_param); /* a variable before `sharded_tensor`, full_tensor after it */
    if (last) tide_release(m, last);
    tide_release_at(m, &s.full_param);
    for (uint32_t i = 1; i < model->instance_count; i++) tide_model_place_buffers(model, i);
    tide_release_at(m, &untied);
    m->module = 0;
}
