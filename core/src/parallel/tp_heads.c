/* SPDX-License-Identifier: Apache-2.0 */
/* Attention takes what a rank's columns give for whole heads. */
#include "base/rounding.h"
#include "parallel/dtensor.h"
#include "parallel/tensor_parallel.h"

static int64_t heads_of(const tide_json *config, const char *key, int64_t otherwise) {
    const tide_json *text = tide_json_at(config, "text_config"), *found = tide_json_at(text ? text : config, key);
    return tide_json_is(found, TIDE_JSON_NUMBER) && found->integer > 0 ? found->integer : otherwise;
}

int64_t tide_key_value_heads(const tide_json *config) {
    return heads_of(config, "num_key_value_heads", heads_of(config, "num_attention_heads", 0));
}

/* view() to (..., -1, head_dim), in PyTorch's words. */
static bool refuse_heads(const tide_wrapper *w, const tide_parameter_row *row, const char *key, int64_t heads,
                         int64_t ranks) {
    const tide_job *job = w->job;
    tide_machine *m = w->model->m;
    int64_t whole = row->tensor->shape->dim[0].size, part = tide_dtensor_part(whole, ranks, job->parallel_rank % ranks),
            head_dim = whole / heads, tokens = job->batch * job->seq;
    const char *divisors = "";
    for (int64_t i = 1; i <= heads && i <= 64; i++)
        if (heads % i == 0) divisors = tide_format(m->arena, "%s%s%lld", divisors, *divisors ? ", " : "", (long long)i);
    tide_error(
        m->diags, TIDE_ERR_CONFLICT, "/settings/parallel.tp",
        tide_format(m->arena,
                    "%s: %lld do not divide into %lld tensor parallel ranks: \"shape '[%lld, %lld, -1, %lld]' is "
                    "invalid for input of size %lld\"",
                    key, (long long)heads, (long long)ranks, (long long)job->batch, (long long)job->seq,
                    (long long)head_dim, (long long)(tokens * part)),
        tide_format(m->arena, "parallel.tp may be one of %s; parallel.kind=fsdp2 and zero3 cut by any number",
                    divisors));
    return !(m->has_failed = true);
}

bool tide_check_heads(const tide_wrapper *w, int64_t ranks, const bool *is_column) {
    static const struct {
        const char *name;
        bool is_of_groups;
    } layers[] = {{"q_proj", false},   {"k_proj", true},     {"v_proj", true},
                  {"q_b_proj", false}, {"kv_b_proj", false}, {"query_key_value", false}};
    const tide_model *model = w->model;
    int64_t heads = heads_of(w->job->config, "num_attention_heads", 0),
            groups = heads_of(w->job->config, "num_key_value_heads", heads);
    for (uint32_t i = 0; i < model->parameter_count && heads; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        const tide_instance *of = &model->instances[row->module];
        tide_text name = tide_is_base_layer(model, row->module) ? model->instances[of->parent].name : of->name;
        if (!is_column[row->module] || row->tensor->shape->dims != 2) continue;
        for (size_t k = 0; k < TIDE_COUNT_OF(layers); k++) {
            int64_t count = layers[k].is_of_groups ? groups : heads;
            if (tide_text_is(name, layers[k].name) && count % ranks)
                return refuse_heads(w, row, layers[k].is_of_groups ? "num_key_value_heads" : "num_attention_heads",
                                    count, ranks);
        }
    }
    return true;
}
