/* SPDX-License-Identifier: Apache-2.0 */
/* Attention needs complete heads from a rank's columns. */
#include <string.h>

#include "lang/lang.h"
#include "parallel/cuts.h"
#include "parallel/dtensor.h"
#include "parallel/tensor_parallel.h"

/* The key of the configuration that a size reads first. */
static const char *key_of_size(tide_model *model, uint32_t scope, const char *name) {
    const tide_size *size = tide_size_find(model->descriptions, model->scopes[scope].description, tide_text_of(name));
    const char *text = size && tide_json_is(size->item, TIDE_JSON_STRING) ? size->item->text.at : name;
    return tide_format(model->m->arena, "%.*s", (int)strcspn(text, " .("), text);
}

/* Refuses view() to (..., -1, head_dim), in PyTorch's words. */
static bool refuse_heads(const tide_wrapper *w, const tide_parameter_row *row, const char *key, int64_t heads,
                         int64_t ranks) {
    const tide_job *job = w->job;
    tide_machine *m = w->model->m;
    int64_t whole = row->tensor->shape->dim[0].size, part = tide_dtensor_part(whole, ranks, job->parallel_rank % ranks),
            head_dim = whole / heads, tokens = job->batch * job->seq;
    const char *divisors = "";
    for (int64_t i = 1; i <= heads && i <= 64; i++)
        if (heads % i == 0) divisors = tide_format(m->arena, "%s%s%lld", divisors, *divisors ? ", " : "", (long long)i);
    tide_fail_setting(
        m, TIDE_ERR_CONFLICT, "parallel.tp",
        "%s: %lld do not divide into %lld tensor parallel ranks: \"shape '[%lld, %lld, -1, %lld]' is "
        "invalid for input of size %lld\"; parallel.tp may be one of %s, and parallel.kind=fsdp2 and zero3 "
        "cut by any number",
        key, (long long)heads, (long long)ranks, (long long)job->batch, (long long)job->seq, (long long)head_dim,
        (long long)(tokens * part), divisors);
    return false;
}

bool tide_check_heads(const tide_wrapper *w, int64_t ranks, const bool *is_column) {
    tide_model *model = w->model;
    const tide_json **cuts = TIDE_NEW(model->m->arena, const tide_json *, model->scope_count);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        uint32_t of = row->module, scope = model->instances[of].scope;
        if (!is_column[of] || row->tensor->shape->dims != 2) continue;
        if (tide_is_base_layer(model, of)) of = model->instances[of].parent;
        if (!cuts[scope]) cuts[scope] = tide_cuts_of(model, scope);
        tide_cut cut = tide_cut_of(model, cuts[scope], of);
        bool has_size = cut.of && tide_size_is_defined(model->scopes[scope].description, tide_text_of(cut.of));
        tide_value count = has_size ? tide_size_in(model, scope, cut.of) : tide_none();
        if (count.kind != TIDE_VALUE_INT || count.integer <= 0 || count.integer % ranks == 0) continue;
        return refuse_heads(w, row, key_of_size(model, scope, cut.of), count.integer, ranks);
    }
    return true;
}
