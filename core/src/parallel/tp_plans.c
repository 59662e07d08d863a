/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: tensor parallelism by a configuration's plan (tp_plan="auto"), models/tp_plans.json, and
 * core_model_loading.py, which reads a checkpoint of which each rank takes its parts. */
#include <stdlib.h>
#include <string.h>

#include "lang/lang.h"
#include "parallel/cuts.h"
#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"

static void say_that_it_is_new(const tide_wrapper *w, const tide_json *type) {
    tide_diagnostics *diags = w->model->m->diags;
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.tp_plan",
                tide_format(diags->arena,
                            "no plan of transformers 5.23 is known for '%s': attention, dense layers, experts and "
                            "vocabulary are cut as it cuts those of other models",
                            type->text.at),
                NULL);
}

/* init_parallel_plans(): each part of a composite model has the plan of its own configuration. */
static bool plans_by_scope(const tide_wrapper *w, const tide_json **tp, const tide_json **ep) {
    tide_model *model = w->model;
    const tide_json *own = tide_json_at(model->scopes[0].config, "model_type");
    const tide_json *rows = tide_plan_rows(model);
    bool is_new = tide_is_new_to_transformers(own);
    for (uint32_t i = 0; i < model->scope_count; i++) {
        const tide_json *type = tide_json_at(model->scopes[i].config, "model_type"),
                        *row = tide_plans_of_type(rows, type);
        tide_styles styles = {tide_json_at(row, "tp_plan"), tide_json_at(row, "ep_plan")};
        if (!row && is_new && tide_is_new_to_transformers(type)) styles = tide_styles_of_cuts(model, i);
        tp[i] = styles.tp;
        ep[i] = styles.ep;
    }
    if (is_new) say_that_it_is_new(w, own);
    return is_new;
}

static bool has_plan(const tide_wrapper *w, const tide_json *const *plans) {
    for (uint32_t i = 0; i < w->model->scope_count; i++)
        if (plans[i] && plans[i]->first) return true;
    return false;
}

static bool refuse_missing(const tide_wrapper *w, const char *setting, const char *kind, const char *remedy) {
    tide_machine *m = w->model->m;
    int64_t size = strcmp(kind, "ep") == 0 ? w->job->parallel_ep : w->job->parallel_tp;
    const char *name = tide_root_name(w->model);
    if (tide_job_has_deepspeed(w->job))
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.tp",
                          "%s has no `tp_plan` in transformers 5.23, and by what rules DeepSpeed's AutoTP cuts it then "
                          "is not described; leave parallel.tp out",
                          name);
    else
        tide_fail_setting(m, TIDE_ERR_CONFLICT, tide_format(m->arena, "parallel.%s", setting),
                          "`%s_size=%lld` was requested, but %s has no `%s_plan` in transformers 5.23; %s", kind,
                          (long long)size, name, kind, remedy);
    return false;
}

/* DistributedConfig._validate_mesh_config */
static bool check_sizes(const tide_wrapper *w) {
    const tide_job *job = w->job;
    tide_machine *m = w->model->m;
    int64_t all = job->parallel_dp * job->parallel_tp;
    bool is_masked = job->parallel_ep_implementation == TIDE_parallel_ep_implementation_all_reduce;
    if (job->parallel_ep % job->parallel_tp)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep", "`ep_size` must be a multiple of `tp_size`.");
    else if (all % job->parallel_ep)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep",
                          "`ep_size` must divide `fsdp_size * tp_size`.; parallel.dp * parallel.tp are %lld",
                          (long long)all);
    else if (is_masked && job->parallel_ep != job->parallel_tp)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep_implementation",
                          "all_reduce needs ranks that have the same tokens; write parallel.ep as parallel.tp");
    return !m->has_failed;
}

bool tide_tp_plan_of(const tide_wrapper *w, tide_tensor_parallel_plan *plan) {
    const tide_job *job = w->job;
    tide_arena *arena = w->model->m->arena;
    const tide_json **tp = TIDE_NEW(arena, const tide_json *, w->model->scope_count + 1),
                    **ep = TIDE_NEW(arena, const tide_json *, w->model->scope_count + 1),
                    *rope = tide_json_at(job->config, "qk_rope_head_dim");
    bool has_experts = tide_job_cuts_experts(job);
    plan->is_of_kinds = plans_by_scope(w, tp, ep);
    if (!has_plan(w, tp) && (job->parallel_tp > 1 || job->parallel_dp == 1))
        return refuse_missing(w, "tp_plan", "tp", "parallel.kind=fsdp2, zero3 and ddp run it as it is");
    if (has_experts && !has_plan(w, ep)) return refuse_missing(w, "ep", "ep", "leave it out");
    if (has_experts && !check_sizes(w)) return false;
    plan->of_configuration = tp;
    plan->of_experts = has_experts ? ep : NULL;
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

/* dot_natural_key(): components between dots, numbers by value. */
static int by_key(const void *a, const void *b) {
    const char *x = (*(const tide_parameter_row *const *)a)->name, *y = (*(const tide_parameter_row *const *)b)->name;
    while (*x && *x == *y) x++, y++;
    if (is_key_digit(*x) && is_key_digit(*y)) {
        size_t of_x = 0, of_y = 0;
        while (is_key_digit(x[of_x])) of_x++;
        while (is_key_digit(y[of_y])) of_y++;
        if (of_x != of_y) return of_x < of_y ? -1 : 1;
    }
    /* the end of a component comes before further characters */
    int of_x = *x == '.' ? 1 : (unsigned char)*x, of_y = *y == '.' ? 1 : (unsigned char)*y;
    return of_x - of_y;
}

static void leave_empty(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    (void)model;
    (void)instance;
    (void)leaf;
}

void tide_read_parts(tide_wrapper *w, const tide_tensor_parallel_plan *plan) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    uint32_t count = 0;
    fsdp2 *f = w->job->parallel_dp > 1 ? w->state : NULL;
    const tide_parameter_row **rows = TIDE_NEW(m->arena, const tide_parameter_row *, model->parameter_count + 1);
    int64_t bytes = 0;
    m->makes_on_host = false;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (tide_is_of_adapter(model, row->module) || tide_is_adapter(model, row->module)) continue;
        rows[count++] = row;
        bytes += f ? tide_fsdp2_sharded_bytes(f, row->tensor) : tide_bytes(row->tensor);
    }
    qsort(rows, count, sizeof *rows, by_key);
    m->op = "caching_allocator_warmup";
    tide_alloc_and_free(m, bytes / 2 * 2);
    for (uint32_t i = 0; i < count; i++)
        (f ? tide_fsdp2_empty_sharded_param : tide_empty_param)(model, rows[i]->module, rows[i]->tensor);
    bool *is_of_adapter = TIDE_NEW(m->arena, bool, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++) is_of_adapter[i] = tide_is_of_adapter(model, i);
    model->without_buffers = is_of_adapter;
    tide_to_empty(model, leave_empty, NULL);
    model->without_buffers = NULL;
    tide_place_adapters(w, plan);
    if (f) tide_release_at(m, &f->applied);
}
