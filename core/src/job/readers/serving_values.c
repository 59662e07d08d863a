/* SPDX-License-Identifier: Apache-2.0 */
/* Values from which charts and operators make `vllm serve`: llm-d's modelservice chart, vLLM's production stack,
 * KServe's InferenceService and LLMInferenceService. */
#include <string.h>

#include "base/units.h"
#include "job/readers/server_command.h"

static const tide_json *at_path(const tide_json *root, const char *const *keys) {
    for (; *keys; keys++) root = tide_json_at(root, *keys);
    return root;
}

#define AT(root, ...) at_path(root, (const char *const[]){__VA_ARGS__, NULL})

static bool has_kind(const tide_json *root, const char *kind) {
    const tide_json *found = tide_json_at(root, "kind");
    return tide_json_is(found, TIDE_JSON_STRING) && tide_text_is(found->text, kind);
}

static const char *text_of(tide_arena *arena, const tide_json *value) {
    return tide_json_is(value, TIDE_JSON_STRING) ? tide_text_copy(arena, value->text) : NULL;
}

/* hf://owner/name as owner/name. */
static const char *without_scheme(const char *uri) {
    const char *rest = uri ? strstr(uri, "://") : NULL;
    return rest ? rest + 3 : uri;
}

static void put_engine_option(const tide_reading *r, tide_json *options, const char *key, const char *value) {
    if (value) tide_vllm_server.put(r->arena, options, tide_text_of(key), value);
}

static void put_count(const tide_reading *r, tide_json *options, const char *key, const tide_json *value) {
    if (value && value->is_integer)
        put_engine_option(r, options, key, tide_format(r->arena, "%lld", (long long)value->integer));
}

/* Options as words: a list, or a text with several. */
static tide_json *options_of(const tide_reading *r, const tide_json *given) {
    tide_command_line l = {.arena = r->arena};
    if (tide_json_is(given, TIDE_JSON_STRING)) {
        size_t at = 0;
        tide_shell_read(&l, given->text, &at);
    }
    for (const tide_json *word = tide_json_is(given, TIDE_JSON_ARRAY) ? given->first : NULL; word; word = word->next) {
        const char *text = tide_argument_value(r->arena, word);
        if (text) tide_shell_add(&l, text);
    }
    return tide_server_options(&tide_vllm_server, &l, 0);
}

static void claim_server(tide_reading *r, const tide_json *options) {
    tide_claims_add(r->claims, tide_vllm_server.reader, options, r->name, r->place);
}

/* ---- llm-d ---- */

static const tide_json *container_of(const tide_json *part) {
    const tide_json *all = tide_json_at(part, "containers");
    return tide_json_is(all, TIDE_JSON_ARRAY) ? all->first : NULL;
}

static void put_parallelism(const tide_reading *r, tide_json *options, const tide_json *of) {
    put_count(r, options, "tensor_parallel_size", tide_json_at(of, "tensor"));
    put_count(r, options, "data_parallel_size", tide_json_at(of, "data"));
    put_count(r, options, "pipeline_parallel_size", tide_json_at(of, "pipeline"));
}

/* charts/llm-d-modelservice, templates/_helpers.tpl: `vllm serve` with the arguments of the container. Decode servers
 * hold the most; prefill servers are another job. */
static void read_llm_d(tide_reading *r, tide_json *root) {
    const tide_json *part = tide_json_at(root, "decode"), *container = container_of(part);
    if (!container) container = container_of(part = tide_json_at(root, "prefill"));
    const tide_json *command = tide_json_at(container, "modelCommand");
    if (!container || (tide_json_is(command, TIDE_JSON_STRING) && tide_text_is(command->text, "custom"))) {
        tide_server_read_containers(r, root);
        return;
    }
    tide_json *options = options_of(r, tide_json_at(container, "args"));
    const char *uri = text_of(r->arena, AT(root, "modelArtifacts", "uri"));
    const char *name = text_of(r->arena, AT(root, "modelArtifacts", "name"));
    bool is_on_hub = uri && strncmp(uri, "hf://", 5) == 0;
    if (!tide_json_at(options, "model"))
        put_engine_option(r, options, "model", is_on_hub || !name ? without_scheme(uri) : name);
    put_parallelism(r, options, tide_json_at(part, "parallelism"));
    claim_server(r, options);
}

/* ---- vLLM's production stack ---- */

/* maxModelLen as max_model_len. */
static const char *snake(tide_arena *arena, tide_text camel) {
    if (tide_text_is(camel, "enableLoRA")) return "enable_lora";
    char *made = TIDE_NEW(arena, char, 2 * camel.length + 1), *to = made;
    for (size_t i = 0; i < camel.length; i++) {
        char c = camel.at[i];
        bool is_capital = c >= 'A' && c <= 'Z';
        if (is_capital && i) *to++ = '_';
        *to++ = is_capital ? (char)(c - 'A' + 'a') : c;
    }
    *to = 0;
    return made;
}

/* helm/templates/deployment-vllm-multi.yaml: vllmConfig of the first model, and extraArgs as words. */
static void read_stack(tide_reading *r, const tide_json *root) {
    const tide_json *models = AT(root, "servingEngineSpec", "modelSpec");
    const tide_json *model = tide_json_is(models, TIDE_JSON_ARRAY) ? models->first : NULL;
    const tide_json *config = tide_json_at(model, "vllmConfig"), *url = tide_json_at(model, "modelURL");
    tide_json *options = options_of(r, tide_json_at(config, "extraArgs"));
    for (const tide_json *entry = config ? config->first : NULL; entry; entry = entry->next) {
        bool is_own =
            tide_text_is(entry->key, "extraArgs") || tide_text_is(entry->key, "v1") || tide_text_is(entry->key, "v0");
        const char *value = is_own ? NULL : tide_argument_value(r->arena, entry);
        put_engine_option(r, options, snake(r->arena, entry->key), value);
    }
    const tide_json *slots = tide_json_at(model, "enableLoRA");
    if (slots && slots->is_true) put_engine_option(r, options, "enable_lora", "true");
    put_engine_option(r, options, "model", text_of(r->arena, url));
    claim_server(r, options);
}

/* ---- KServe ---- */

static void read_inference_service(tide_reading *r, const tide_json *root) {
    const tide_json *model = AT(root, "spec", "predictor", "model");
    tide_json *options = options_of(r, tide_json_at(model, "args"));
    if (!tide_json_at(options, "model"))
        put_engine_option(r, options, "model", without_scheme(text_of(r->arena, tide_json_at(model, "storageUri"))));
    claim_server(r, options);
}

/* VLLM_ADDITIONAL_ARGS of the container, after its own arguments. */
static const tide_json *additional_arguments(const tide_json *container) {
    const tide_json *all = tide_json_at(container, "env");
    for (const tide_json *one = tide_json_is(all, TIDE_JSON_ARRAY) ? all->first : NULL; one; one = one->next) {
        const tide_json *name = tide_json_at(one, "name");
        if (tide_json_is(name, TIDE_JSON_STRING) && tide_text_is(name->text, "VLLM_ADDITIONAL_ARGS"))
            return tide_json_at(one, "value");
    }
    return NULL;
}

static void read_llm_service(tide_reading *r, const tide_json *root) {
    const tide_json *spec = tide_json_at(root, "spec"), *container = container_of(tide_json_at(spec, "template"));
    const tide_json *given = tide_json_at(container, "args");
    tide_json *options = options_of(r, given ? given : additional_arguments(container));
    if (!tide_json_at(options, "model"))
        put_engine_option(r, options, "model", without_scheme(text_of(r->arena, AT(spec, "model", "uri"))));
    put_parallelism(r, options, tide_json_at(spec, "parallelism"));
    claim_server(r, options);
}

/* ---- all of them ---- */

static bool is_hosted(const tide_json *root) {
    return has_kind(root, "LLMInferenceService") ||
           (has_kind(root, "InferenceService") &&
            tide_json_is(AT(root, "spec", "predictor", "model"), TIDE_JSON_OBJECT));
}

/* The first resource of KServe in a manifest, which may be a list; NULL: there is none. */
static const tide_json *hosted_in(const tide_json *root) {
    const tide_json *items = tide_json_at(root, "items");
    if (is_hosted(root)) return root;
    for (const tide_json *one = tide_json_is(items, TIDE_JSON_ARRAY) ? items->first : NULL; one; one = one->next)
        if (is_hosted(one)) return one;
    return NULL;
}

static bool has_values(const tide_json *root) {
    bool is_llm_d = tide_json_is(tide_json_at(root, "modelArtifacts"), TIDE_JSON_OBJECT) &&
                    (tide_json_at(root, "decode") || tide_json_at(root, "prefill"));
    return is_llm_d || tide_json_is(tide_json_at(root, "servingEngineSpec"), TIDE_JSON_OBJECT) || hosted_in(root);
}

static void read_values(tide_reading *r, tide_json *root) {
    if (tide_json_at(root, "modelArtifacts"))
        read_llm_d(r, root);
    else if (tide_json_at(root, "servingEngineSpec"))
        read_stack(r, root);
    else if (has_kind(hosted_in(root), "LLMInferenceService"))
        read_llm_service(r, hosted_in(root));
    else
        read_inference_service(r, hosted_in(root));
}

const tide_reader tide_serving_values_reader = {
    .title = "values that start a server", .recognises = has_values, .read = read_values};
