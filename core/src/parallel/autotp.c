/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/module_inject: auto_tp.py and layers.py, AutoTP for a model whose class has transformers' plan. The engine
 * has moved the whole model to the device; then each linear layer in turn keeps its part. ZeRO works on the parts as on
 * whole parameters. */
#include "parallel/autotp.h"

#include <string.h>

#include "base/rounding.h"
#include "parallel/tensor_parallel.h"

typedef enum autotp_layer {
    AUTOTP_WHOLE,
    AUTOTP_COLUMN,   /* LinearLayer */
    AUTOTP_GATHERED, /* whose output is gathered */
    AUTOTP_ROW       /* LinearAllreduce */
} autotp_layer;

typedef struct autotp {
    int64_t ranks;
    uint8_t *layers; /* by instance */
    void (*outer_before)(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                         tide_value *named, uint32_t named_count);
    void (*outer_after)(tide_model *model, uint32_t instance, tide_value *output);
} autotp;

/* ColumnParallel, RowParallel: reductions are in place. GatherFromTensorParallelRegion. */
static void pass(tide_model *model, tide_value *value, bool gathers, int64_t ranks) {
    tide_redistribute how = {.ranks = ranks, .dim = -1};
    if (value->kind != TIDE_VALUE_TENSOR) return;
    if (gathers) {
        how.forward = TIDE_COLLECTIVE_ALL_GATHER;
        how.backward = TIDE_COLLECTIVE_CHUNK;
    }
    tide_tensor *moved = tide_dtensor_redistribute(model->m, value->tensor, &how);
    tide_release(model->m, value->tensor);
    value->tensor = moved;
}

static void autotp_before_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                                  tide_value *named, uint32_t named_count) {
    const autotp *a = model->autotp;
    autotp_layer of = (autotp_layer)a->layers[instance];
    if (a->outer_before) a->outer_before(model, instance, positional, count, named, named_count);
    if (count && (of == AUTOTP_COLUMN || of == AUTOTP_GATHERED)) pass(model, &positional[0], false, a->ranks);
}

static void autotp_after_forward(tide_model *model, uint32_t instance, tide_value *output) {
    const autotp *a = model->autotp;
    autotp_layer of = (autotp_layer)a->layers[instance];
    if (of == AUTOTP_GATHERED || of == AUTOTP_ROW) pass(model, output, of == AUTOTP_GATHERED, a->ranks);
    if (a->outer_after) a->outer_after(model, instance, output);
}

void tide_autotp_around(tide_model *model) {
    autotp *a = model->autotp;
    if (!a) return;
    a->outer_before = model->before_forward == autotp_before_forward ? NULL : model->before_forward;
    a->outer_after = model->after_forward == autotp_after_forward ? NULL : model->after_forward;
    model->before_forward = autotp_before_forward;
    model->after_forward = autotp_after_forward;
}

bool tide_autotp_counts(const tide_wrapper *w, const tide_tensor *parameter) {
    const autotp *a = w->model->autotp;
    if (!a || w->job->parallel_rank % a->ranks == 0) return true;
    const tide_parameter_row *row = w->model->parameters;
    while (row->tensor != parameter) row++;
    return a->layers[row->module] && (a->layers[row->module] != AUTOTP_ROW || row->tensor->shape->dims > 1);
}

static autotp_layer autotp_layer_of(tide_text style) {
    static const struct {
        const char *name;
        autotp_layer of;
    } styles[] = {{"colwise", AUTOTP_COLUMN}, {"rowwise", AUTOTP_ROW}, {"colwise_gather_output", AUTOTP_GATHERED}};
    for (size_t i = 0; i < TIDE_COUNT_OF(styles); i++)
        if (tide_text_is(style, styles[i].name)) return styles[i].of;
    return AUTOTP_WHOLE;
}

/* tp_shard.py, set_num_kv_heads */
static int64_t key_value_heads(const tide_json *config) {
    static const char *const keys[] = {"num_key_value_heads", "num_attention_heads"};
    const tide_json *text = tide_json_at(config, "text_config");
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *found = tide_json_at(text ? text : config, keys[i]);
        if (tide_json_is(found, TIDE_JSON_NUMBER) && found->integer > 0) return found->integer;
    }
    return 0;
}

/* tp_shard.py, get_shard_size: attention is split by groups of heads, the rest as evenly as possible. */
static int64_t shard_size(const tide_wrapper *w, uint32_t instance, int64_t whole) {
    const tide_job *job = w->job;
    const tide_instance *of = &w->model->instances[instance];
    int64_t ranks = job->parallel_tp, rank = job->parallel_rank % ranks, groups = key_value_heads(job->config);
    bool is_of_attention = !strstr(of->path, "mlp") && !strstr(of->path, "gate_proj") && !strstr(of->path, "up_proj") &&
                           !strstr(of->path, "down_proj") && !tide_text_is(of->name, "lm_head");
    bool has_groups = is_of_attention && groups && whole % groups == 0;
    int64_t units = has_groups ? groups : whole, mine = units / ranks + (rank < units % ranks ? 1 : 0);
    return has_groups ? whole * mine / groups : mine;
}

static bool autotp_is_refused(const tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_job *job = w->job;
    bool is_frozen = job->adapter != TIDE_adapter_none || job->freeze.count || job->train_only.count;
    const char *what = is_frozen ? "what is frozen: \"cannot register a hook on a tensor that doesn't "
                                   "require gradient\""
                       : job->quant != TIDE_quant_none ? "quantised weights"
                       : tide_tied_head(w->model) ? "a head that shares the embedding's weight, whose loss is parallel"
                                                  : NULL;
    if (!what) return false;
    tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.tp",
                      "DeepSpeed's AutoTP is not described with %s; near to it are parallel.kind=tp "
                      "parallel.tp_plan=auto, and ZeRO without parallel.tp",
                      what);
    return true;
}

/* uneven_partition(): copies this rank's part and releases the whole. */
static bool cut_layer(tide_wrapper *w, const autotp *a, uint32_t instance) {
    tide_model *model = w->model;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        bool is_bias = row->tensor->shape->dims < 2, is_row = a->layers[instance] == AUTOTP_ROW;
        int dim = is_row ? 1 : 0;
        if (row->module != instance || (is_row && is_bias)) continue;
        int64_t size = row->tensor->shape->dim[dim].size, mine = shard_size(w, instance, size);
        if (a->layers[instance] == AUTOTP_GATHERED && size % a->ranks) {
            tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp",
                              "%s: AutoTP's parts of several sizes, of %lld over %lld ranks, are not described; use "
                              "ranks that divide it",
                              row->name, (long long)size, (long long)a->ranks);
            return false;
        }
        if (!mine) {
            tide_fail_setting(model->m, TIDE_ERR_CONFLICT, "parallel.tp",
                              "%s: num_key_value_heads are fewer than %lld tensor parallel ranks, of which some would "
                              "have no head; use fewer",
                              row->name, (long long)a->ranks);
            return false;
        }
        tide_shape shape = *row->tensor->shape;
        shape.dim[dim] = (tide_dim){mine, 0};
        model->m->module = instance;
        model->m->op = "AutoTP";
        model->m->state.factor = TIDE_FACTOR_PARAMETER;
        tide_tensor *part = tide_empty(model->m, &shape, (tide_dtype)row->tensor->dtype);
        model->m->state.factor = TIDE_FACTOR_TEMPORARY;
        tide_set_data(model->m, row->tensor, part);
        row->tensor->layout = part->layout;
        row->tensor->shape = part->shape;
        row->tensor->stride = part->stride;
        tide_release(model->m, part);
    }
    return true;
}

/* forward() of DeepSpeed's layers, which have the slots of a Linear. */
static bool replace_class(tide_model *model, uint32_t instance) {
    tide_instance *of = &model->instances[instance];
    tide_class *layer = tide_class_find(model->descriptions, NULL, TIDE_TEXT("AutoTPLinear"));
    if (!tide_text_is(of->of->name, "Linear") || !layer || !tide_model_check(model, layer, NULL)) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp",
                          "%s: AutoTP of a %.*s is not described; use another model", of->path,
                          (int)of->of->name.length, of->of->name.at);
        return false;
    }
    of->of = layer;
    return true;
}

bool tide_autotp(tide_wrapper *w) {
    const tide_job *job = w->job;
    tide_model *model = w->model;
    tide_tensor_parallel_plan plan = {.ranks = job->parallel_tp};
    if (job->parallel_tp == 1) return true;
    if (autotp_is_refused(w) || !tide_tp_plan_of(w, &plan)) return false;
    autotp *a = TIDE_NEW(model->m->arena, autotp, 1);
    *a = (autotp){.ranks = job->parallel_tp, .layers = TIDE_NEW(model->m->arena, uint8_t, model->instance_count + 1)};
    for (uint32_t i = 1; i < model->instance_count; i++) {
        tide_text style = tide_style_at(plan.of_configuration, model, i, model->instances[i].path);
        a->layers[i] = (uint8_t)autotp_layer_of(style);
        if (!style.length || a->layers[i] || tide_text_is(style, "replicated_with_grad_allreduce")) continue;
        tide_fail_setting(
            model->m, TIDE_ERR_CONFLICT, "parallel.tp",
            "\"HuggingFace tp_plan contains unsupported partition style(s): ['%.*s']. Applying only "
            "the supported entries could shard one half of a column/row pair, so the plan is rejected as a "
            "whole.\"; use parallel.kind=tp parallel.tp_plan=auto",
            (int)style.length, style.at);
        return false;
    }
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (a->layers[i] && (!replace_class(model, i) || !cut_layer(w, a, i))) return false;
    model->m->module = 0;
    model->autotp = a;
    tide_autotp_around(model);
    w->rank = job->parallel_rank / job->parallel_tp;
    return true;
}
