/* SPDX-License-Identifier: Apache-2.0 */
/* Communication shared by several strategies. */
#include "parallel/parallel.h"

#include <string.h>

#include "base/units.h"
#include "tensor/ops/ops.h"

static void cast_parameters(tide_wrapper *w, tide_dtype dtype, const uint32_t *order) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    m->op = "to";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[order ? order[i] : i];
        m->module = row->module;
        if (!tide_dtype_is_float(row->tensor->dtype) || row->tensor->dtype == dtype) continue;
        tide_tensor *cast = tide_empty_like(m, row->tensor, dtype);
        tide_set_data(m, row->tensor, cast);
        row->tensor->dtype = (uint8_t)dtype;
        tide_release(m, cast);
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->module = 0;
    model->state.dtype = dtype;
    tide_model_setting(model, "model_dtype")->dtype = dtype;
}

void tide_cast_model(tide_wrapper *w, tide_dtype dtype) {
    cast_parameters(w, dtype, tide_children_first(w->model));
}

/* deepspeed/runtime/engine.py, _broadcast_model, and zero/partition_parameters.py, which broadcasts what zero.Init
 * makes: parameters are sent as bytes. */
void tide_check_broadcast(tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++)
        if (!model->parameters[i].tensor->shape->dims)
            tide_fail_setting(
                model->m, TIDE_ERR_CONFLICT, "parallel.kind",
                "DeepSpeed cannot send %s as bytes: \"self.dim() cannot be 0 to view BFloat16 as Byte\"; use ddp",
                model->parameters[i].name);
}

/* deepspeed/runtime/engine.py, _configure_distributed_model: _cast_module_mixed_precision() in the order of
 * module.parameters() if there is a half-precision dtype, then Module.to(). */
void tide_cast_and_place_model(tide_wrapper *w, tide_dtype dtype) {
    tide_model *model = w->model;
    bool is_on_device = tide_trainer_places_model(w->job); /* as it was loaded: quantised */
    bool keeps_types = tide_dtype_or(w->job->parallel_half, TIDE_FP32) == TIDE_FP32;
    if (!keeps_types) cast_parameters(w, dtype, is_on_device ? NULL : tide_children_first(model));
    model->m->makes_on_host = model->state.is_on_meta = false;
    if (!is_on_device) tide_model_to_device(model);
    tide_check_broadcast(model);
}

/* Without an optimizer and with ZeRO disabled, the engine allocates nothing besides the model. */
void tide_prepare_whole_reference(tide_wrapper *w) {
    tide_cast_and_place_model(w, tide_dtype_or(w->job->parallel_half, TIDE_FP32));
}

/* transformers/integrations/deepspeed.py: trainer_config_finalize. */
int64_t tide_hidden_size(const tide_wrapper *w) {
    static const char *const parts[] = {"text_config", "llm_config", "language_config"}, *const keys[] = {"hidden_size",
                                                                                                          "n_embd",
                                                                                                          "d_model"};
    const tide_json *config = w->job->config;
    for (size_t i = 0; i < TIDE_COUNT_OF(parts); i++)
        if (tide_json_at(w->job->config, parts[i])) config = tide_json_at(w->job->config, parts[i]);
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *size = tide_json_at(config, keys[i]);
        if (size && size->is_integer && size->integer > 0 && size->integer < 1 << 20) return size->integer;
    }
    tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.hf_auto",
                      "the configuration has no hidden_size; give the bucket sizes");
    return 1;
}

int64_t tide_bucket_size(const tide_wrapper *w, tide_setting_id setting, int64_t size, int64_t numerator,
                         int64_t denominator) {
    bool is_auto = !tide_job_sets(w->job, setting) && w->job->parallel_hf_auto;
    int64_t hidden = is_auto ? tide_hidden_size(w) : 0;
    return is_auto ? hidden * hidden * numerator / denominator : size;
}

tide_tensor *tide_flat_of(tide_machine *m, const char *op, int64_t count, tide_dtype dtype, tide_factor factor) {
    tide_factor outside = m->state.factor;
    m->state.factor = factor;
    m->op = op;
    tide_tensor *made = tide_flat(m, count, dtype);
    m->state.factor = outside;
    return made;
}

tide_tensor *tide_flat_on(tide_machine *m, uint8_t stream, const char *op, int64_t count, tide_dtype dtype,
                          tide_factor factor) {
    uint32_t outside = m->state.stream;
    m->state.stream = stream;
    tide_tensor *made = tide_flat_of(m, op, count, dtype, factor);
    m->state.stream = outside;
    return made;
}

tide_tensor *tide_fp64_norm(tide_machine *m, const char *op, int64_t elements) {
    tide_tensor *wide = tide_flat_of(m, op, elements, TIDE_FP64, TIDE_FACTOR_TEMPORARY);
    tide_tensor *norm = tide_sum_plain(m, wide, 1, false, TIDE_FP64);
    tide_release(m, wide);
    return norm;
}

uint32_t tide_cut_buckets(tide_machine *m, tide_tensor *const *tensors, uint32_t count, const int64_t *limits,
                          uint32_t limit_count, bool is_sorted, uint32_t *bucket_of) {
    struct {
        int64_t bytes;
        uint32_t limit, bucket;
        bool is_open;
    } open[TIDE_DTYPE_COUNT];
    memset(open, 0, sizeof open);
    uint32_t provisional = 0, closed = 0;
    uint32_t *rank = TIDE_NEW(m->arena, uint32_t, count + 1); /* for each provisional bucket, when it closes */
    for (uint32_t i = 0; i < count; i++) {
        unsigned d = tensors[i]->dtype;
        if (!open[d].is_open) {
            open[d].is_open = true;
            open[d].bytes = 0;
            open[d].bucket = provisional++;
        }
        bucket_of[i] = open[d].bucket;
        open[d].bytes += tide_bytes(tensors[i]);
        if (open[d].bytes < limits[open[d].limit]) continue;
        rank[open[d].bucket] = closed++;
        open[d].is_open = false;
        if (open[d].limit + 1 < limit_count) open[d].limit++;
    }
    for (unsigned d = 0; d < TIDE_DTYPE_COUNT; d++)
        if (open[d].is_open) rank[open[d].bucket] = closed++;
    for (uint32_t i = 0; i < count && !is_sorted; i++) bucket_of[i] = rank[bucket_of[i]];
    return provisional;
}

void tide_broadcast_coalesced(tide_machine *m, const char *op, tide_tensor *const *tensors, uint32_t count) {
    enum { IN_FLIGHT = 2 };
    static const int64_t limit = INT64_C(250) << 20; /* torch/nn/parallel/distributed.py: broadcast_bucket_size */
    uint32_t *bucket_of = TIDE_NEW(m->arena, uint32_t, count + 1);
    uint32_t buckets = tide_cut_buckets(m, tensors, count, &limit, 1, true, bucket_of);
    tide_tensor *sent[IN_FLIGHT] = {NULL};
    for (uint32_t b = 0; b < buckets; b++) {
        int64_t elements = 0, members = 0;
        tide_dtype dtype = TIDE_FP32;
        for (uint32_t i = 0; i < count; i++) {
            if (bucket_of[i] != b) continue;
            elements += tide_count(tensors[i]);
            dtype = (tide_dtype)tensors[i]->dtype;
            members++;
        }
        sent[1] = members > 1 ? tide_flat_of(m, op, elements, dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
        tide_release_at(m, &sent[0]);
        sent[0] = sent[1];
    }
    tide_release(m, sent[0]);
}
