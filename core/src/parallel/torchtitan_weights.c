/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan 0.2.2: ModelProtocol.init_weights() of its models, models/NAME/model/model.py. */
#include "base/rounding.h"
#include "base/units.h"
#include "lang/lang.h"
#include "parallel/cuts.h"
#include "parallel/fsdp2.h"
#include "parallel/torchtitan_experts.h"
#include "parallel/torchtitan_trainer.h"
#include "tensor/ops/ops.h"

tide_tensor *tide_titan_tensor(tide_model *model, const char *method, const char *const *names,
                               const tide_value *values, uint32_t count) {
    tide_value made = tide_model_method(model, tide_text_of(method), names, values, count);
    if (made.kind == TIDE_VALUE_TENSOR) return made.tensor;
    tide_value_release(model->m, made);
    return NULL;
}

/* The buffers of a module are computed anew: the root's are tables of rotary embeddings, of which each stage, a copy of
 * the model, has its own; others are zeros. */
static void remake_buffers(tide_model *model, uint32_t instance, uint32_t chunk) {
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    bool is_root = instance == model->root;
    m->state.factor = TIDE_FACTOR_BUFFER;
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind != TIDE_VALUE_TENSOR || v.tensor->is_parameter) continue;
        bool is_copy = is_root && chunk > 0;
        tide_tensor *own = is_copy ? tide_empty_like(m, v.tensor, v.tensor->dtype) : tide_retain(v.tensor),
                    *made = is_root ? tide_titan_tensor(model, "precompute_freqs_cis", NULL, NULL, 0)
                                    : tide_empty_like(m, v.tensor, v.tensor->dtype);
        if (made) tide_set_data(m, own, made);
        tide_release(m, made);
        if (!is_copy) tide_release(m, own);
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* How a mask of this rank's part becomes one of the whole weight: DTensor.any() gathers it, over one dimension of the
 * mesh after the other, and parts along an inner dimension of the weight are copied once more. */
typedef struct gathering {
    tide_value sizes; /* a list of elements; negative: parts along an inner dimension */
    int64_t count;
} gathering;

static void gather_parts(tide_machine *m, gathering *g, int64_t ranks, bool is_inner) {
    if (ranks == 1) return;
    g->count *= ranks;
    tide_list_push(m, g->sizes.list, tide_of_int(is_inner ? -g->count : g->count));
}

/* Parts of rows are padded to the same size. */
static int64_t padded_part(const tide_tensor *t, int64_t ranks) {
    int64_t rows = t->shape->dim[0].size;
    return rows ? tide_count(t) / rows * TIDE_CEIL_DIV(rows, ranks) : 0;
}

/* Over (efsdp, ep, etp): from the last on, unless two of them cut the same dimension; then from the first on. */
static void gather_experts(const tide_pipeline_stage *s, const tide_parameter_row *row, gathering *g) {
    tide_model *model = s->of->w->model;
    tide_machine *m = model->m;
    const tide_job *job = s->of->w->job;
    int64_t ep = job->parallel_ep, within = tide_job_expert_tensor_ranks(job), whole = tide_count(row->tensor),
            shards = job->parallel_dp * job->parallel_cp * job->parallel_tp / ep / within;
    bool is_inner = shards * ep > row->tensor->shape->dim[0].size * ep,
         is_strided = !is_inner || (within > 1 && tide_cut_dim(model, row) == 1);
    g->count = whole / shards;
    if (!is_strided) {
        gather_parts(m, g, within, true);
        gather_parts(m, g, ep, false);
        gather_parts(m, g, shards, true);
        return;
    }
    g->count = is_inner ? g->count : padded_part(row->tensor, shards);
    gather_parts(m, g, shards, is_inner);
    g->count = whole;
    gather_parts(m, g, ep, false);
    gather_parts(m, g, within, true);
}

static tide_value gathered_sizes(const tide_pipeline_stage *s, const tide_parameter_row *row) {
    tide_model *model = s->of->w->model;
    const tide_job *job = s->of->w->job;
    tide_machine *m = model->m;
    tide_text how = tide_cut_of(model, tide_cuts_of(model, 0), row->module).how;
    int64_t ranks = tide_text_starts(how, TIDE_TEXT("replicated")) ? 1 : job->parallel_tp,
            shards = s->fsdp ? job->parallel_dp * job->parallel_cp : 1;
    bool is_inner = tide_text_is(how, "row") || tide_text_is(how, "partial row") || tide_text_is(how, "grouped");
    gathering g = {.sizes = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
    if (tide_is_torchtitan_expert(model, row->module)) {
        gather_experts(s, row, &g);
        return g.sizes;
    }
    g.count = padded_part(row->tensor, shards);
    if (is_inner) gather_parts(m, &g, ranks, true);
    gather_parts(m, &g, shards, false);
    if (!is_inner) gather_parts(m, &g, ranks, false);
    return g.sizes;
}

/* models/utils.py, trunc_normal_() */
static void draw_weight(tide_pipeline_stage *s, const tide_parameter_row *row, bool is_cut_off) {
    static const char *const names[] = {"weight", "gathered", "redraws"};
    enum { REDRAWS = 2 }; /* of a distribution that is cut off at three standard deviations; more change no peak */
    tide_model *model = s->of->w->model;
    const fsdp_param *sharded = s->fsdp ? fsdp2_param_of(s->fsdp, row->tensor) : NULL;
    tide_tensor *weight = sharded ? sharded->sharded_param : row->tensor;
    const tide_value values[] = {tide_of_tensor(weight), gathered_sizes(s, row), tide_of_int(is_cut_off ? REDRAWS : 0)};
    tide_release(model->m, tide_titan_tensor(model, "trunc_normal_", names, values, TIDE_COUNT_OF(values)));
    tide_value_release(model->m, values[1]);
}

static bool has_buffers(const tide_instance *of) {
    bool has = false;
    for (uint32_t i = 0; i < of->of->member_count && !has; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        has = v.kind == TIDE_VALUE_TENSOR && !v.tensor->is_parameter;
    }
    return has;
}

/* The nearest module above a parameter that has buffers, which it makes after the weights below it; 0: the root. */
static uint32_t buffers_above(const tide_model *model, uint32_t instance) {
    while (instance && instance != model->root && !has_buffers(&model->instances[instance]))
        instance = model->instances[instance].parent;
    return instance == model->root ? 0 : instance;
}

static bool is_drawn_first(const tide_model *model, const tide_list *names, uint32_t instance) {
    for (uint32_t i = 0; i < names->count; i++)
        if (names->items[i].kind == TIDE_VALUE_TEXT &&
            tide_text_equal(names->items[i].text, model->instances[instance].name))
            return true;
    return false;
}

/* The order of init_weights(): that of the modules, but for some that go before the others of theirs. */
static const uint32_t *order_of_drawing(tide_model *model) {
    uint32_t *order = TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 1), n = 0, begun = 0;
    tide_value names = tide_model_method(model, TIDE_TEXT("drawn_first"), NULL, NULL, 0);
    bool has_names = names.kind == TIDE_VALUE_LIST;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        uint32_t parent = model->instances[model->parameters[i].module].parent;
        bool is_first = has_names && is_drawn_first(model, names.list, model->parameters[i].module);
        for (uint32_t k = i; has_names && parent != begun && k < model->parameter_count; k++) {
            uint32_t module = model->parameters[k].module;
            if (model->instances[module].parent == parent && is_drawn_first(model, names.list, module)) order[n++] = k;
        }
        begun = parent;
        if (!is_first) order[n++] = i;
    }
    tide_value_release(model->m, names);
    return order;
}

/* init_weights() */
static void draw_weights(tide_pipeline_stage *s, uint32_t chunk) {
    tide_model *model = s->of->w->model;
    const uint32_t *order = order_of_drawing(model);
    uint32_t input = tide_embeddings_of(model, false), output = tide_embeddings_of(model, true), drawn = 0;
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++) {
        const tide_parameter_row *row = &model->parameters[order[i]];
        if (s->absent[row->module]) continue;
        uint32_t above = buffers_above(model, row->module);
        if (drawn && above != drawn) remake_buffers(model, drawn, chunk);
        drawn = above;
        bool is_drawn = row->module != input && row->tensor->shape->dims > 1;
        if (is_drawn) draw_weight(s, row, row->module == output);
    }
    if (drawn) remake_buffers(model, drawn, chunk);
}

void tide_torchtitan_init_weights(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    bool before = m->state.grad_enabled;
    m->state.grad_enabled = false;
    for (uint32_t chunk = 0; chunk < p->chunks; chunk++) {
        tide_pipeline_part_to_empty(p, chunk);
        m->module = 0;
        remake_buffers(p->w->model, p->w->model->root, chunk);
        draw_weights(&p->stages[chunk], chunk);
    }
    m->state.grad_enabled = before;
    m->module = m->statement = 0;
}
