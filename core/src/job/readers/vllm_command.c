/* SPDX-License-Identifier: Apache-2.0 */
/* `vllm serve MODEL --option ...` in a script, in a Docker compose file or in a Kubernetes manifest. */
#include <string.h>

#include "base/units.h"
#include "job/readers/shell.h"
#include "job/readers/vllm.h"

enum { SHELL_DEPTH_LIMIT = 24 };

/* ---- the command ---- */

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), of_end = strlen(end);
    return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

/* The first word behind `vllm serve` or the module of its server; count: there is neither. */
static uint32_t find_options(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        if (i + 1 < l->count && (strcmp(l->tokens[i], "vllm") == 0 || ends_in(l->tokens[i], "/vllm")) &&
            strcmp(l->tokens[i + 1], "serve") == 0)
            return i + 2;
        if (strcmp(l->tokens[i], "vllm.entrypoints.openai.api_server") == 0 ||
            strcmp(l->tokens[i], "vllm.entrypoints.api_server") == 0)
            return i + 1;
    }
    return l->count;
}

static const char *long_name(const char *name) {
    static const char *const names[][2] = {{"-tp", "tensor_parallel_size"},   {"-pp", "pipeline_parallel_size"},
                                           {"-dp", "data_parallel_size"},     {"-q", "quantization"},
                                           {"-ep", "enable_expert_parallel"}, {"-O", "optimization_level"},
                                           {"-sc", "speculative_config"},     {"-cc", "compilation_config"}};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (strcmp(name, names[i][0]) == 0) return names[i][1];
    while (*name == '-') name++;
    return name;
}

static void put_option_text(tide_arena *arena, tide_json *options, const char *name, const char *text) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    value->text = tide_text_of(text);
    tide_vllm_put(arena, options, tide_text_of(name), value);
}

/* --no-enable-prefix-caching is enable_prefix_caching=false: argparse.BooleanOptionalAction. */
static void put_switch(tide_arena *arena, tide_json *options, const char *name) {
    bool is_off = strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0;
    put_option_text(arena, options, is_off ? name + 3 : name, is_off ? "false" : "true");
}

/* An option that takes no word behind it, but for true and false. */
static bool is_switch(tide_arena *arena, const char *name, const char *next) {
    static const char *const others[] = {"trust_remote_code", "enable_auto_tool_choice", "disable_log_requests",
                                         "disable_log_stats"};
    if (tide_text_same(tide_text_of(next), TIDE_TEXT("true")) || tide_text_same(tide_text_of(next), TIDE_TEXT("false")))
        return false;
    char *key = tide_text_copy(arena, tide_text_of(name));
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    for (size_t i = 0; i < TIDE_COUNT_OF(others); i++)
        if (strcmp(key, others[i]) == 0) return true;
    tide_setting_id id = tide_setting_find(tide_text_of(key));
    return strncmp(key, "no_", 3) == 0 || (id < TIDE_SET_COUNT && tide_settings[id].type == TIDE_SETTING_BOOL);
}

static tide_json *read_options(const tide_command_line *l, uint32_t from) {
    tide_json *options = tide_json_new(l->arena, TIDE_JSON_OBJECT);
    for (uint32_t i = from; i < l->count; i++) {
        const char *token = l->tokens[i], *equals = strchr(token, '='),
                   *next = i + 1 < l->count ? l->tokens[i + 1] : "-";
        if (!tide_shell_is_option(token)) {
            if (!tide_json_at(options, "model")) put_option_text(l->arena, options, "model", token);
            continue;
        }
        size_t length = equals ? (size_t)(equals - token) : strlen(token);
        const char *name = long_name(tide_text_copy(l->arena, (tide_text){token, length}));
        if (!*name) continue;
        if (equals) {
            put_option_text(l->arena, options, name, equals + 1);
        } else if (strcmp(next, "-") == 0 || tide_shell_is_option(next) || is_switch(l->arena, name, next)) {
            put_switch(l->arena, options, name);
        } else {
            put_option_text(l->arena, options, name, next);
            i++;
        }
    }
    return options;
}

/* The first command of a script that starts the server. */
static tide_json *find_in_script(tide_arena *arena, tide_text text) {
    tide_command_line l = {.arena = arena};
    for (size_t at = 0; at < text.length;) {
        tide_shell_read(&l, text, &at);
        uint32_t from = find_options(&l);
        if (from < l.count) return read_options(&l, from);
    }
    return NULL;
}

bool tide_vllm_read_script(tide_reading *r) {
    bool may_be =
        r->text.length < TIDE_SHELL_SCRIPT_LIMIT && (tide_text_contains(r->text, TIDE_TEXT("vllm serve")) ||
                                                     tide_text_contains(r->text, TIDE_TEXT("vllm.entrypoints")));
    tide_json *options = may_be ? find_in_script(r->arena, r->text) : NULL;
    if (options) tide_claims_add(r->claims, &tide_vllm_command_reader, options, r->name, r->place);
    return options != NULL;
}

/* ---- containers ---- */

/* "command" of a container is a text or a list of words, of which one may be a script (sh -c). */
static void add_words(tide_command_line *l, const tide_json *value, tide_json **script) {
    if (tide_json_is(value, TIDE_JSON_STRING)) {
        size_t at = 0;
        tide_command_line part = {.arena = l->arena};
        tide_shell_read(&part, value->text, &at);
        if (!*script) *script = find_in_script(l->arena, value->text);
        for (uint32_t i = 0; i < part.count; i++) tide_shell_add(l, part.tokens[i]);
    }
    for (const tide_json *word = tide_json_is(value, TIDE_JSON_ARRAY) ? value->first : NULL; word; word = word->next) {
        const char *text = tide_argument_value(l->arena, word);
        if (!text) continue;
        bool may_be_script = tide_json_is(word, TIDE_JSON_STRING) && memchr(word->text.at, ' ', word->text.length);
        if (may_be_script && !*script) *script = find_in_script(l->arena, word->text);
        tide_shell_add(l, text);
    }
}

/* Of the images vllm/vllm-openai the entry point is the server, and the command its options. */
static tide_json *find_in_container(tide_arena *arena, const tide_json *container) {
    static const char *const keys[] = {"entrypoint", "command", "args"};
    const tide_json *image = tide_json_at(container, "image");
    tide_command_line l = {.arena = arena};
    tide_json *script = NULL;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) add_words(&l, tide_json_at(container, keys[i]), &script);
    if (script) return script;
    uint32_t from = find_options(&l);
    bool is_image = tide_json_is(image, TIDE_JSON_STRING) && tide_text_contains(image->text, TIDE_TEXT("vllm-openai"));
    if (from == l.count && is_image) from = 0;
    return from < l.count ? read_options(&l, from) : NULL;
}

/* The first container that starts the server, wherever it stands. */
static tide_json *find_container(tide_arena *arena, const tide_json *node, int depth) {
    bool is_object = node->kind == TIDE_JSON_OBJECT;
    if (depth > SHELL_DEPTH_LIMIT || (!is_object && node->kind != TIDE_JSON_ARRAY)) return NULL;
    if (is_object &&
        (tide_json_at(node, "command") || tide_json_at(node, "args") || tide_json_at(node, "entrypoint"))) {
        tide_json *options = find_in_container(arena, node);
        if (options) return options;
    }
    for (const tide_json *child = node->first; child; child = child->next) {
        tide_json *options = find_container(arena, child, depth + 1);
        if (options) return options;
    }
    return NULL;
}

static bool has_containers(const tide_json *root) {
    return tide_json_is(tide_json_at(root, "services"), TIDE_JSON_OBJECT) ||
           (tide_json_at(root, "apiVersion") && tide_json_at(root, "kind"));
}

static void read_containers(tide_reading *r, tide_json *root) {
    tide_json *options = find_container(r->arena, root, 0);
    if (options)
        tide_claims_add(r->claims, &tide_vllm_command_reader, options, r->name, r->place);
    else
        tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, "starts containers, but none of them runs `vllm serve`",
                         TIDE_GIVE_CONFIG);
}

static const tide_key_row command_rows[] = {KEY_HOLDS("config", tide_vllm_keys)};

static const tide_key_table command_keys = {
    .rows = command_rows, .count = TIDE_COUNT_OF(command_rows), .more = &tide_vllm_keys};

const tide_reader tide_vllm_command_reader = {.title = "a command line of vLLM",
                                              .recognises = has_containers,
                                              .read = read_containers,
                                              .keys = &command_keys,
                                              .precedence = 2,
                                              .settle = tide_vllm_settle};
