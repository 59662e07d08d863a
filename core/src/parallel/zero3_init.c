/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed.zero.Init, deepspeed/runtime/zero/partition_parameters.py: _post_init_method() partitions the parameters of
 * a module as soon as that is made, before the engine exists. */
#include "base/units.h"
#include "parallel/zero3.h"

static void zero_init_param(tide_model *model, tide_tensor *leaf) {
    tide_machine *m = model->m;
    zero3_init *e = m->wrapper;
    bool on_host = e->job->parallel_offload_param == TIDE_parallel_offload_param_cpu, is_tied = false;
    int64_t ranks = tide_job_reduction_ranks(e->job), near = e->job->parallel_zero_hpz_partition_size;
    int64_t cut = TIDE_CEIL_DIV(tide_count(leaf), ranks);
    for (uint32_t i = 0; i < e->count; i++) is_tied = is_tied || e->params[i].tensor == leaf;
    tide_tensor *second =
        near > 1 ? tide_zero3_new_partition(m, cut * ranks / near, (tide_dtype)leaf->dtype, on_host) : NULL;
    tide_tensor *part = tide_zero3_new_partition(m, cut, (tide_dtype)leaf->dtype, on_host);
    tide_zero3_empty_data(m, leaf);
    if (is_tied) { /* made, partitioned, and released when tie_weights() replaces it */
        for (int i = 0; i < 2; i++) {
            TIDE_ROOM(m->arena, e->tied, e->tied_count, e->tied_capacity);
            e->tied[e->tied_count++] = i ? part : second;
        }
        return;
    }
    TIDE_ROOM(m->arena, e->params, e->count, e->capacity);
    e->params[e->count++] = (zero_param){.tensor = leaf, .ds_tensor = part, .ds_secondary_tensor = second};
}

void tide_zero3_load(tide_model *model, const tide_job *job) {
    if (!tide_job_has_zero_init(job)) return;
    zero3_init *e = TIDE_NEW(model->m->arena, zero3_init, 1);
    e->job = job;
    model->m->wrapper = e;
    model->parameter_made = zero_init_param;
}

/* ---- initialize_weights_zero3(), transformers/integrations/deepspeed.py ---- */

enum { GATHERED_LIMIT = 64 };

typedef struct initialized {
    int64_t numel[GATHERED_LIMIT];
    uint32_t count;
} initialized;

/* A module's own parameters. */
static void add_own(const tide_model *model, const zero3_init *e, uint32_t instance, initialized *g) {
    const tide_instance *of = &model->instances[instance];
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        for (uint32_t k = 0; v.kind == TIDE_VALUE_TENSOR && k < e->count && g->count < GATHERED_LIMIT; k++)
            if (e->params[k].tensor == v.tensor)
                g->numel[g->count++] = tide_count(e->params[k].ds_tensor) * tide_job_reduction_ranks(e->job);
    }
}

/* GatheredParameters(params, modifier_rank=0): the handles of its broadcasts refer to them until it exits, a name to
 * the last one. */
static void gather(tide_machine *m, const initialized *g, tide_dtype dtype) {
    tide_tensor *whole[GATHERED_LIMIT];
    for (uint32_t i = 0; i < g->count; i++)
        whole[i] = tide_flat_of(m, "GatheredParameters", g->numel[i], dtype, TIDE_FACTOR_GATHERED);
    for (uint32_t i = g->count; i-- > 1;) tide_release(m, whole[i - 1]);
    if (g->count) tide_release(m, whole[g->count - 1]);
}

static void initialize_module(tide_model *model, const zero3_init *e, tide_value v, int depth);

/* _apply_zero3: children first, then what a module's _init_weights() may access: its own parameters and its children's.
 */
static void apply_zero3(tide_model *model, const zero3_init *e, const tide_value *children, uint32_t count,
                        initialized *own, int depth) {
    for (uint32_t i = 0; i < count; i++) initialize_module(model, e, children[i], depth + 1);
    for (uint32_t i = 0; i < count; i++)
        if (children[i].kind == TIDE_VALUE_MODULE) add_own(model, e, children[i].module, own);
    gather(model->m, own, model->state.dtype);
}

static void initialize_module(tide_model *model, const zero3_init *e, tide_value v, int depth) {
    initialized own = {.count = 0};
    if (depth > CALL_DEPTH) return;
    if (v.kind == TIDE_VALUE_LIST) apply_zero3(model, e, v.list->items, v.list->count, &own, depth);
    if (v.kind != TIDE_VALUE_MODULE) return;
    const tide_instance *of = &model->instances[v.module];
    add_own(model, e, v.module, &own);
    apply_zero3(model, e, of->slots + of->of->parameter_count, of->of->member_count, &own, depth);
}

void tide_zero3_loaded(tide_model *model, const tide_job *job) {
    tide_machine *m = model->m;
    zero3_init *e = m->wrapper;
    if (!model->parameter_made) return;
    bool is_of_transformers = tide_job_has_trainer(job); /* which refers to a HfDeepSpeedConfig */
    tide_value root = {.kind = TIDE_VALUE_MODULE, .module = model->root};
    if (is_of_transformers) initialize_module(model, e, root, 0);
    for (uint32_t i = 0; i < e->tied_count; i++) tide_release(m, e->tied[i]);
    e->tied_count = 0;
}
