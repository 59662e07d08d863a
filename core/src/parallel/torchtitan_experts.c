/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan: experiments/transformers_modeling_backend/moe_replacement.py, models/common/moe_sharding.py. Its modules
 * are in models/architectures/library/torchtitan.json. */
#include "parallel/torchtitan_experts.h"

#include <string.h>

#include "base/decimal.h"
#include "base/units.h"
#include "lang/lang.h"
#include "parallel/cuts.h"
#include "parallel/expert_parallel.h"

bool tide_is_torchtitan_expert(const tide_model *model, uint32_t instance) {
    const tide_class *of = model->instances[instance].of;
    return instance && (tide_text_is(of->name, "TitanGroupedExperts") || tide_text_is(of->name, "DispatchedExperts"));
}

static const tide_tensor *tensor_of(const tide_model *model, uint32_t instance, const char *name) {
    const tide_instance *of = &model->instances[instance];
    uint32_t slot = instance ? tide_attribute_slot(of->of, tide_text_of(name)) : UINT32_MAX;
    bool has = slot != UINT32_MAX && of->slots[slot].kind == TIDE_VALUE_TENSOR;
    return has ? of->slots[slot].tensor : NULL;
}

static uint32_t below_one_of(tide_model *model, uint32_t instance, const char *const *names, size_t count) {
    uint32_t found = 0;
    for (size_t i = 0; i < count && !found; i++) found = tide_model_below(model, instance, tide_text_of(names[i]));
    return found;
}

/* For a micro-batch; torchtitan's own models divide its tokens among tensor parallel ranks (ReordererSequenceParallel)
 * unless these share experts. */
static int64_t rows_of_micro_batch(const tide_job *job, int64_t top_k) {
    bool is_divided =
        tide_job_has_torchtitan_models(job) ? tide_job_expert_tensor_ranks(job) == 1 : job->parallel_sequence_parallel;
    int64_t parts = job->parallel_cp * (is_divided ? job->parallel_tp : 1);
    int64_t tokens = job->batch * (job->seq / parts);
    return tide_rows_received(tokens * top_k, job->parallel_ep, (double)job->parallel_imbalance / (double)TIDE_PICO);
}

/* _resolve_top_k: from the block, else from the configuration. */
static tide_value experts_per_token(tide_model *model, uint32_t block) {
    const tide_instance *of = &model->instances[block];
    uint32_t slot = tide_attribute_slot(of->of, TIDE_TEXT("chosen"));
    return slot != UINT32_MAX ? of->slots[slot] : tide_model_size(model, "top_k");
}

/* _probe_hf_moe_block, _build_moe_config */
static void replace_block(tide_model *model, const tide_job *job, uint32_t block, uint32_t experts) {
    static const char *const routers[] = {"gate", "router"}, *const shared_ones[] = {"shared_expert", "shared_experts",
                                                                                     "shared_mlp"};
    tide_machine *m = model->m;
    uint32_t router = below_one_of(model, block, routers, TIDE_COUNT_OF(routers)),
             shared = below_one_of(model, block, shared_ones, TIDE_COUNT_OF(shared_ones));
    const tide_tensor *gate_up = tensor_of(model, experts, "gate_up_proj"),
                      *bias = tensor_of(model, router, "e_score_correction_bias"),
                      *of_shared = tensor_of(model, tide_model_below(model, shared, TIDE_TEXT("gate_proj")), "weight");
    tide_value top_k = experts_per_token(model, block), hidden = tide_model_size(model, "hidden");
    bool is_spmd = job->parallel_spmd_backend == TIDE_parallel_spmd_backend_spmd_types;
    int64_t ranks = job->parallel_dp * job->parallel_cp * job->parallel_tp;
    if (m->has_failed || !router || top_k.kind != TIDE_VALUE_INT || (shared && !of_shared)) {
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.ep", "%s is not described as torchtitan replaces it",
                          model->instances[block].path);
        return;
    }
    const tide_value made_of[] = {
        tide_of_int(gate_up->shape->dim[0].size),
        tide_of_int(gate_up->shape->dim[1].size / 2),
        hidden,
        top_k,
        tide_of_bool(bias && !bias->is_parameter),
        of_shared ? tide_of_int(of_shared->shape->dim[0].size) : tide_none(),
        tide_of_bool(tide_model_below(model, block, TIDE_TEXT("shared_expert_gate"))),
        tide_of_int(job->parallel_ep),
        tide_of_int(rows_of_micro_batch(job, top_k.integer)),
        is_spmd ? tide_of_int(job->parallel_rank % ranks % job->parallel_ep) : tide_none(),
    };
    tide_model_wrap(model, block, TIDE_TEXT("TitanMoE"), made_of, TIDE_COUNT_OF(made_of));
}

/* The experts of a block that torchtitan replaces by GroupedExperts. */
static uint32_t experts_of(tide_model *model, uint32_t block) {
    uint32_t experts = tide_model_below(model, block, TIDE_TEXT("experts"));
    const tide_tensor *gate_up = tensor_of(model, experts, "gate_up_proj");
    return gate_up && gate_up->shape->dims == 3 ? experts : 0;
}

/* Layers with such experts unpack hidden states and scores from the block's result; torchtitan's returns one tensor. */
static bool refuse_biases(tide_model *model, uint32_t experts) {
    if (!tensor_of(model, experts, "gate_up_proj_bias")) return false;
    tide_fail_setting(
        model->m, TIDE_ERR_CONFLICT, "parallel.ep",
        "%s has biases, which torchtitan's experts have not, and its layer unpacks two values of a "
        "block that gives one: \"not enough values to unpack (expected 2, got 1)\"; near to it are transformers' "
        "own plan, parallel.kind=tp parallel.tp_plan=auto with parallel.dp and parallel.ep, and "
        "parallel.kind=megatron",
        model->instances[experts].path);
    return true;
}

/* distributed/parallel_dims.py: build_mesh. */
static bool check_ranks(tide_machine *m, const tide_job *job) {
    long long ep = job->parallel_ep, pp = job->parallel_pp,
              ranks = job->parallel_dp * job->parallel_cp * job->parallel_tp;
    if (ranks % ep)
        tide_fail_setting(
            m, TIDE_ERR_CONFLICT, "parallel.ep",
            "\"The product of mesh_sizes=(%lld, 1, %lld, %lld) is %lld, but the original dimension "
            "at dim=0 has size %lld. These must be equal for unflatten to work correctly.\"; give a divisor of "
            "parallel.dp x cp x tp, %lld",
            pp, ranks / ep, ep, pp * (ranks / ep) * ep, pp * ranks, ranks);
    else if (job->parallel_tp > 1 && job->parallel_spmd_backend == TIDE_parallel_spmd_backend_spmd_types)
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.spmd_backend",
                          "spmd_types is not described beside parallel.tp; near to it is "
                          "partial_dtensor");
    else if (!tide_job_is_on_meta(job))
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.ep",
                          "torchtitan cuts experts while they are on the meta device; leave %s out",
                          job->adapter != TIDE_adapter_none ? "adapter"
                          : job->quant != TIDE_quant_none   ? "quant"
                                                            : "parallel.meta_init");
    return !m->has_failed;
}

void tide_torchtitan_replace_experts(tide_model *model, const tide_job *job) {
    tide_machine *m = model->m;
    if (!check_ranks(m, job)) return;
    if (job->parallel_tp > 1 && !job->parallel_sequence_parallel)
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/parallel.sequence_parallel",
                    "torchtitan cuts hidden states along the sequence wherever it has tensor parallel ranks; its "
                    "experts take whole ones as parts, so that they compute each token on all of these ranks",
                    "parallel.sequence_parallel=true");
    uint32_t replaced = 0, count = model->instance_count;
    for (uint32_t i = 1; i < count && !m->has_failed; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        uint32_t block = tide_model_below(model, i, TIDE_TEXT("mlp")), experts = experts_of(model, block);
        if (!experts) continue;
        if (refuse_biases(model, experts)) return;
        const tide_shape *shape = tensor_of(model, experts, "gate_up_proj")->shape;
        if (shape->dim[0].size % job->parallel_ep)
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep",
                              "\"shape '[%lld, -1]' is invalid for input of size %lld\": experts do not divide into "
                              "expert parallel ranks",
                              (long long)job->parallel_ep, (long long)shape->dim[0].size);
        else
            replace_block(model, job, block, experts);
        replaced++;
    }
    if (!replaced && !m->has_failed)
        tide_fail_setting(
            m, TIDE_ERR_UNSUPPORTED, "parallel.ep",
            "torchtitan replaces an `mlp` of experts that have gate_up_proj (\"Layer has no 'mlp'\"), and "
            "there is none; near to it are transformers' own plan, parallel.kind=tp parallel.tp_plan=auto with "
            "parallel.dp and parallel.ep, and parallel.kind=megatron");
    model->buffer_count = 0;
    tide_model_list_parameters(model);
}

/* distributed/parallel_dims.py of 0.2.2: _validate(), build_mesh(). */
static bool check_own_ranks(tide_machine *m, const tide_job *job) {
    long long ep = job->parallel_ep, pp = job->parallel_pp, etp = tide_job_expert_tensor_ranks(job),
              ranks = job->parallel_dp * job->parallel_cp * job->parallel_tp, left = ranks / (ep * etp);
    if (etp != 1 && etp != job->parallel_tp)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.etp",
                          "\"Currently we only support ETP=TP or ETP=1\"; write 1 or %lld",
                          (long long)job->parallel_tp);
    else if (ranks % (ep * etp))
        tide_fail_setting(
            m, TIDE_ERR_CONFLICT, "parallel.ep",
            "\"The product of mesh_sizes=(%lld, 1, %lld, %lld, %lld) is %lld, but the original dimension at "
            "dim=0 has size %lld. These must be equal for unflatten to work correctly.\"; give a divisor of "
            "parallel.dp x cp x tp / etp, %lld",
            pp, left, ep, etp, pp * left * ep * etp, pp * ranks, ranks / etp);
    else if (job->parallel_dp * job->parallel_cp == 1)
        tide_fail_setting(
            m, TIDE_ERR_UNSUPPORTED, "parallel.ep",
            "experts over tensor parallel ranks alone are not described; give parallel.dp or parallel.cp");
    else if (job->parallel_pp > 1 && strcmp(job->values[TIDE_SET_parallel_schedule], "DualPipeV") == 0)
        tide_fail_setting(
            m, TIDE_ERR_UNSUPPORTED, "parallel.schedule",
            "torchtitan overlaps the exchange of tokens with passes of DualPipeV, which is not described; "
            "use ZBVZeroBubble");
    return !m->has_failed;
}

static void tell_rows(tide_model *model, int64_t rows) {
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (!tide_is_torchtitan_expert(model, i)) continue;
        tide_instance *of = &model->instances[i];
        of->slots[tide_attribute_slot(of->of, TIDE_TEXT("rows"))] = tide_of_int(rows);
    }
}

void tide_torchtitan_tell_rows(tide_model *model, const tide_job *job) {
    tide_machine *m = model->m;
    bool has_experts = false;
    if (!check_own_ranks(m, job)) return;
    for (uint32_t i = 1; i < model->instance_count; i++)
        has_experts = has_experts || tide_is_torchtitan_expert(model, i);
    if (!has_experts) {
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.ep", "no layer has experts; leave it out");
        return;
    }
    long long experts = tide_model_size(model, "num_experts").integer;
    tell_rows(model, rows_of_micro_batch(job, tide_model_size(model, "top_k").integer));
    if (experts % job->parallel_ep)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep",
                          "\"shape '[%lld, -1]' is invalid for input of size %lld\": experts do not divide into expert "
                          "parallel ranks",
                          (long long)job->parallel_ep, experts);
    else if (tide_job_expert_tensor_ranks(job) > 1)
        tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.etp",
                    "PyTorch gathers masks of experts' weights in an order by the cost of each, while they are drawn: "
                    "another one moves the peak by up to 1 %",
                    NULL);
}

void tide_torchtitan_distribute_experts(tide_wrapper *w) {
    tide_model *model = w->model;
    int64_t within = tide_job_cuts_torchtitan_experts(w->job) ? tide_job_expert_tensor_ranks(w->job) : 1;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (!tide_is_torchtitan_expert(model, row->module)) continue;
        model->m->module = row->module;
        if (within > 1)
            tide_dtensor_distribute(model->m, row->tensor,
                                    &(tide_distribute){.dim = tide_cut_dim(model, row),
                                                       .ranks = within,
                                                       .factor = TIDE_FACTOR_PARAMETER,
                                                       .is_on_meta = model->state.is_on_meta});
        tide_dtensor_distribute(model->m, row->tensor,
                                &(tide_distribute){.ranks = w->job->parallel_ep,
                                                   .factor = TIDE_FACTOR_PARAMETER,
                                                   .is_on_meta = model->state.is_on_meta});
    }
    model->m->module = 0;
}

/* _is_recomputation_enabled: a block in a checkpoint_wrapper() counts its tokens twice. */
static bool is_wrapped(const tide_job *job, const tide_instance *block) {
    return job->parallel_ac != TIDE_parallel_ac_none && !block->skips_checkpoint;
}

void tide_torchtitan_balance_experts(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    tide_function *update = tide_function_find(model->descriptions, NULL, TIDE_TEXT("titan_update_expert_bias"));
    tide_value tokens = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}, twice = tokens;
    twice.list = tide_list_new(m);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_tensor *counted =
            tensor_of(model, i, tide_job_has_torchtitan_models(w->job) ? "tokens_per_expert" : "tokens_per_expert_E");
        if (!counted || (w->is_absent && w->is_absent[i])) continue;
        const tide_instance *block = &model->instances[model->instances[i].parent];
        tide_list_push(m, tokens.list, tide_of_tensor(tide_alias(m, (tide_tensor *)counted)));
        tide_list_push(m, twice.list, tide_of_bool(is_wrapped(w->job, block)));
    }
    m->module = 0;
    const tide_value arguments[] = {tokens, twice};
    if (update && tokens.list->count)
        tide_value_release(m, tide_model_run(model, update, arguments, TIDE_COUNT_OF(arguments)));
    tide_value_release(m, tokens);
    tide_value_release(m, twice);
    m->module = m->statement = 0;
}
