/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: tensor parallelism by the plan of a configuration (tp_plan="auto"), models/tp_plans.json,
 * and core_model_loading.py, which reads a checkpoint of which each rank takes its parts. */
#include <stdlib.h>
#include <string.h>

#include "lang/lang.h"
#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"

static bool has_type(const tide_json *row, tide_text model_type) {
    const tide_json *types = tide_json_at(row, "model_types");
    for (const tide_json *type = types ? types->first : NULL; type; type = type->next)
        if (tide_text_equal(type->text, model_type)) return true;
    return false;
}

static const tide_json *plans_of(const tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_json *type = tide_json_at(w->job->config, "model_type");
    const tide_source source = tide_source_whole(m->arena, &tide_tp_plans_source);
    const tide_json *rows = tide_json_parse(m->arena, (tide_text){source.text, source.length}, "/tp_plans", m->diags);
    for (const tide_json *row = rows ? rows->first : NULL; row && tide_json_is(type, TIDE_JSON_STRING); row = row->next)
        if (has_type(row, type->text)) return row;
    return NULL;
}

static bool refuse_missing(const tide_wrapper *w, const char *setting, const char *kind, const char *remedy) {
    int64_t size = strcmp(kind, "ep") == 0 ? w->job->parallel_ep : w->job->parallel_tp;
    tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, tide_format(w->model->m->arena, "parallel.%s", setting),
                      "`%s_size=%lld` was requested, but %s has no `%s_plan` in transformers 5.23; %s", kind,
                      (long long)size, tide_root_name(w->model), kind, remedy);
    return false;
}

/* DistributedConfig._validate_mesh_config */
static bool check_sizes(const tide_wrapper *w) {
    const tide_job *job = w->job;
    tide_diagnostics *diags = w->model->m->diags;
    int64_t all = job->parallel_dp * job->parallel_tp;
    bool is_masked = job->parallel_ep_implementation == TIDE_parallel_ep_implementation_all_reduce;
    if (job->parallel_ep % job->parallel_tp)
        return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/parallel.ep",
                          "`ep_size` must be a multiple of `tp_size`.", NULL);
    if (all % job->parallel_ep)
        return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/parallel.ep",
                          "`ep_size` must divide `fsdp_size * tp_size`.",
                          tide_format(diags->arena, "parallel.dp * parallel.tp are %lld", (long long)all));
    if (is_masked && job->parallel_ep != job->parallel_tp)
        return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/parallel.ep_implementation",
                          "all_reduce needs ranks that have the same tokens", "write parallel.ep as parallel.tp");
    return true;
}

bool tide_tp_plan_of(const tide_wrapper *w, tide_tensor_parallel_plan *plan) {
    const tide_job *job = w->job;
    const tide_json *row = plans_of(w), *of_experts = tide_json_at(row, "ep_plan"),
                    *of_all = tide_json_at(row, "tp_plan"), *rope = tide_json_at(job->config, "qk_rope_head_dim");
    bool has_experts = tide_job_cuts_experts(job);
    if (!of_all) return refuse_missing(w, "tp_plan", "tp", "parallel.kind=fsdp2, zero3 and ddp run it as it is");
    if (has_experts && !of_experts) return refuse_missing(w, "ep", "ep", "leave it out");
    if (has_experts && !check_sizes(w)) return !(w->model->m->has_failed = true);
    plan->of_configuration = of_all;
    plan->of_experts = has_experts ? of_experts : NULL;
    plan->experts_style = !has_experts ? TIDE_EXPERTS_SHARED
                          : job->parallel_ep_implementation == TIDE_parallel_ep_implementation_all_reduce
                              ? TIDE_EXPERTS_MASKED
                              : TIDE_EXPERTS_SENT;
    plan->expert_ranks = has_experts ? job->parallel_ep : job->parallel_tp;
    plan->rotary = tide_json_is(rope, TIDE_JSON_NUMBER) ? rope->integer : 0;
    return true;
}

/* ---- loading ---- */

static bool is_key_digit(char c) {
    return c >= '0' && c <= '9';
}

/* dot_natural_key(): parts between dots, numbers by their value. */
static int by_key(const void *a, const void *b) {
    const char *x = (*(const tide_parameter_row *const *)a)->name, *y = (*(const tide_parameter_row *const *)b)->name;
    while (*x && *x == *y) x++, y++;
    if (is_key_digit(*x) && is_key_digit(*y)) {
        size_t of_x = 0, of_y = 0;
        while (is_key_digit(x[of_x])) of_x++;
        while (is_key_digit(y[of_y])) of_y++;
        if (of_x != of_y) return of_x < of_y ? -1 : 1;
    }
    /* a part ends before it goes on */
    int of_x = *x == '.' ? 1 : (unsigned char)*x, of_y = *y == '.' ? 1 : (unsigned char)*y;
    return of_x - of_y;
}

static void leave_empty(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    (void)model;
    (void)instance;
    (void)leaf;
}

void tide_read_parts(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    uint32_t count = 0;
    fsdp2 *f = w->job->parallel_dp > 1 ? w->state : NULL;
    const tide_parameter_row **rows = TIDE_NEW(m->arena, const tide_parameter_row *, model->parameter_count + 1);
    int64_t bytes = 0;
    m->makes_on_host = false;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (tide_is_of_adapter(model, row->module)) continue;
        rows[count++] = row;
        bytes += f ? tide_fsdp2_sharded_bytes(f, row->tensor) : tide_bytes(row->tensor);
    }
    qsort(rows, count, sizeof *rows, by_key);
    m->op = "caching_allocator_warmup";
    tide_alloc_and_free(m, bytes / 2 * 2);
    for (uint32_t i = 0; i < count; i++)
        (f ? tide_fsdp2_empty_sharded_param : tide_empty_param)(model, rows[i]->module, rows[i]->tensor);
    tide_to_empty(model, leave_empty, NULL);
    tide_place_adapters(w);
    if (f) tide_release_at(m, &f->applied);
}
