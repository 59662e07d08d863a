/* SPDX-License-Identifier: Apache-2.0 */
/* TOML of torchtitan 0.1 and 0.2 (torchtitan/config/job_config.py), and the command that starts it. Its models and its
 * trainer are those of 0.2.2, the last that reads TOML; with trainer=none, transformers' modules are played with the
 * same settings instead, as they are where its transformers_modeling_backend names a model. */
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
    KEY_NEUTRAL("global_batch_size"), /* settle_micro_batches() */
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
    KEY_REFUSED("pipeline_parallel_split_points", "determines where stages are split", ""),
    KEY_SETS("context_parallel_degree", parallel_cp, ""),
    KEY_SETS("context_parallel_rotate_method", parallel_rotate, ""),
    KEY_SETS("expert_parallel_degree", parallel_ep, ""),
    KEY_SETS("expert_tensor_parallel_degree", parallel_etp, "1="),
    KEY_REFUSED("expert_parallel_comm_backend", "exchanges tokens through buffers of its own", "standard"),
    KEY_MATTERS("enable_compiled_autograd", "fuses kernels", ""),
    KEY_NEUTRAL("pipeline_parallel_microbatch_size|pipeline_parallel_first_stage_less_layers"),
    KEY_NEUTRAL("pipeline_parallel_last_stage_less_layers|pipeline_parallel_layers_per_stage"),
    KEY_MATTERS("pipeline_parallel_expert_parallel_overlap", "overlaps passes of a DualPipeV schedule", "true"),
    KEY_MATTERS("context_parallel_load_balancer", "divides sequences in another way", "headtail"),
};

static const tide_key_row titan_ac_rows[] = {
    KEY_SETS("mode", parallel_ac, "selective=every2"),
    KEY_NEUTRAL("selective_ac_option"),
    KEY_MATTERS("per_op_sac_force_recompute_mm_shapes_by_fqns", "recomputes other products", "moe.router.gate"),
    KEY_MATTERS("early_stop", "recomputes less of a block", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_compile_rows[] = {
    KEY_MATTERS("enable", "fuses kernels", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row titan_debug_rows[] = {
    KEY_MATTERS("moe_force_load_balance", "sends tokens to experts in turn", ""),
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
SECTION(debug);
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
    KEY_HOLDS("debug", titan_debug_keys),
    KEY_NEUTRAL("float8|mx|quantize"),
};

static const tide_key_table titan_keys = {.rows = titan_rows, .count = TIDE_COUNT_OF(titan_rows)};

/* The model of transformers that transformers_modeling_backend runs whole; NULL: the job is of another. */
static const char *hf_model(const tide_claims *c) {
    bool is_whole = tide_fact_is(c, TIDE_FACT_titan_model, "transformers_modeling_backend") &&
                    tide_fact_is(c, TIDE_FACT_model, "full");
    return is_whole ? tide_fact_of(c, TIDE_FACT_titan_hf_model) : NULL;
}

typedef struct titan_flavor {
    const char *name, *flavor, *model, *overrides;
} titan_flavor;

/* model.name and model.flavor; NULL: not described. */
static const titan_flavor *titan_flavor_of(const tide_claims *c) {
    static const titan_flavor flavors[] = {
#define TITAN_FLAVOR(name, flavor, model, overrides) {name, flavor, model, overrides},
#include "job/readers/keys/torchtitan_flavors.def"
#undef TITAN_FLAVOR
    };
    const char *name = tide_fact_of(c, TIDE_FACT_titan_model), *flavor = tide_fact_of(c, TIDE_FACT_model);
    for (size_t i = 0; i < TIDE_COUNT_OF(flavors); i++)
        if (strcmp(flavors[i].name, name ? name : "llama3") == 0 &&
            strcmp(flavors[i].flavor, flavor ? flavor : "debugmodel") == 0)
            return &flavors[i];
    return NULL;
}

static const char *why_not_described(const char *name, const char *flavor) {
    static const struct {
        const char *names, *flavors, *why;
    } rows[] = {
#define TITAN_UNDESCRIBED(name, flavor, why) {name, flavor, why},
#include "job/readers/keys/torchtitan_flavors.def"
#undef TITAN_UNDESCRIBED
    };
    size_t i = 0;
    while (!tide_text_matches_one(tide_text_of(name), rows[i].names) ||
           !tide_text_matches_one(tide_text_of(flavor), rows[i].flavors))
        i++;
    return rows[i].why;
}

/* An option of the command, or else a key of the file. */
static const tide_json *titan_at(const tide_claims *c, const char *section, const char *key) {
    const tide_json *found = NULL;
    for (const tide_claims_file *file = c->first; file; file = file->next) {
        bool is_command = file->reader == &tide_torchtitan_command_reader;
        if (!is_command && (found || file->reader != &tide_torchtitan_reader)) continue;
        const tide_json *here = tide_json_at(tide_json_at(file->root, section), key);
        if (here) found = here;
        if (here && is_command) return found;
    }
    return found;
}

static int64_t titan_int(const tide_claims *c, const char *section, const char *key, int64_t otherwise) {
    const tide_json *value = titan_at(c, section, key);
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

/* The layers of the job's model; 0: not known here. */
static int64_t layers_of_model(const tide_claims *c) {
    static const char key[] = "num_hidden_layers";
    for (uint32_t i = 0; i < c->arguments->override_count; i++) {
        int64_t given = 0;
        if (strcmp(c->arguments->overrides[i].path, key) == 0)
            return tide_text_to_i64(&given, tide_text_of(c->arguments->overrides[i].text)) ? given : 0;
    }
    const titan_flavor *flavor = titan_flavor_of(c);
    const char *model = hf_model(c) ? hf_model(c) : flavor ? flavor->model : NULL;
    const tide_json *config =
        model && !tide_claims_have_model(c) ? tide_catalogue_config(c->arena, model, c->diags) : NULL;
    const tide_json *layers = tide_json_at(config, key);
    return layers ? layers->integer : 0;
}

static void imply_chunks(tide_claims *c, int64_t chunks) {
    tide_imply(c, TIDE_SET_parallel_chunks, tide_format(c->arena, "%lld", (long long)chunks));
}

/* pipeline_llm(): the embedding and the head count as so many layers; layers_per_stage determines the number of
 * stages. */
static void settle_stages(tide_claims *c, int64_t ranks, bool has_two) {
    const tide_json *parts = titan_at(c, "parallelism", "module_fqns_per_model_part");
    int64_t first = titan_int(c, "parallelism", "pipeline_parallel_first_stage_less_layers", 1),
            last = titan_int(c, "parallelism", "pipeline_parallel_last_stage_less_layers", 1),
            per_stage = titan_int(c, "parallelism", "pipeline_parallel_layers_per_stage", 0),
            layers = layers_of_model(c), stages = ranks * (has_two ? 2 : 1);
    if (!parts) parts = titan_at(c, "experimental", "module_fqns_per_model_part");
    if (parts && parts->kind != TIDE_JSON_NULL && parts->first) {
        tide_torchtitan_settle_stages(c, parts);
        stages = 0;
        for (const tide_json *part = parts->first; part; part = part->next) stages++;
        if (stages > ranks) imply_chunks(c, stages / ranks);
        return;
    }
    if (per_stage && layers) stages = (layers + first + last + per_stage - 1) / per_stage;
    const char *even = layers ? tide_torchtitan_even_stages(c->arena, layers, stages, first, last) : NULL;
    if (stages % ranks || (stages > ranks) != has_two)
        tide_error(
            c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "parallelism"),
            tide_format(c->arena,
                        "\"Number of virtual stages (%lld) must be divisible by pipeline parallel size (%lld)\", "
                        "one for each rank or, with looped schedules, more",
                        (long long)stages, (long long)ranks),
            "give another pipeline_parallel_layers_per_stage");
    else if (even)
        tide_imply(c, TIDE_SET_parallel_stage_layers, even);
    else
        warn_of_titan(c, "parallelism",
                      "stages are split evenly here, whereas torchtitan counts the embedding and the head as "
                      "layers: give parallel.stage_layers");
    if (stages > ranks) imply_chunks(c, stages / ranks);
}

/* torchtitan/distributed/pipeline_parallel.py: build_pipeline_schedule. */
static void settle_pipeline(tide_claims *c) {
    int64_t batch = titan_int(c, "training", "local_batch_size", titan_int(c, "training", "batch_size", 8)),
            micro = titan_int(c, "parallelism", "pipeline_parallel_microbatch_size", 1);
    const tide_json *schedule = titan_at(c, "parallelism", "pipeline_parallel_schedule");
    bool has_two = tide_json_is(schedule, TIDE_JSON_STRING) && !tide_json_is_text(schedule, "1F1B") &&
                   !tide_json_is_text(schedule, "GPipe");
    if (batch % micro)
        tide_error(c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "parallelism"),
                   tide_format(c->arena, "local_batch_size %lld is not a multiple of the micro-batches' %lld rows",
                               (long long)batch, (long long)micro),
                   NULL);
    replace(c, TIDE_SET_batch, tide_format(c->arena, "%lld", (long long)micro));
    tide_imply(c, TIDE_SET_parallel_microbatches, tide_format(c->arena, "%lld", (long long)(batch / micro)));
    settle_stages(c, titan_int(c, "parallelism", "pipeline_parallel_degree", 1), has_two);
}

static void settle_optimizer(tide_claims *c) {
    const tide_json *how = titan_at(c, "optimizer", "implementation");
    bool is_given = tide_json_is(how, TIDE_JSON_STRING) && !tide_json_is_text(how, "fused");
    const char *name = tide_json_is_text(titan_at(c, "optimizer", "name"), "Adam") ? "adam" : "adamw",
               *form = tide_json_is_text(how, "foreach") ? "" : "_single";
    if (is_given) replace(c, TIDE_SET_optimizer, tide_format(c->arena, "%s%s", name, form));
}

static void settle_checkpoints(tide_claims *c) {
    const tide_json *mode = titan_at(c, "activation_checkpoint", "mode"),
                    *option = titan_at(c, "activation_checkpoint", "selective_ac_option");
    bool is_selective = !mode || tide_json_is_text(mode, "selective");
    if (!is_selective || !option || tide_json_is_text(option, "2")) return;
    if (tide_json_is_text(option, "op"))
        replace(c, TIDE_SET_parallel_ac, "op");
    else if (tide_json_is_text(option, "1") || tide_json_is_text(option, "0"))
        replace(c, TIDE_SET_parallel_ac, "full");
    else if (tide_json_is_text(option, "3") || tide_json_is_text(option, "4"))
        replace(c, TIDE_SET_parallel_ac, tide_format(c->arena, "every%s", option->text.at));
    else
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "activation_checkpoint"),
                   "selective_ac_option: checkpoints of other blocks than every first to fourth are not described",
                   "near to it: \"4\"");
}

/* ParallelDims: -1 stands for what the other dimensions leave of all ranks. 0: not known. */
static int64_t settle_titan_ranks(tide_claims *c) {
    int64_t world = tide_fact_int(c, TIDE_FACT_processes, 0), dp = 0,
            shards = titan_int(c, "parallelism", "data_parallel_shard_degree", 0),
            others = titan_int(c, "parallelism", "tensor_parallel_degree", 1) *
                     titan_int(c, "parallelism", "pipeline_parallel_degree", 1) *
                     titan_int(c, "parallelism", "context_parallel_degree", 1);
    const char *asked = c->arguments->asked[TIDE_SET_parallel_dp], *all = c->arguments->asked_world_size;
    if (asked && tide_text_to_i64(&dp, tide_text_of(asked))) return dp;
    if (all) tide_text_to_i64(&world, tide_text_of(all));
    if (shards && (!world || world == shards * others)) return shards;
    if (world && (shards || world % others)) {
        if (!all || shards)
            tide_error(c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "parallelism"),
                       tide_format(c->arena,
                                   "\"Invalid parallel dims: dp_replicate(1) * dp_shard(%lld) * cp * tp * pp(%lld) != "
                                   "WORLD_SIZE(%lld)\"",
                                   (long long)(shards ? shards : world / others), (long long)others, (long long)world),
                       NULL);
        return 0;
    }
    if (c->facts[TIDE_FACT_processes]) c->facts[TIDE_FACT_processes]->effect = TIDE_KEY_USED;
    if (world && !all) tide_imply(c, TIDE_SET_parallel_dp, tide_format(c->arena, "%lld", (long long)(world / others)));
    if (!world)
        warn_of_titan(c, "parallelism",
                      "data_parallel_shard_degree means the remaining ranks: give gpus=N, the number of all; 1 is "
                      "assumed");
    return world ? world / others : 1;
}

/* Trainer: gradient_accumulation_steps. */
static void settle_micro_batches(tide_claims *c, int64_t dp) {
    int64_t all = titan_int(c, "training", "global_batch_size", 0),
            of_ranks = dp * titan_int(c, "training", "local_batch_size", titan_int(c, "training", "batch_size", 8));
    if (all && dp && all % of_ranks)
        tide_error(
            c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "training"),
            tide_format(c->arena,
                        "\"global batch size must be multiple of local batch size times data-parallel degree (%lld "
                        "%% %lld != 0)\"",
                        (long long)all, (long long)of_ranks),
            NULL);
    const tide_json *given = titan_at(c, "training", "global_batch_size");
    if (tide_json_is(given, TIDE_JSON_NUMBER) && !given->is_integer)
        tide_error(c->diags, TIDE_ERR_FIELD_RANGE, tide_claims_place(c, "training"),
                   "global_batch_size is no integer of 64 bits", "give a multiple of local_batch_size times all ranks");
    int64_t steps = all && dp ? all / of_ranks : 1;
    bool is_pipeline = titan_int(c, "parallelism", "pipeline_parallel_degree", 1) > 1;
    if (is_pipeline && steps > 1)
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "training"),
                   "global_batch_size: several passes through a pipeline before a step are not described",
                   "near to it: a larger local_batch_size");
    if (is_pipeline)
        settle_pipeline(c);
    else
        tide_imply(c, TIDE_SET_parallel_microbatches, tide_format(c->arena, "%lld", (long long)steps));
}

static void settle_titan_job(tide_claims *c) {
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
    bool is_cut = titan_int(c, "parallelism", "tensor_parallel_degree", 1) > 1;
    settle_optimizer(c);
    settle_checkpoints(c);
    settle_micro_batches(c, settle_titan_ranks(c));
    if (is_cut) tide_imply(c, TIDE_SET_parallel_sequence_parallel, "true");
    if (!is_cut) c->settings[TIDE_SET_parallel_loss_parallel] = NULL;
    if (is_cut) tide_imply(c, TIDE_SET_parallel_loss_parallel, "true");
    for (size_t i = 0; i < TIDE_COUNT_OF(defaults); i++) tide_imply(c, defaults[i].id, defaults[i].value);
}

/* Ranks within an expert are those of its own models, if experts have ranks at all. */
static void settle_expert_ranks(tide_claims *c, bool is_own) {
    bool has_ranks = titan_int(c, "parallelism", "expert_parallel_degree", 1) > 1;
    if (!is_own && has_ranks && titan_int(c, "parallelism", "expert_tensor_parallel_degree", 1) > 1)
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "parallelism"),
                   "expert_tensor_parallel_degree: ranks within an expert are described for torchtitan's own models "
                   "alone",
                   "near to it: 1");
    if (!is_own || !has_ranks) c->settings[TIDE_SET_parallel_etp] = NULL;
}

static void settle_titan_model(tide_claims *c, const titan_flavor *flavor) {
    tide_text rest = tide_text_of(flavor ? flavor->overrides : ""), entry, key;
    c->inputs->asked_model = flavor ? flavor->model : hf_model(c);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    while (!tide_claims_have_model(c) && rest.length && tide_piece_next(&rest, '|', &entry)) {
        tide_piece_next(&entry, '=', &key);
        tide_text name = tide_text_of(tide_format(c->arena, "overrides.%.*s", (int)key.length, key.at));
        tide_setting_put(c->arguments, name, entry, TIDE_ORIGIN_FILE);
    }
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    if (c->facts[TIDE_FACT_titan_model]) c->facts[TIDE_FACT_titan_model]->effect = TIDE_KEY_USED;
}

static void refuse_flavor(tide_claims *c) {
    const char *name = tide_fact_of(c, TIDE_FACT_titan_model), *flavor = tide_fact_of(c, TIDE_FACT_model);
    name = name ? name : "llama3";
    flavor = flavor ? flavor : "debugmodel";
    tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "model"),
               tide_format(c->arena, "torchtitan's %s, flavor %s, is not described: %s",
                           tide_shown(c->arena, tide_text_of(name)), tide_shown(c->arena, tide_text_of(flavor)),
                           why_not_described(name, flavor)),
               "give model=NAME with trainer=none for transformers' modules with its settings (parallel.kind=native)");
}

static void settle_titan(tide_claims *c) {
    const char *asked = c->arguments->asked_trainer;
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_torchtitan_reader) file = file->next;
    if (!file) return;
    c->at = file;
    bool is_of_transformers = asked && strcmp(asked, "none") == 0;
    const titan_flavor *flavor = titan_flavor_of(c);
    tide_imply(c, TIDE_SET_parallel_kind, "native");
    if (c->facts[TIDE_FACT_titan_hf_model]) c->facts[TIDE_FACT_titan_hf_model]->effect = TIDE_KEY_USED;
    if (hf_model(c) || is_of_transformers)
        warn_of_titan(c, "model",
                      hf_model(c)
                          ? "torchtitan's changes to transformers' modules are not described: they are played as "
                            "they are, with the job's settings"
                          : "transformers' modules are played with the job's settings, as trainer=none asks");
    else if (flavor || tide_claims_have_model(c))
        tide_imply(c, TIDE_SET_parallel_models, "torchtitan");
    else
        refuse_flavor(c);
    settle_expert_ranks(c, !hf_model(c) && !is_of_transformers);
    settle_titan_model(c, hf_model(c) ? NULL : flavor);
    settle_titan_job(c);
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

/* The command that starts it, whose options go before the file's keys. */
const tide_reader tide_torchtitan_command_reader = {.title = "a command line of torchtitan",
                                                    .keys = &titan_keys,
                                                    .program = TIDE_PROGRAM_torchtitan,
                                                    .joins = true,
                                                    .precedence = TIDE_PRECEDENCE_MOST,
                                                    .settle = settle_titan};
