/* SPDX-License-Identifier: Apache-2.0 */
/* TOML of torchtitan 0.1 and 0.2 (torchtitan/config/job_config.py). It has its own models, which are not described;
 * with trainer=none, transformers' modules are played with the same settings instead, as they are where its
 * transformers_modeling_backend names a model. */
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

static const tide_key_row titan_model_rows[] = {
    KEY_SAYS("name", titan_model, ""),
    KEY_SAYS("flavor", model, ""),
    KEY_MATTERS("converters", "computes in fp8", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_hf_rows[] = {KEY_SAYS("model", titan_hf_model, ""), KEY_NEUTRAL("*")};

static const tide_key_row titan_optimizer_rows[] = {
    KEY_SETS("name", optimizer, "adamw=adamw_fused|adam=adam_fused"),
    KEY_REFUSED("early_step_in_backward", "steps in the backward pass", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_training_rows[] = {
    KEY_SETS("local_batch_size|batch_size", batch, ""),
    KEY_SETS("seq_len", seq, ""),
    KEY_SETS("max_norm", clip, ""),
    KEY_SETS("dtype", dtype, ""),
    KEY_SETS("mixed_precision_param", parallel_param_dtype, "bfloat16=bf16|float32=fp32"),
    KEY_SETS("mixed_precision_reduce", parallel_reduce_dtype, "bfloat16=bf16|float32=fp32"),
    KEY_REFUSED("enable_cpu_offload", "moves parameters to the host", ""),
    KEY_MATTERS("global_batch_size", "accumulates gradients over micro-batches (parallel.microbatches)", "-1"),
    KEY_MATTERS("compile", "fuses kernels", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_parallelism_rows[] = {
    KEY_REFUSED("data_parallel_replicate_degree", "replicates shards across groups of ranks", "1"),
    KEY_SETS("data_parallel_shard_degree", parallel_dp, "-1="),
    KEY_SETS("fsdp_reshard_after_forward", parallel_reshard_after_forward, "default=|always=true|never=false"),
    KEY_SETS("tensor_parallel_degree", parallel_tp, ""),
    KEY_SETS("disable_loss_parallel", parallel_loss_parallel, "true=false|false=true"),
    KEY_MATTERS("enable_async_tensor_parallel", "overlaps products and collectives", ""),
    KEY_SETS("pipeline_parallel_degree", parallel_pp, ""),
    KEY_SETS("pipeline_parallel_schedule", parallel_schedule, ""),
    KEY_REFUSED("pipeline_parallel_schedule_csv", "has a schedule of its own", ""),
    KEY_NEUTRAL("module_fqns_per_model_part"), /* settle_stages() */
    KEY_REFUSED("pipeline_parallel_split_points|pipeline_parallel_layers_per_stage",
                "determines where stages are split", ""),
    KEY_SETS("context_parallel_degree", parallel_cp, ""),
    KEY_SETS("context_parallel_rotate_method", parallel_rotate, ""),
    KEY_SETS("expert_parallel_degree", parallel_ep, ""),
    KEY_REFUSED("expert_tensor_parallel_degree", "shards each expert over ranks", "1"),
    KEY_REFUSED("expert_parallel_comm_backend", "exchanges tokens through buffers of its own", "standard"),
    KEY_MATTERS("enable_compiled_autograd", "fuses kernels", ""),
    KEY_NEUTRAL("pipeline_parallel_microbatch_size|pipeline_parallel_first_stage_less_layers"),
    KEY_NEUTRAL("pipeline_parallel_last_stage_less_layers"),
};

static const tide_key_row titan_ac_rows[] = {
    KEY_SETS("mode", parallel_ac, "selective=every2"),
    KEY_NEUTRAL("selective_ac_option"),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_compile_rows[] = {
    KEY_MATTERS("enable", "fuses kernels", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_ft_rows[] = {
    KEY_MATTERS("enable", "trains replicas by torchft", ""),
    KEY_NEUTRAL("*"),
};

#define SECTION(name)                                                                                                  \
    static const tide_key_table titan_##name##_keys = {.rows = titan_##name##_rows,                                    \
                                                       .count = TIDE_COUNT_OF(titan_##name##_rows)}
SECTION(model);
SECTION(hf);
SECTION(optimizer);
SECTION(training);
SECTION(parallelism);
SECTION(ac);
SECTION(compile);
SECTION(ft);
#undef SECTION

static const tide_key_row titan_rows[] = {
    KEY_HOLDS("model", titan_model_keys),
    KEY_HOLDS("hf_transformers", titan_hf_keys),
    KEY_HOLDS("optimizer", titan_optimizer_keys),
    KEY_HOLDS("training", titan_training_keys),
    KEY_HOLDS("parallelism|experimental", titan_parallelism_keys),
    KEY_HOLDS("activation_checkpoint", titan_ac_keys),
    KEY_HOLDS("compile", titan_compile_keys),
    KEY_HOLDS("fault_tolerance", titan_ft_keys),
    KEY_NEUTRAL("job|profiling|metrics|lr_scheduler|checkpoint|comm|memory_estimation|validation"),
    KEY_NEUTRAL("float8|mx|quantize|debug"),
};

static const tide_key_table titan_keys = {.rows = titan_rows, .count = TIDE_COUNT_OF(titan_rows)};

/* The model of transformers that transformers_modeling_backend runs whole; NULL: the job is of another. */
static const char *hf_model(const tide_claims *c) {
    bool is_whole = tide_fact_is(c, TIDE_FACT_titan_model, "transformers_modeling_backend") &&
                    tide_fact_is(c, TIDE_FACT_model, "full");
    return is_whole ? tide_fact_of(c, TIDE_FACT_titan_hf_model) : NULL;
}

/* model.name and model.flavor as in the catalogue. */
static const char *titan_model(const tide_claims *c) {
    static const char *const models[][2] = {{"llama3/8B", "llama-3.1-8b"},
                                            {"llama3/70B", "llama-3.1-70b"},
                                            {"llama3/405B", "llama-3.1-405b"},
                                            {"qwen3/0.6B", "qwen3-0.6b"},
                                            {"qwen3/1.7B", "qwen3-1.7b"},
                                            {"qwen3/4B", "qwen3-4b"},
                                            {"qwen3/8B", "qwen3-8b"},
                                            {"qwen3/14B", "qwen3-14b"},
                                            {"qwen3/32B", "qwen3-32b"},
                                            {"qwen3/30B-A3B", "qwen3-30b-a3b"},
                                            {"deepseek_v3/16B", "deepseek-v2-lite"},
                                            {"deepseek_v3/671B", "deepseek-v3"}};
    const char *name = tide_fact_of(c, TIDE_FACT_titan_model), *flavor = tide_fact_of(c, TIDE_FACT_model);
    if (hf_model(c)) return hf_model(c);
    const char *both = tide_format(c->arena, "%s/%s", name ? name : "llama3", flavor ? flavor : "");
    for (size_t i = 0; i < TIDE_COUNT_OF(models); i++)
        if (strcmp(models[i][0], both) == 0) return models[i][1];
    return NULL;
}

static const tide_json *titan_at(const tide_json *root, const char *section, const char *key) {
    return tide_json_at(tide_json_at(root, section), key);
}

static int64_t titan_int(const tide_json *root, const char *section, const char *key, int64_t otherwise) {
    const tide_json *value = titan_at(root, section, key);
    return tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer && value->integer > 0 ? value->integer
                                                                                            : otherwise;
}

static void replace(tide_claims *c, tide_setting_id id, const char *value) {
    c->settings[id] = NULL;
    tide_imply(c, id, value);
}

static void warn_of_titan(tide_claims *c, const char *key, const char *message) {
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, key), message, NULL);
}

static void settle_stages(tide_claims *c, const tide_json *root, int64_t stages) {
    const tide_json *parts = titan_at(root, "parallelism", "module_fqns_per_model_part"), *other = NULL;
    const char *model = titan_model(c);
    if (!parts) parts = titan_at(root, "experimental", "module_fqns_per_model_part");
    for (int i = 0; i < 2 && !other; i++) /* the embedding and the head counted as layers */
        other = titan_at(root, "parallelism",
                         i ? "pipeline_parallel_last_stage_less_layers" : "pipeline_parallel_first_stage_less_layers");
    const tide_json *config = model && !other && !tide_claims_have_model(c) && !c->arguments->overrides
                                  ? tide_catalogue_config(c->arena, model, c->diags)
                                  : NULL,
                    *layers = tide_json_at(config, "num_hidden_layers");
    const char *even = layers ? tide_torchtitan_even_stages(c->arena, layers->integer, stages) : NULL;
    if (parts && parts->kind != TIDE_JSON_NULL && parts->first)
        tide_torchtitan_settle_stages(c, parts);
    else if (even)
        tide_imply(c, TIDE_SET_parallel_stage_layers, even);
    else
        warn_of_titan(c, "parallelism",
                      "stages are split evenly here, whereas torchtitan counts the embedding and the head as "
                      "layers: give parallel.stage_layers");
}

/* torchtitan/distributed/pipeline_parallel.py: build_pipeline_schedule. */
static void settle_pipeline(tide_claims *c, const tide_json *root) {
    int64_t batch = titan_int(root, "training", "local_batch_size", titan_int(root, "training", "batch_size", 8)),
            micro = titan_int(root, "parallelism", "pipeline_parallel_microbatch_size", 1);
    const tide_json *schedule = titan_at(root, "parallelism", "pipeline_parallel_schedule");
    bool has_two = tide_json_is(schedule, TIDE_JSON_STRING) && !tide_json_is_text(schedule, "1F1B") &&
                   !tide_json_is_text(schedule, "GPipe");
    if (batch % micro)
        tide_error(c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "parallelism"),
                   tide_format(c->arena, "local_batch_size %lld is not a multiple of the micro-batches' %lld rows",
                               (long long)batch, (long long)micro),
                   NULL);
    replace(c, TIDE_SET_batch, tide_format(c->arena, "%lld", (long long)micro));
    tide_imply(c, TIDE_SET_parallel_microbatches, tide_format(c->arena, "%lld", (long long)(batch / micro)));
    if (has_two) tide_imply(c, TIDE_SET_parallel_chunks, "2");
    settle_stages(c, root, titan_int(root, "parallelism", "pipeline_parallel_degree", 1) * (has_two ? 2 : 1));
}

static void settle_optimizer(tide_claims *c, const tide_json *root) {
    const tide_json *how = titan_at(root, "optimizer", "implementation");
    bool is_given = tide_json_is(how, TIDE_JSON_STRING) && !tide_json_is_text(how, "fused");
    const char *name = tide_json_is_text(titan_at(root, "optimizer", "name"), "Adam") ? "adam" : "adamw",
               *form = tide_json_is_text(how, "foreach") ? "" : "_single";
    if (is_given) replace(c, TIDE_SET_optimizer, tide_format(c->arena, "%s%s", name, form));
}

static void settle_checkpoints(tide_claims *c, const tide_json *root) {
    const tide_json *mode = titan_at(root, "activation_checkpoint", "mode"),
                    *option = titan_at(root, "activation_checkpoint", "selective_ac_option");
    bool is_selective = !mode || tide_json_is_text(mode, "selective");
    if (!is_selective || !option || tide_json_is_text(option, "2")) return;
    if (tide_json_is_text(option, "op"))
        replace(c, TIDE_SET_parallel_ac, "op");
    else if (tide_json_is_text(option, "1"))
        replace(c, TIDE_SET_parallel_ac, "full");
    else
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "activation_checkpoint"),
                   "selective_ac_option: checkpoints of other blocks than every one or two are not described",
                   "near to it: \"2\"");
}

static void settle_titan_job(tide_claims *c, const tide_json *root) {
    static const struct {
        tide_setting_id id;
        const char *value;
    } defaults[] = {{TIDE_SET_batch, "8"},
                    {TIDE_SET_seq, "2048"},
                    {TIDE_SET_clip, "1.0"},
                    {TIDE_SET_dtype, "fp32"},
                    {TIDE_SET_parallel_param_dtype, "bf16"},
                    {TIDE_SET_parallel_reduce_dtype, "fp32"},
                    {TIDE_SET_optimizer, "adamw_fused"},
                    {TIDE_SET_parallel_ac, "every2"}};
    bool is_pipeline = titan_int(root, "parallelism", "pipeline_parallel_degree", 1) > 1,
         is_cut = titan_int(root, "parallelism", "tensor_parallel_degree", 1) > 1;
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    if (c->facts[TIDE_FACT_titan_model]) c->facts[TIDE_FACT_titan_model]->effect = TIDE_KEY_USED;
    settle_optimizer(c, root);
    settle_checkpoints(c, root);
    if (is_pipeline)
        settle_pipeline(c, root);
    else
        tide_imply(c, TIDE_SET_parallel_microbatches, "1");
    c->inputs->asked_model = titan_model(c); /* stages are those of its layers, unless another model was given */
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (is_cut) tide_imply(c, TIDE_SET_parallel_sequence_parallel, "true");
    if (!is_cut) c->settings[TIDE_SET_parallel_loss_parallel] = NULL;
    if (is_cut) tide_imply(c, TIDE_SET_parallel_loss_parallel, "true");
    for (size_t i = 0; i < TIDE_COUNT_OF(defaults); i++) tide_imply(c, defaults[i].id, defaults[i].value);
    bool has_ranks = c->arguments->asked[TIDE_SET_parallel_dp] || c->arguments->asked_world_size;
    if (titan_int(root, "parallelism", "data_parallel_shard_degree", 0) == 0 && !has_ranks)
        warn_of_titan(c, "parallelism",
                      "data_parallel_shard_degree means the remaining ranks: give parallel.dp; 1 is assumed");
}

static void settle_titan(tide_claims *c) {
    const char *asked = c->arguments->asked_trainer;
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_torchtitan_reader) file = file->next;
    if (!file) return;
    c->at = file;
    tide_imply(c, TIDE_SET_parallel_kind, "native");
    if (c->facts[TIDE_FACT_titan_hf_model]) c->facts[TIDE_FACT_titan_hf_model]->effect = TIDE_KEY_USED;
    if (!hf_model(c) && (!asked || strcmp(asked, "none") != 0)) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "model"),
                   tide_format(c->arena, "%s is a job for torchtitan, whose own models are not described",
                               file->summary->name),
                   "give trainer=none for transformers' modules with its settings (parallel.kind=native)");
        return;
    }
    warn_of_titan(c, "model",
                  hf_model(c) ? "torchtitan's changes to transformers' modules are not described: they are played as "
                                "they are, with the job's settings"
                              : "torchtitan's models are not described: transformers' modules are played with the "
                                "job's settings");
    settle_titan_job(c, file->root);
}

static bool is_of_torchtitan(const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model");
    return tide_json_at(root, "training") && tide_json_is(tide_json_at(root, "parallelism"), TIDE_JSON_OBJECT) &&
           (!model || model->kind == TIDE_JSON_OBJECT);
}

const tide_reader tide_torchtitan_reader = {.title = "a job of torchtitan",
                                            .recognises = is_of_torchtitan,
                                            .keys = &titan_keys,
                                            .program = TIDE_PROGRAM_torchtitan,
                                            .trains = true,
                                            .precedence = 2,
                                            .settle = settle_titan};
