/* SPDX-License-Identifier: Apache-2.0 */
/* What Megatron-LM's arguments refuse in each other: training/arguments.py, validate_args(); TransformerConfig's and
 * OptimizerConfig's __post_init__(). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/megatron.h"

/* Arguments that contradict one another: the key to blame, and the program's words. */
typedef struct contradiction {
    bool is_there;
    const char *key, *words, *remedy;
} contradiction;

static bool is_said(const tide_claims *c, tide_setting_id setting, const char *value) {
    const char *said = tide_known_of(c, setting);
    return said && strcmp(said, value) == 0;
}

static bool is_switched_on(const tide_claims *c, tide_setting_id setting) {
    return is_said(c, setting, "true");
}

static int64_t size_claimed(const tide_claims *c, tide_setting_id setting, int64_t otherwise) {
    const char *said = tide_known_of(c, setting);
    int64_t number = otherwise;
    return said && tide_text_to_i64(&number, tide_text_of(said)) ? number : otherwise;
}

static void refuse_contradictions(tide_claims *c, const contradiction *rows, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (rows[i].is_there) tide_claims_refuse(c, TIDE_ERR_CONFLICT, rows[i].key, rows[i].words, rows[i].remedy);
}

static void check_recomputation(tide_claims *c) {
    bool is_full = is_said(c, TIDE_SET_parallel_recompute, "full"),
         is_selective = is_said(c, TIDE_SET_parallel_recompute, "selective"),
         distributes = is_switched_on(c, TIDE_SET_parallel_distribute_saved_activations),
         has_method = tide_known_of(c, TIDE_SET_parallel_recompute_method),
         has_layers = tide_known_of(c, TIDE_SET_parallel_recompute_layers);
    const contradiction rows[] = {
        {distributes && size_claimed(c, TIDE_SET_parallel_tp, 1) == 1, "distribute_saved_activations",
         "\"can distribute recomputed activations only across tensor model parallel groups\"", "leave it out"},
        {distributes && !is_full, "distribute_saved_activations",
         "\"distributed recompute activations is only application to full recompute granularity\"", "leave it out"},
        {is_selective && has_method, "recompute_method",
         "\"recompute method is not yet supported for selective recomputing granularity\"", "leave it out"},
        {is_selective && has_layers, "recompute_num_layers",
         "\"When using recompute_granularity: selective recompute_num_layers must be None.\"", "leave it out"},
        {is_full && has_method && !has_layers, "recompute_granularity",
         "\"When using recompute_granularity: full recompute_num_layers must be between 1 and "
         "num_layers_per_pipeline_rank\"",
         "give --recompute-num-layers"}};
    refuse_contradictions(c, rows, TIDE_COUNT_OF(rows));
}

static void check_optimizer(tide_claims *c, const tide_json *root) {
    static const struct {
        const char *key;
        tide_setting_id setting;
    } types[] = {{"main_grads_dtype", TIDE_SET_parallel_main_grads_dtype},
                 {"main_params_dtype", TIDE_SET_parallel_main_params_dtype},
                 {"exp_avg_dtype", TIDE_SET_parallel_exp_avg_dtype},
                 {"exp_avg_sq_dtype", TIDE_SET_parallel_exp_avg_sq_dtype}};
    bool is_aware = is_switched_on(c, TIDE_SET_parallel_precision_aware),
         gathers = is_switched_on(c, TIDE_SET_parallel_overlap_param_gather);
    const contradiction rows[] = {
        {gathers && !is_switched_on(c, TIDE_SET_parallel_distributed_optimizer), "overlap_param_gather",
         "\"--overlap-param-gather only supported with distributed optimizer, megatron fsdp, or dist_muon\"",
         "give --use-distributed-optimizer"},
        {gathers && !is_switched_on(c, TIDE_SET_parallel_overlap_grad_reduce), "overlap_param_gather",
         "\"Must use --overlap-param-gather with --overlap-grad-reduce\"", "give --overlap-grad-reduce"},
        {tide_option_is_on(root, "optimizer_cpu_offload", false) && !is_aware, "optimizer_cpu_offload",
         "\"The optimizer cpu offload must be used in conjunction with `--use-precision-aware-optimizer`\"",
         "give --use-precision-aware-optimizer"},
        {tide_option_is_on(root, "accumulate_allreduce_grads_in_fp32", false) &&
             tide_known_of(c, TIDE_SET_parallel_main_grads_dtype) &&
             !is_said(c, TIDE_SET_parallel_main_grads_dtype, "fp32"),
         "main_grads_dtype", "\"--main-grads-dtype can only be fp32 when --accumulate-allreduce-grads-in-fp32 is set\"",
         "leave one out"},
        {tide_option_is_on(root, "fp16", false) && tide_option_is_on(root, "bf16", false), "fp16",
         "\"Only one of self.fp16 and self.bf16 should be True.\"", "leave one out"}};
    refuse_contradictions(c, rows, TIDE_COUNT_OF(rows));
    for (size_t i = 0; i < TIDE_COUNT_OF(types) && !is_aware; i++)
        if (tide_known_of(c, types[i].setting) && !is_said(c, types[i].setting, "fp32"))
            tide_claims_refuse(
                c, TIDE_ERR_CONFLICT, types[i].key,
                tide_format(c->arena, "\"%s can only be fp32 when not using precision-aware optimizer\"", types[i].key),
                "give --use-precision-aware-optimizer");
}

static void check_stages(tide_claims *c, const tide_json *root) {
    int64_t stages = size_claimed(c, TIDE_SET_parallel_pp, 1), layers = tide_option_size(root, "num_layers", 0),
            chunk = tide_option_size(root, "num_layers_per_virtual_pipeline_stage", 0),
            virtual_stages = size_claimed(c, TIDE_SET_parallel_virtual_stages, 1);
    bool is_uneven = tide_json_at(root, "decoder_first_pipeline_num_layers") ||
                     tide_json_at(root, "decoder_last_pipeline_num_layers"),
         has_layout = tide_json_at(root, "pipeline_model_parallel_layout"),
         has_chunks = tide_json_at(root, "num_virtual_stages_per_pipeline_rank"),
         divides = layers % stages == 0 && (!chunk || layers / stages % chunk == 0);
    const contradiction rows[] = {
        {!!chunk + has_chunks + has_layout > 1, "num_layers_per_virtual_pipeline_stage",
         "\"No more than one of the following arguments can be set at the same time: "
         "--num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank, "
         "--pipeline-model-parallel-layout.\"",
         "leave the others out"},
        {chunk && is_uneven, "num_layers_per_virtual_pipeline_stage",
         "\"please use --num-virtual-stages-per-pipeline-rank to specify virtual pipeline parallel degree when enable "
         "uneven pipeline parallelism\"",
         NULL},
        {chunk && layers && !is_uneven && !divides, "num_layers_per_virtual_pipeline_stage",
         "\"number of layers per pipeline stage must be divisible number of layers per virtual pipeline stage\"",
         "give a divisor"},
        {virtual_stages > 1 && stages <= 2 && is_said(c, TIDE_SET_parallel_overlap_p2p, "false"),
         "no_overlap_p2p_communication",
         "\"When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size "
         "should be greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication "
         "batch\"",
         "leave it out"}};
    refuse_contradictions(c, rows, TIDE_COUNT_OF(rows));
}

static void check_model(tide_claims *c, const tide_json *root) {
    int64_t positions = tide_option_size(root, "max_position_embeddings", 0), seq = size_claimed(c, TIDE_SET_seq, 0);
    bool is_local = is_said(c, TIDE_SET_parallel_impl, "local"),
         is_latent = tide_option_is_on(root, "multi_latent_attention", false);
    const contradiction rows[] = {
        {positions && positions < seq, "max_position_embeddings",
         tide_format(c->arena,
                     "\"max_position_embeddings (%" PRId64 ") must be greater than or equal to seq_length (%" PRId64
                     ").\"",
                     positions, seq),
         "give --max-position-embeddings"},
        {is_local && tide_option_is_on(root, "apply_layernorm_1p", false), "apply_layernorm_1p",
         "\"zero_centered_gamma not supported by torch LayerNorm\"", "leave it out"},
        {is_latent && tide_option_is_on(root, "group_query_attention", false), "group_query_attention",
         "\"Group query attention is mutually exclusive with multi latent attention.\"", "leave one out"},
        {!is_latent && strcmp(tide_option_word(root, "rope_type", "rope"), "rope") != 0, "rope_type",
         "\"Common attention only support rope_type=\"rope\"\"", "leave it out"}};
    refuse_contradictions(c, rows, TIDE_COUNT_OF(rows));
}

void tide_megatron_check_arguments(tide_claims *c, const tide_json *root) {
    check_recomputation(c);
    check_optimizer(c, root);
    check_stages(c, root);
    check_model(c, root);
}
