/* SPDX-License-Identifier: Apache-2.0 */
/* Speculative decoding: speculative_config (config/speculative.py of vLLM 0.32.0), and the memory of proposing in the
 * profile run (v1/worker/gpu/spec_decode). */
#include "serve/drafts.h"

#include <string.h>

#include "base/units.h"
#include "serve/config.h"

/* ---- what is asked ---- */

static const char *const copied_keys[] = {"hidden_size",         "intermediate_size", "num_attention_heads",
                                          "num_key_value_heads", "head_dim",          "vocab_size",
                                          "rope_theta",          "rope_parameters",   "max_position_embeddings"};

enum { EAGLE3_VOCABULARY = 32000 }; /* draft_vocab_size of the heads published by SafeAILab and AngelSlim */

static void put_size(tide_arena *arena, tide_json *object, const char *key, int64_t number) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_NUMBER);
    value->is_integer = true;
    value->integer = number;
    value->number = (double)number;
    tide_json_put(arena, object, tide_text_of(key), value);
}

static void put_copy(tide_arena *arena, tide_json *object, const tide_json *entry) {
    tide_json *copy = tide_json_new(arena, entry->kind);
    *copy = *entry;
    copy->next = NULL;
    tide_json_put(arena, object, entry->key, copy);
}

static tide_json *config_of_class(tide_arena *arena, const char *architecture) {
    tide_json *config = tide_json_new(arena, TIDE_JSON_OBJECT), *names = tide_json_new(arena, TIDE_JSON_ARRAY),
              *name = tide_json_new(arena, TIDE_JSON_STRING);
    name->text = tide_text_of(architecture);
    names->first = name;
    tide_json_put(arena, config, TIDE_TEXT("architectures"), names);
    return config;
}

/* A head of EAGLE is a layer with the sizes of the target; its own config.json is not read. */
static const tide_json *head_of_target(tide_serve_run *run, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *target = tide_serve_text_config(run->job.config);
    tide_json *config =
        config_of_class(arena, run->drafts.is_eagle3 ? "Eagle3LlamaForCausalLM" : "EagleLlamaForCausalLM");
    for (size_t i = 0; i < TIDE_COUNT_OF(copied_keys); i++) {
        const tide_json *found = tide_json_at(target, copied_keys[i]);
        if (found) put_copy(arena, config, found);
    }
    put_size(arena, config, "num_hidden_layers", 1);
    if (run->drafts.is_eagle3) put_size(arena, config, "draft_vocab_size", EAGLE3_VOCABULARY);
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/speculative_config",
                run->drafts.is_eagle3 ? "the head of EAGLE 3 is one layer of the model's sizes, with a vocabulary of "
                                        "32,000, as published ones are"
                                      : "the head of EAGLE is one layer of the model's sizes",
                NULL);
    return config;
}

/* config/speculative.py, hf_config_override: the class that predicts further tokens, by model_type; NULL: vLLM has one
 * without a description here. */
static const struct {
    const char *model_type, *architecture;
} mtp_classes[] = {{"deepseek_v3", "DeepSeekMTPModel"},
                   {"glm4_moe", "Glm4MoeMTPModel"},
                   {"qwen3_next", "Qwen3NextMTP"},
                   {"deepseek_v32", NULL},
                   {"ernie4_5_moe", NULL},
                   {"exaone_moe", NULL},
                   {"glm4_moe_lite", NULL},
                   {"longcat_flash", NULL},
                   {"mimo", NULL},
                   {"nemotron_h", NULL},
                   {"qwen3_5", NULL},
                   {"qwen3_5_moe", NULL},
                   {"qwen3_5_moe_text", NULL},
                   {"qwen3_5_text", NULL}};

/* The layers that predict further tokens are part of the target's checkpoint and use its config.json. */
static bool read_predictor(tide_serve_run *run, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *target = tide_serve_text_config(run->job.config), *type = tide_json_at(target, "model_type");
    const char *place = "/settings/speculative_config";
    size_t found = 0;
    while (found < TIDE_COUNT_OF(mtp_classes) &&
           !(tide_json_is(type, TIDE_JSON_STRING) && tide_text_is(type->text, mtp_classes[found].model_type)))
        found++;
    if (found == TIDE_COUNT_OF(mtp_classes))
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, place, "Unsupported speculative method: 'mtp'",
                          "leave speculative_config out: the model has no layers that predict further tokens");
    const char *architecture = mtp_classes[found].architecture;
    if (!architecture)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, place, "vLLM 0.32.0's MTP of this model is not described",
                          "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
    if (!run->job.enforce_eager)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/enforce_eager",
                          "CUDA graphs of MTP are not described: what they take is measured with the model's",
                          "enforce_eager=true is played to the byte");
    int64_t layers = TIDE_SERVE_NUMBER(run->job.config, 1, "num_nextn_predict_layers");
    if (layers < 1)
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, place, "num_nextn_predict_layers of config.json is 0",
                          "leave speculative_config out: the model has no layers that predict further tokens");
    if (!run->drafts.tokens) run->drafts.tokens = layers;
    if (run->drafts.tokens > layers && run->drafts.tokens % layers != 0)
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, place,
                          tide_format(arena, "num_speculative_tokens:%lld must be divisible by n_predict=%lld",
                                      (long long)run->drafts.tokens, (long long)layers),
                          NULL);
    tide_json *config = config_of_class(arena, architecture);
    for (const tide_json *entry = target->first; entry; entry = entry->next)
        if (!tide_text_is(entry->key, "architectures")) put_copy(arena, config, entry);
    run->drafts.config = config;
    return true;
}

static bool read_draft_model(tide_serve_run *run, const char *name, tide_arena *arena, tide_diagnostics *diags) {
    if (run->drafts.are_ngrams) return true;
    if (run->drafts.is_mtp) return read_predictor(run, arena, diags);
    if (run->drafts.is_head && !tide_json_at(tide_serve_text_config(run->job.config), "intermediate_size"))
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/speculative_config",
                          "heads of EAGLE for this model are not described", "leave speculative_config out");
    if (run->drafts.is_head) {
        run->drafts.config = head_of_target(run, arena, diags);
        return true;
    }
    if (!name) return true;
    run->drafts.config = tide_catalogue_config(arena, name, diags);
    return run->drafts.config ||
           tide_error(diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/draft",
                      tide_format(arena, "\"%s\" is not in the catalogue", tide_shown(arena, tide_text_of(name))),
                      "give the name of a model that `tidemark describe models` lists");
}

/* config/speculative.py, __post_init__: derived from the name if it is not given. */
static const char *method_of(const tide_serve_run *run, const tide_json *given, const char *name, tide_arena *arena) {
    const tide_json *method = tide_json_at(given, "method");
    if (tide_json_is(method, TIDE_JSON_STRING)) return method->text.at;
    if (method) return "";
    if (tide_job_sets(&run->job, TIDE_SET_spec_method)) return run->job.values[TIDE_SET_spec_method];
    char *lower = tide_text_copy(arena, tide_text_of(name ? name : ""));
    for (char *c = lower; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c + 'a' - 'A');
    return strstr(lower, "eagle-") ? "eagle" : strstr(lower, "eagle3") ? "eagle3" : "draft_model";
}

bool tide_serve_read_drafts(tide_serve_run *run, const tide_json *given, tide_arena *arena, tide_diagnostics *diags) {
    tide_serve_drafts *d = &run->drafts;
    const tide_json *count = tide_json_at(given, "num_speculative_tokens"), *named = tide_json_at(given, "model");
    const char *name = tide_job_sets(&run->job, TIDE_SET_draft) ? run->job.values[TIDE_SET_draft] : NULL;
    if (tide_json_is(named, TIDE_JSON_STRING)) name = named->text.at;
    *d = (tide_serve_drafts){.tokens = run->job.num_speculative_tokens};
    if (count) d->tokens = count->is_integer ? count->integer : -1;
    const char *method = method_of(run, given, name, arena);
    d->are_ngrams = strcmp(method, "ngram") == 0;
    d->is_eagle3 = strcmp(method, "eagle3") == 0;
    /* deepseek_mtp and others are deprecated names */
    d->is_mtp = tide_text_ends(tide_text_of(method), TIDE_TEXT("mtp"));
    d->is_head = d->is_eagle3 || d->is_mtp || strcmp(method, "eagle") == 0;
    if (!d->are_ngrams && !d->is_head && strcmp(method, "draft_model") != 0)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/speculative_config",
                          "of vLLM 0.32.0's methods ngram, draft_model, eagle, eagle3 and mtp are described",
                          "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
    if (d->tokens < 0 || d->tokens > 1024)
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/speculative_config",
                          "num_speculative_tokens must be a whole number from 0 to 1024", NULL);
    return read_draft_model(run, name, arena, diags);
}

/* ---- calls of the runner ---- */

tide_value tide_serve_call_runner(tide_serve_run *run, tide_description *runner, const char *name,
                                  const tide_value *arguments, uint32_t count) {
    if (run->machine.has_failed) return tide_none();
    tide_function *function = tide_function_find(&run->descriptions, runner, tide_text_of(name));
    if (!function) tide_fail(&run->machine, TIDE_ERR_DESCRIPTION, "the runner has no '%s'", name);
    return function ? tide_model_run(&run->model, function, arguments, count) : tide_none();
}

tide_value tide_serve_item(tide_value list, uint32_t at) {
    return list.kind == TIDE_VALUE_LIST && at < list.list->count ? list.list->items[at] : tide_none();
}

/* ---- proposing ---- */

enum {
    AUX_LAYERS = 3,
    HEAD_LOGITS = 4 /* for its vocabulary and for the target's, in two sets of graphs */
};

/* models/interfaces.py, get_eagle3_default_aux_hidden_state_layers. */
tide_value tide_serve_aux_layers(tide_serve_run *run) {
    tide_list *layers = tide_list_new(&run->machine);
    int64_t count = tide_serve_layers(run->job.config), at[AUX_LAYERS] = {2, count / 2, count - 3};
    for (size_t i = 0; i < TIDE_COUNT_OF(at) && run->drafts.is_eagle3; i++)
        tide_list_push(&run->machine, layers, tide_of_int(at[i]));
    return (tide_value){.kind = TIDE_VALUE_LIST, .list = layers};
}

static void sample_draft(tide_serve_run *run, tide_description *runner, tide_value rows) {
    const char *name = "hidden_states";
    tide_value logits = tide_model_method(&run->model, TIDE_TEXT("compute_logits"), &name, &rows, 1);
    tide_value_release(&run->machine, tide_serve_call_runner(run, runner, "argmax_of", &logits, 1));
    tide_value_release(&run->machine, logits);
}

/* standalone_ar/speculator.py, propose: the draft's pass over the tokens of the target; the passes after it, of one
 * token each, need less. */
static void propose_by_model(tide_serve_run *run, tide_description *runner, const tide_value *inputs,
                             int64_t requests) {
    tide_machine *m = &run->machine;
    const char *names[3] = {"input_ids", "positions", "intermediate_tensors"};
    tide_value values[3] = {inputs[0], inputs[1], tide_none()};
    tide_value hidden = tide_model_forward(&run->model, names, values, 3);
    tide_value arguments[2] = {hidden, tide_of_int(requests)};
    tide_value rows = tide_serve_call_runner(run, runner, "draft_rows", arguments, 2);
    sample_draft(run, runner, rows);
    tide_value_release(m, rows);
    tide_value_release(m, hidden);
}

/* target_dependent_ar/speculator.py, propose: the head's pass over the hidden states of the target. */
static void propose_by_head(tide_serve_run *run, tide_description *runner, const tide_value *inputs, tide_value hidden,
                            int64_t requests) {
    tide_machine *m = &run->machine;
    const char *state = "hidden_states", *names[3] = {"input_ids", "positions", "target_states"};
    tide_value count = tide_of_int(requests), combined = tide_none();
    tide_value counts = tide_serve_call_runner(run, runner, "dummy_counts", &count, 1);
    tide_value states = *tide_model_setting(&run->model, "aux_hidden_states");
    if (run->drafts.is_eagle3 && !m->has_failed && states.list->count != AUX_LAYERS)
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "vLLM 0.32.0's EAGLE 3 with '%.*s' is not described",
                  (int)run->architecture.length, run->architecture.at);
    if (run->drafts.is_eagle3) {
        tide_value joined = tide_serve_call_runner(run, runner, "cat_aux_hidden_states", NULL, 0);
        combined = tide_model_method(&run->model, TIDE_TEXT("combine_hidden_states"), &state, &joined, 1);
        tide_value_release(m, joined);
    }
    tide_value positions = tide_serve_call_runner(run, runner, "source_positions", &count, 1);
    tide_value values[3] = {inputs[0], inputs[1], run->drafts.is_eagle3 ? combined : hidden};
    tide_value given = tide_model_forward(&run->model, names, values, 3);
    tide_value arguments[2] = {tide_serve_item(given, 0), count};
    tide_value rows = tide_serve_call_runner(run, runner, "sample_rows", arguments, 2);
    sample_draft(run, runner, rows);
    tide_value_release(m, rows);
    tide_value_release(m, given);
    tide_value_release(m, positions);
    tide_value_release(m, combined);
    tide_value_release(m, counts);
    tide_value_release(m, tide_serve_call_runner(run, runner, "drop_aux_hidden_states", NULL, 0));
}

void tide_serve_propose(tide_serve_run *run, tide_description *runner, const tide_value *inputs, tide_value hidden,
                        int64_t requests) {
    uint32_t target = run->model.root;
    run->model.root = run->draft_root;
    if (run->drafts.is_head)
        propose_by_head(run, runner, inputs, hidden, requests);
    else
        propose_by_model(run, runner, inputs, requests);
    run->model.root = target;
}

enum { AUX_STREAM_TOKENS = 256 }; /* envs.py, VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD */

/* fused_moe/runner/shared_experts.py: in steps after the first, shared experts with few requests run on a stream of
 * their own, where products have their own workspaces. */
uint64_t tide_serve_draft_steps(const tide_serve_run *run, int64_t requests) {
    bool has_shared = TIDE_SERVE_NUMBER(run->job.config, 0, "n_shared_experts", "shared_expert_intermediate_size") > 0;
    if (!run->drafts.is_mtp || run->drafts.tokens < 2 || requests > AUX_STREAM_TOKENS || !has_shared) return 0;
    tide_report(
        run->machine.diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/speculative_config",
        "shared experts of up to 256 requests run on a stream of their own when further tokens are drafted, which "
        "is not played: two segments of 20 MiB at most",
        NULL);
    return UINT64_C(2) * TIDE_SERVE_SEGMENT;
}

/* target_dependent_ar/speculator.py, capture: graphs of the head's first pass and of later ones are measured with the
 * target's, and include its logits, for the target's vocabulary too; a first start also compiles with its embedding. */
uint64_t tide_serve_head_graphs(tide_serve_run *run) {
    if (!run->drafts.is_head) return 0;
    const tide_json *config = run->job.config;
    int64_t vocabulary = tide_serve_vocabulary(config), size = tide_dtype_bytes(run->model.state.dtype);
    int64_t logits = run->graphs.most * vocabulary * size;
    int64_t embedding = run->job.first_start ? vocabulary * TIDE_SERVE_NUMBER(config, 0, "hidden_size") * size : 0;
    tide_report(run->machine.diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/speculative_config",
                "CUDA graphs of the head are not played: they take from nothing to four times its logits", NULL);
    return (uint64_t)(HEAD_LOGITS * logits + embedding) + 2 * TIDE_SERVE_SEGMENT;
}
