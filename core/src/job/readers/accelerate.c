/* SPDX-License-Identifier: Apache-2.0 */
/* `accelerate config`: its own keys, and the plugins for DeepSpeed and FSDP that it creates. */
#include "job/readers/claims.h"

#include <string.h>

#include "base/units.h"

/* ---- accelerate.utils.DeepSpeedPlugin ---- */

static const tide_key_row plugin_rows[] = {
    KEY_SAYS("deepspeed_config_file", deepspeed, ""),
    KEY_SAYS("zero_stage", zero_stage, ""),
    KEY_SETS("gradient_accumulation_steps", grad_accum, "auto="),
    KEY_SAYS("gradient_clipping", zero_clip, ""),
    KEY_SETS("offload_optimizer_device", parallel_offload_optimizer, ""),
    KEY_SETS("offload_param_device", parallel_offload_param, ""),
    KEY_SETS("zero3_init_flag", parallel_zero_init, ""),
    KEY_MATTERS("deepspeed_moe_layer_cls_names", "gathers whole modules at once", ""),
    KEY_MATTERS("enable_msamp", "computes in fp8", ""),
    KEY_NEUTRAL("*"),
};

/* DeepSpeedPlugin._deepspeed_config_checks: with a DeepSpeed file, accelerate's own keys have no effect. */
static bool is_plugin_overruled(tide_claims *c, const tide_json *section, const char *above) {
    if (!c->of_deepspeed.root) return false;
    const char *file = c->of_deepspeed.summary->name, *list = "";
    for (const tide_json *entry = section->first; entry; entry = entry->next) {
        const tide_key_row *row = tide_key_find(&tide_deepspeed_plugin_keys, entry->key);
        const char *key = tide_format(c->arena, "%s%s", above, tide_shown(c->arena, entry->key)),
                   *value = tide_argument_value(c->arena, entry);
        bool says = row && (row->rule == TIDE_RULE_SETS || row->rule == TIDE_RULE_SAYS);
        if (!says || row->fact == TIDE_FACT_deepspeed) {
            tide_claims_note(c, key, TIDE_KEY_IGNORED, value, NULL);
            continue;
        }
        tide_claims_note(c, key, TIDE_KEY_OVERRULED, value, tide_format(c->arena, "%s is used", file));
        list = tide_format(c->arena, "%s%s%s", list, *list ? ", " : "", tide_shown(c->arena, entry->key));
    }
    if (*list)
        tide_report(
            c->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, tide_claims_place(c, "deepspeed_config"),
            tide_format(c->arena, "%s also configures DeepSpeed (%s): %s is used", c->at->summary->name, list, file),
            "keep these in one file");
    return true;
}

const tide_key_table tide_deepspeed_plugin_keys = {
    .rows = plugin_rows, .count = TIDE_COUNT_OF(plugin_rows), .is_overruled = is_plugin_overruled};

/* ---- fsdp_config of both: accelerate.utils.FullyShardedDataParallelPlugin, TrainingArguments._process_fsdp_args ----
 */

static const tide_key_row fsdp_rows[] = {
    KEY_SAYS("version", fsdp_version, ""),
    KEY_SAYS("sharding_strategy", fsdp_strategy, ""),
    KEY_SAYS("reshard_after_forward", fsdp_reshard, ""),
    KEY_SAYS("auto_wrap_policy", fsdp_policy, ""),
    KEY_SETS("offload_params", parallel_offload, ""),
    KEY_SETS("cpu_offload", parallel_offload, ""),
    KEY_SETS("offload", parallel_offload, ""),
    KEY_SETS("backward_prefetch", parallel_backward_prefetch,
             "no_prefetch=none|1=BACKWARD_PRE|2=BACKWARD_POST|backward_pre=BACKWARD_PRE|backward_post=BACKWARD_POST"),
    KEY_SETS("backward_prefetch_policy", parallel_backward_prefetch,
             "no_prefetch=none|backward_pre=BACKWARD_PRE|backward_post=BACKWARD_POST"),
    KEY_SETS("forward_prefetch", parallel_forward_prefetch, ""),
    KEY_SETS("use_orig_params", parallel_use_orig_params, ""),
    KEY_SETS("sync_module_states", parallel_sync_module_states, ""),
    KEY_SETS("limit_all_gathers", parallel_limit_all_gathers, ""),
    KEY_SAYS("activation_checkpointing", fsdp_checkpointing, ""),
    KEY_MATTERS("activation_checkpointing_offload", "keeps activations on the host", ""),
    KEY_MATTERS("min_num_params", "wraps modules by size", "0"),
    KEY_MATTERS("ignored_modules", "leaves modules out", ""),
    KEY_MATTERS("xla*", "is for TPUs", ""),
    KEY_MATTERS("mixed_precision_policy", "sets other types", ""),
    KEY_SETS("transformer_layer_cls_to_wrap|transformer_cls_names_to_wrap", parallel_transformer_cls_names_to_wrap, ""),
    KEY_SAYS("cpu_ram_efficient_loading", fsdp_ram_efficient, ""),
    KEY_SAYS("state_dict_type", state_dict_type, ""),
    KEY_NEUTRAL("final_state_dict_type"),
};

const tide_key_table tide_fsdp_keys = {.rows = fsdp_rows, .count = TIDE_COUNT_OF(fsdp_rows), .prefix = "fsdp_"};

const tide_reader tide_fsdp_reader = {
    .title = "an FSDP configuration",
    .marks = "fsdp_transformer_layer_cls_to_wrap|transformer_layer_cls_to_wrap|fsdp_version|fsdp_sharding_strategy",
    .keys = &tide_fsdp_keys,
    .precedence = 1};

/* ---- accelerate.parallelism_config.ParallelismConfig ---- */

static const tide_key_row parallelism_rows[] = {
    KEY_SAYS("dp_shard_size", dp_shard, ""),
    KEY_SAYS("dp_replicate_size", dp_replicate, ""),
    KEY_SAYS("tp_size", tensor_ranks, ""),
    KEY_SAYS("cp_size", context_ranks, ""),
    KEY_SETS("cp_comm_strategy", parallel_rotate, ""),
    KEY_SAYS("sp_size", sequence_ranks, ""),
    KEY_NEUTRAL("tp_*"),
    KEY_NEUTRAL("cp_*"),
    KEY_NEUTRAL("sp_*"),
};

static const tide_key_table parallelism_keys = {
    .rows = parallelism_rows, .count = TIDE_COUNT_OF(parallelism_rows), .prefix = "parallelism_config_"};

/* ---- accelerate config ---- */

static const tide_key_row accelerate_rows[] = {
    KEY_SAYS("distributed_type", distributed, ""),
    KEY_SAYS("num_processes", processes, "-1="),
    KEY_SAYS("num_machines", machines, ""),
    KEY_SAYS("mixed_precision", mixed, "no=none|false=none"),
    KEY_HOLDS("deepspeed_config", tide_deepspeed_plugin_keys),
    KEY_HOLDS("fsdp_config", tide_fsdp_keys),
    KEY_MATTERS("megatron_lm_config", "trains with Megatron-LM", ""),
    KEY_HOLDS("parallelism_config", parallelism_keys),
    KEY_MATTERS("fp8_config", "computes in fp8", ""),
    KEY_MATTERS("dynamo_config", "fuses kernels", ""),
    KEY_MATTERS("dynamo_backend", "fuses kernels", "no"),
    KEY_MATTERS("use_cpu", "does not train on a GPU", ""),
    KEY_NEUTRAL("compute_environment"),
    KEY_NEUTRAL("machine_rank"),
    KEY_NEUTRAL("gpu_ids"),
    KEY_NEUTRAL("main_*"),
    KEY_NEUTRAL("rdzv_backend"),
    KEY_NEUTRAL("same_network"),
    KEY_NEUTRAL("enable_cpu_affinity"),
    KEY_NEUTRAL("downcast_bf16"),
    KEY_NEUTRAL("tpu_*"),
    KEY_NEUTRAL("mpirun_config"),
    KEY_NEUTRAL("command*"),
    KEY_NEUTRAL("fp16"),
    KEY_NEUTRAL("debug"),
};

const tide_key_table tide_accelerate_keys = {.rows = accelerate_rows, .count = TIDE_COUNT_OF(accelerate_rows)};

const tide_reader tide_accelerate_reader = {.title = "an Accelerate configuration",
                                            .marks = "distributed_type|compute_environment",
                                            .keys = &tide_accelerate_keys,
                                            .refuses_unknown = "accelerate"};
