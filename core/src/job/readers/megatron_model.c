/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers for Megatron-Core's programs: the configuration of a GPTModel, ranks, and settings that depend
 * on each other. */
#include "job/readers/megatron.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"

static const tide_key_row transformer_rows[] = {
#include "job/readers/keys/transformer_config.def"
};

const tide_key_table tide_transformer_keys = {.rows = transformer_rows, .count = TIDE_COUNT_OF(transformer_rows)};

/* ---- options ---- */

bool tide_option_is_on(const tide_json *object, const char *key, bool otherwise) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_BOOL) ? value->is_true : otherwise;
}

int64_t tide_option_size(const tide_json *object, const char *key, int64_t otherwise) {
    const tide_json *value = tide_json_at(object, key);
    bool is_size = tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer && value->integer > 0;
    return is_size && value->integer <= INT32_MAX ? value->integer : otherwise;
}

const char *tide_option_word(const tide_json *object, const char *key, const char *otherwise) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_STRING) ? value->text.at : otherwise;
}

const char *tide_option_number(const tide_claims *c, const tide_json *object, const char *key, const char *otherwise) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_NUMBER) ? tide_argument_value(c->arena, value) : otherwise;
}

bool tide_option_is_one_of(tide_claims *c, const char *key, const char *word, const char *choices) {
    tide_text rest = tide_text_of(choices), choice;
    const char *list = "";
    while (tide_piece_next(&rest, '|', &choice)) {
        if (tide_text_is(choice, word)) return true;
        list = tide_format(c->arena, "%s%s%.*s", list, *list ? ", " : "", (int)choice.length, choice.at);
    }
    return tide_claims_refuse(
        c, TIDE_ERR_UNSUPPORTED, key,
        tide_format(c->arena, "%s=%s is not described", key, tide_shown(c->arena, tide_text_of(word))),
        tide_format(c->arena, "described: %s", list));
}

/* ---- the model ---- */

tide_gpt tide_gpt_of_options(const tide_claims *c, const tide_json *model) {
    int64_t hidden = tide_option_size(model, "hidden_size", 0);
    return (tide_gpt){
        .section = "model/",
        .layers = tide_option_size(model, "num_layers", 0),
        .hidden = hidden,
        .heads = tide_option_size(model, "num_attention_heads", 0),
        .groups = tide_option_size(model, "num_query_groups", 0),
        .inner = tide_option_size(model, "ffn_hidden_size", 4 * hidden),
        .head_size = tide_option_size(model, "kv_channels", 0),
        .experts = tide_option_size(model, "num_moe_experts", 0),
        .fields = model,
        .is_tied = tide_option_is_on(model, "share_embeddings_and_output_weights", true),
        .position = tide_option_word(model, "position_embedding_type", "learned_absolute"),
        .hidden_dropout = tide_option_number(c, model, "hidden_dropout", "0.1"),
        .attention_dropout = tide_option_number(c, model, "attention_dropout", "0.1"),
    };
}

/* A field's value as JSON; NULL: it is none, which is an error. */
static const char *field_value(tide_claims *c, const char *section, const tide_json *value) {
    const char *key = tide_format(c->arena, "%s%s", section, value->key.at),
               *choices = tide_text_is(value->key, "rope_type") ? "rope|yarn" : "softmax|sigmoid";
    if (value->kind != TIDE_JSON_STRING) return tide_argument_json_text(c->arena, value);
    bool is_word = tide_option_is_one_of(c, key, value->text.at, choices);
    return is_word ? tide_format(c->arena, "\"%s\"", value->text.at) : NULL;
}

/* Those of TIDE_GPT_FIELDS that are given; layers with experts by a number, or as a list. */
static const char *shared_fields(tide_claims *c, const tide_gpt *g) {
    tide_text rest = tide_text_of(TIDE_GPT_FIELDS), name;
    const char *text = "";
    while (tide_piece_next(&rest, '|', &name)) {
        const tide_json *value = tide_json_find(g->fields, name);
        if (!value || value->kind == TIDE_JSON_NULL) continue;
        const char *key = tide_text_copy(c->arena, name), *given;
        if (tide_text_is(name, "moe_layer_freq") && value->kind != TIDE_JSON_NUMBER) {
            given = tide_megatron_layer_pattern(c, g->section, value);
            key = "moe_layer_pattern";
        } else {
            given = field_value(c, g->section, value);
        }
        if (given) text = tide_format(c->arena, "%s,\"%s\":%s", text, key, given);
    }
    return text;
}

/* Fields of TransformerConfig and arguments of GPTModel, as models/architectures/megatron/gpt_model.json reads them. */
static const char *gpt_config(tide_claims *c, const tide_gpt *g) {
    int64_t gated = g->hidden * 8 / 3 / 64 * 64, inner = g->inner ? g->inner : g->is_gated ? gated : 4 * g->hidden;
    const char *text =
        tide_format(c->arena,
                    "{\"architectures\":[\"GPTModel\"],\"model_type\":\"gpt_model\",\"num_layers\":%" PRId64
                    ",\"hidden_size\":%" PRId64 ",\"num_attention_heads\":%" PRId64 ",\"num_query_groups\":%" PRId64
                    ",\"ffn_hidden_size\":%" PRId64 ",\"kv_channels\":%" PRId64 ",\"max_position_embeddings\":%" PRId64
                    ",\"share_embeddings_and_output_weights\":%s",
                    g->layers, g->hidden, g->heads, g->groups ? g->groups : g->heads, inner,
                    g->head_size ? g->head_size : g->hidden / g->heads, g->positions ? g->positions : 2048,
                    g->is_tied ? "true" : "false");
    text =
        tide_format(c->arena,
                    "%s,\"normalization\":\"%s\",\"gated_linear_unit\":%s,\"activation\":\"%s\",\"add_bias_linear\":%s"
                    ",\"add_qkv_bias\":%s,\"position_embedding_type\":\"%s\",\"hidden_dropout\":%s"
                    ",\"attention_dropout\":%s",
                    text, g->norm, g->is_gated ? "true" : "false", g->activation, g->has_bias ? "true" : "false",
                    g->has_qkv_bias ? "true" : "false", g->position, g->hidden_dropout, g->attention_dropout);
    if (g->experts) text = tide_format(c->arena, "%s,\"num_moe_experts\":%" PRId64, text, g->experts);
    if (g->vocabulary) text = tide_format(c->arena, "%s,\"vocab_size\":%" PRId64, text, g->vocabulary);
    return tide_format(c->arena, "%s%s}", text, shared_fields(c, g));
}

/* Marks the keys that the model is made of as used. */
static void mark_used(const tide_gpt *gpt, tide_file_key *first) {
    size_t before = strlen(gpt->section);
    for (tide_file_key *entry = first; entry; entry = entry->next) {
        if (entry->effect != TIDE_KEY_IGNORED || strncmp(entry->key, gpt->section, before) != 0) continue;
        tide_text key = tide_text_of(entry->key + before);
        if (tide_text_is_among(key, gpt->keys) || tide_text_is_among(key, TIDE_GPT_FIELDS))
            entry->effect = TIDE_KEY_USED;
    }
}

void tide_gpt_make(tide_claims *c, const tide_claims_file *file, const tide_gpt *gpt) {
    if (tide_claims_have_model(c) || !gpt->layers || !gpt->hidden || !gpt->heads) return;
    if (!tide_option_is_one_of(c, "normalization", gpt->norm, "LayerNorm|RMSNorm") ||
        !tide_option_is_one_of(c, "position_embedding_type", gpt->position, "rope|learned_absolute|none"))
        return;
    mark_used(gpt, file->summary->first);
    if (!gpt->vocabulary && !c->arguments->has_vocabulary)
        tide_error(
            c->diags, TIDE_ERR_FIELD_MISSING, tide_claims_place(c, "vocab_size"),
            tide_format(c->arena, "%s does not give vocab_size, which comes from the tokenizer", file->summary->name),
            "give overrides.vocab_size, --vocab-size or model.vocab_size, or the model's config.json");
    c->inputs->config_text = tide_text_of(gpt_config(c, gpt));
    c->inputs->config = tide_json_parse(c->arena, c->inputs->config_text, file->place, c->diags);
    c->inputs->config_file = c->inputs->source = file->summary->name;
    c->inputs->config_name = c->inputs->title = "GPT of Megatron-Core";
}

/* ---- the layout ---- */

/* The value from arguments, which override files, or from files; else 1. */
static int64_t size_said(const tide_claims *c, tide_setting_id setting) {
    int64_t value = 0;
    const char *said = tide_known_of(c, setting);
    return said && tide_text_to_i64(&value, tide_text_of(said)) && value > 0 && value <= INT32_MAX ? value : 1;
}

static void settle_microbatches(tide_claims *c, int64_t ranks) {
    int64_t rows = size_said(c, TIDE_SET_batch), step = tide_fact_int(c, TIDE_FACT_generation_batch, 0);
    if (step > 0 && step % (rows * ranks) == 0)
        tide_settle(c, TIDE_FACT_generation_batch, TIDE_SET_parallel_microbatches,
                    tide_format(c->arena, "%" PRId64, step / (rows * ranks)));
    else if (step > 0)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_generation_batch],
                   tide_format(c->arena,
                               "global_batch_size=%" PRId64 " is not a multiple of micro_batch_size times %" PRId64
                               " data parallel ranks",
                               step, ranks),
                   NULL);
    else
        tide_imply(c, TIDE_SET_parallel_microbatches, "1");
}

/* ModelParallelConfig: how many micro-batches a chunk computes in a row; saved configurations have the default, which
 * is the number of stages. */
static void settle_group(tide_claims *c, int64_t stages) {
    int64_t group = tide_fact_int(c, TIDE_FACT_microbatch_group, stages);
    bool interleaves = size_said(c, TIDE_SET_parallel_virtual_stages) > 1;
    if (c->facts[TIDE_FACT_microbatch_group]) c->facts[TIDE_FACT_microbatch_group]->effect = TIDE_KEY_USED;
    if (interleaves && group != stages)
        tide_imply(c, TIDE_SET_parallel_microbatch_group, tide_format(c->arena, "%" PRId64, group));
}

void tide_megatron_settle_layout(tide_claims *c) {
    int64_t others = size_said(c, TIDE_SET_parallel_tp) * size_said(c, TIDE_SET_parallel_pp) *
                     size_said(c, TIDE_SET_parallel_cp),
            processes = tide_fact_int(c, TIDE_FACT_processes, 0), ranks = size_said(c, TIDE_SET_parallel_dp);
    if (c->arguments->asked_world_size) tide_text_to_i64(&processes, tide_text_of(c->arguments->asked_world_size));
    if (c->facts[TIDE_FACT_processes]) c->facts[TIDE_FACT_processes]->effect = TIDE_KEY_USED;
    tide_imply(c, TIDE_SET_parallel_kind, "megatron");
    if (!c->arguments->asked[TIDE_SET_parallel_dp]) {
        if (processes > 0 && processes % others &&
            !c->arguments->asked_world_size) /* unless the job itself gives them */
            tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_processes],
                       tide_format(c->arena,
                                   "%" PRId64 " processes are not divided by %" PRId64
                                   ", which is tensor times pipeline times context parallel",
                                   processes, others),
                       "give all nodes: n=NODESxGPUS");
        else if (processes > 0)
            ranks = processes / others;
        else
            tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/parallel.dp",
                        "the files do not give the number of processes: parallel.dp=1 is assumed", "give parallel.dp");
    }
    tide_imply(c, TIDE_SET_parallel_dp, tide_format(c->arena, "%" PRId64, ranks));
    if (processes <= 0 || processes % others == 0 || c->arguments->asked[TIDE_SET_parallel_dp])
        settle_microbatches(c, ranks);
    settle_group(c, size_said(c, TIDE_SET_parallel_pp));
    tide_megatron_settle_stages(c, size_said(c, TIDE_SET_parallel_pp));
}

/* ---- what is set together ---- */

/* Makes a key's claim void. */
static void drop(tide_claims *c, tide_setting_id setting) {
    if (c->settings[setting]) c->settings[setting]->effect = TIDE_KEY_IGNORED;
    c->settings[setting] = NULL;
}

void tide_megatron_force(tide_claims *c, tide_setting_id setting, const char *value) {
    if (c->settings[setting] && strcmp(c->settings[setting]->taken, value) == 0) return;
    drop(c, setting);
    tide_imply(c, setting, value);
}

void tide_megatron_mark_used(tide_claims *c, const char *key) {
    for (tide_file_key *entry = c->at->summary->first; entry; entry = entry->next)
        if (strcmp(entry->key, key) == 0) entry->effect = TIDE_KEY_USED;
}

void tide_megatron_settle_momentum(tide_claims *c, const tide_json *options) {
    const tide_json *momentum = tide_json_at(options, "sgd_momentum");
    bool is_none = tide_json_is(momentum, TIDE_JSON_NUMBER) && momentum->number == 0;
    if (!is_none || strcmp(tide_option_word(options, "optimizer", "adam"), "sgd") != 0) return;
    drop(c, TIDE_SET_optimizer);
    tide_imply(c, TIDE_SET_optimizer, "sgd");
}

/* The method only matters if the loss of the logits is fused. */
void tide_megatron_settle_loss(tide_claims *c) {
    if (!c->facts[TIDE_FACT_loss_type]) {
        drop(c, TIDE_SET_parallel_cross_entropy_fusion);
        return;
    }
    tide_imply(c, TIDE_SET_parallel_cross_entropy_fusion, "native");
    c->facts[TIDE_FACT_loss_type]->effect = TIDE_KEY_USED;
}

/* Options that are only read with FP8, and described with their defaults alone. */
static void check_fp8(tide_claims *c) {
    static const struct {
        const char *key, *value, *what;
    } rows[] = {{"fp8_wgrad", "false", "multiplies some products in another type"},
                {"first_last_layers_bf16", "true", "computes some layers in bf16"}};
    for (const tide_file_key *entry = c->at->summary->first; entry; entry = entry->next)
        for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
            if (tide_text_ends(tide_text_of(entry->key), tide_text_of(rows[i].key)) &&
                strcmp(entry->value, rows[i].value) == 0)
                tide_claims_refuse(
                    c, TIDE_ERR_UNSUPPORTED, entry->key,
                    tide_format(c->arena, "%s=%s %s, which is not described", rows[i].key, rows[i].value, rows[i].what),
                    NULL);
}

/* A recipe is only read with a format; otherwise it is the framework's default. */
void tide_megatron_settle_fp8(tide_claims *c, const char *otherwise) {
    if (!c->facts[TIDE_FACT_fp8_format]) {
        drop(c, TIDE_SET_parallel_fp8);
        drop(c, TIDE_SET_parallel_fp8_amax_history_len);
        return;
    }
    tide_imply(c, TIDE_SET_parallel_fp8, otherwise);
    check_fp8(c);
    c->facts[TIDE_FACT_fp8_format]->effect = TIDE_KEY_USED;
}

/* OptimizerConfig.optimizer_offload_fraction is only read with optimizer_cpu_offload. */
void tide_megatron_settle_offload(tide_claims *c, bool is_on, const char *otherwise) {
    if (is_on)
        tide_imply(c, TIDE_SET_parallel_offload_fraction, otherwise);
    else
        drop(c, TIDE_SET_parallel_offload_fraction);
}
