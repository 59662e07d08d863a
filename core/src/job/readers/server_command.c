/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that start an inference server: in a script, a Docker compose file, or a Kubernetes manifest. */
#include "job/readers/server_command.h"

#include <string.h>

#include "base/units.h"
#include "job/readers/command_programs.h"
#include "job/readers/requirements.h"
#include "job/readers/shell_variables.h"

enum { SHELL_DEPTH_LIMIT = 24 };

static const tide_server *const servers[] = {&tide_vllm_server, &tide_llama_server, &tide_sglang_server};

/* ---- the command ---- */

/* --max-model-len as max_model_len; a short name as the long one, also before a dot: -cc.cudagraph_mode. */
static const char *option_key(tide_arena *arena, const tide_server *server, tide_text token) {
    const char *dot = memchr(token.at, '.', token.length);
    tide_text name = {token.at, dot ? (size_t)(dot - token.at) : token.length};
    for (size_t i = 0; server->names[i][0]; i++)
        if (tide_text_is(name, server->names[i][0]))
            return tide_format(arena, "%s%.*s", server->names[i][1], (int)(token.length - name.length),
                               token.at + name.length);
    while (token.length && *token.at == '-') token.at++, token.length--;
    char *key = tide_text_copy(arena, token);
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    return key;
}

/* An option without a value, or with a boolean. */
static bool is_switch(const tide_server *server, const char *key, const char *next) {
    static const char *const truths[] = {"true", "false", "1", "0"};
    for (size_t i = 0; i < TIDE_COUNT_OF(truths); i++)
        if (tide_text_same(tide_text_of(next), tide_text_of(truths[i]))) return false;
    if (tide_text_is_among(tide_text_of(key), server->switches)) return true;
    tide_setting_id id = tide_setting_find(tide_text_of(key));
    return strncmp(key, "no_", 3) == 0 || (id < TIDE_SET_COUNT && tide_settings[id].type == TIDE_SETTING_BOOL);
}

/* --no-enable-prefix-caching is enable_prefix_caching=false: argparse.BooleanOptionalAction. */
static void put_switch(tide_arena *arena, const tide_server *server, tide_json *options, const char *key) {
    bool is_off = strncmp(key, "no_", 3) == 0 && !tide_key_find(server->reader->keys, tide_text_of(key));
    server->put(arena, options, tide_text_of(is_off ? key + 3 : key), is_off ? "false" : "true");
}

tide_json *tide_server_options(const tide_server *server, const tide_command_line *l, uint32_t from) {
    tide_arena *arena = l->arena;
    tide_json *options = tide_json_new(arena, TIDE_JSON_OBJECT);
    if (server->begin) server->begin(arena, options, l, from);
    for (uint32_t i = from; i < l->count; i++) {
        const char *token = l->tokens[i], *equals = strchr(token, '='),
                   *next = i + 1 < l->count ? l->tokens[i + 1] : "-";
        if (!tide_shell_is_option(token)) {
            if (!tide_json_at(options, server->model)) server->put(arena, options, tide_text_of(server->model), token);
            continue;
        }
        const char *key =
            option_key(arena, server, (tide_text){token, equals ? (size_t)(equals - token) : strlen(token)});
        if (!*key) continue;
        if (equals) {
            server->put(arena, options, tide_text_of(key), equals + 1);
        } else if (strcmp(next, "-") == 0 || tide_shell_is_option(next) || is_switch(server, key, next)) {
            put_switch(arena, server, options, key);
        } else {
            const char *value = next;
            i++;
            while (tide_text_is_among(tide_text_of(key), server->lists) && i + 1 < l->count &&
                   !tide_shell_is_option(l->tokens[i + 1]))
                value = tide_format(arena, "%s,%s", value, l->tokens[++i]);
            server->put(arena, options, tide_text_of(key), value);
        }
    }
    return options;
}

/* The server that is started, and its options; server NULL: none. */
typedef struct server_start {
    const tide_server *server;
    tide_json *options;
    tide_text image; /* of its container; empty: not known */
} server_start;

static server_start start_of(const tide_command_line *l) {
    for (size_t i = 0; i < TIDE_COUNT_OF(servers); i++) {
        uint32_t from = servers[i]->find(l);
        if (from < l->count) return (server_start){servers[i], tide_server_options(servers[i], l, from), {0}};
    }
    return (server_start){.server = NULL};
}

/* `docker run ... IMAGE OPTIONS`: the entry point of a server's official image is the server. */
static server_start start_of_image(const tide_command_line *l) {
    bool is_of_containers = false, runs = false;
    for (uint32_t at = 0; at < l->count; at++) {
        runs = runs || (is_of_containers && strcmp(l->tokens[at], "run") == 0);
        is_of_containers = is_of_containers || tide_is_program_of(l->tokens[at], TIDE_STARTS_CONTAINER);
        for (size_t i = 0; i < TIDE_COUNT_OF(servers) && runs; i++)
            if (!tide_shell_is_option(l->tokens[at]) &&
                tide_text_matches(tide_text_of(l->tokens[at]), tide_text_of(servers[i]->image)))
                return (server_start){servers[i], tide_server_options(servers[i], l, at + 1),
                                      tide_text_of(l->tokens[at])};
    }
    return (server_start){.server = NULL};
}

/* The first command in a script that starts a server. */
static server_start find_in_script(tide_arena *arena, tide_text text) {
    const tide_shell_variable *variables = tide_shell_variables(arena, text);
    tide_command_line l = {.arena = arena};
    for (size_t at = 0; at < text.length;) {
        tide_shell_read(&l, text, &at);
        tide_shell_expand(&l, variables);
        server_start start = start_of(&l);
        if (!start.server) start = start_of_image(&l);
        if (start.server) return start;
    }
    return (server_start){.server = NULL};
}

static bool has_mark_of_server(tide_text text) {
    for (size_t i = 0; i < TIDE_COUNT_OF(servers); i++) {
        tide_text rest = tide_text_of(servers[i]->marks), mark;
        while (tide_piece_next(&rest, '|', &mark))
            if (tide_text_contains(text, mark)) return true;
    }
    return false;
}

/* The version in the tag of an official image: "v0.6.3" of vllm/vllm-openai, "server-cuda-b4719" of llama.cpp. */
static void read_image(tide_reading *r, const server_start *start) {
    size_t length = strlen(start->server->images), at = 0;
    tide_text rest = start->image, part;
    int64_t build;
    while (at + length <= rest.length && memcmp(rest.at + at, start->server->images, length) != 0) at++;
    if (at + length > rest.length) return;
    rest = (tide_text){rest.at + at + length, rest.length - at - length};
    while (tide_piece_next(&rest, '-', &part)) {
        bool is_build =
            part.length > 1 && part.at[0] == 'b' && tide_text_to_i64(&build, (tide_text){part.at + 1, part.length - 1});
        if (part.length > 1 && part.at[0] == 'v') part.at++, part.length--;
        if (!is_build && !tide_version_number(tide_text_copy(r->arena, part))) continue;
        tide_pin_add(r, start->server->library, part);
        return;
    }
}

static void add_start(tide_reading *r, const server_start *start) {
    tide_claims_add(r->claims, start->server->reader, start->options, r->name, r->place);
    read_image(r, start);
}

bool tide_server_read_script(tide_reading *r) {
    bool may_be = r->text.length < TIDE_SHELL_SCRIPT_LIMIT && has_mark_of_server(r->text);
    server_start start = may_be ? find_in_script(r->arena, r->text) : (server_start){.server = NULL};
    if (start.server) add_start(r, &start);
    return start.server != NULL;
}

/* ---- containers ---- */

/* "command" of a container is a text or a list of words, one of which may be a script (sh -c). */
static void add_words(tide_command_line *l, const tide_json *value, server_start *script) {
    if (tide_json_is(value, TIDE_JSON_STRING)) {
        size_t at = 0;
        tide_command_line part = {.arena = l->arena};
        tide_shell_read(&part, value->text, &at);
        if (!script->server) *script = find_in_script(l->arena, value->text);
        for (uint32_t i = 0; i < part.count; i++) tide_shell_add(l, part.tokens[i]);
    }
    for (const tide_json *word = tide_json_is(value, TIDE_JSON_ARRAY) ? value->first : NULL; word; word = word->next) {
        const char *text = tide_argument_value(l->arena, word);
        if (!text) continue;
        bool may_be_script = tide_json_is(word, TIDE_JSON_STRING) && memchr(word->text.at, ' ', word->text.length);
        if (may_be_script && !script->server) *script = find_in_script(l->arena, word->text);
        tide_shell_add(l, text);
    }
}

/* The entry point of a server's official image is the server, so the command consists of its options. */
static server_start find_in_container(tide_arena *arena, const tide_json *container) {
    static const char *const keys[] = {"entrypoint", "command", "args"};
    const tide_json *image = tide_json_at(container, "image");
    tide_command_line l = {.arena = arena};
    server_start script = {.server = NULL};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) add_words(&l, tide_json_at(container, keys[i]), &script);
    server_start start = script.server ? script : start_of(&l);
    for (size_t i = 0; i < TIDE_COUNT_OF(servers) && !start.server && l.count; i++)
        if (tide_json_is(image, TIDE_JSON_STRING) && tide_text_matches(image->text, tide_text_of(servers[i]->image)))
            start = (server_start){servers[i], tide_server_options(servers[i], &l, 0), {0}};
    if (tide_json_is(image, TIDE_JSON_STRING)) start.image = image->text;
    return start;
}

/* The first container that starts a server, at any depth. */
static server_start find_container(tide_arena *arena, const tide_json *node, int depth) {
    server_start none = {.server = NULL};
    bool is_object = node->kind == TIDE_JSON_OBJECT;
    if (depth > SHELL_DEPTH_LIMIT || (!is_object && node->kind != TIDE_JSON_ARRAY)) return none;
    if (is_object &&
        (tide_json_at(node, "command") || tide_json_at(node, "args") || tide_json_at(node, "entrypoint"))) {
        server_start start = find_in_container(arena, node);
        if (start.server) return start;
    }
    for (const tide_json *child = node->first; child; child = child->next) {
        server_start start = find_container(arena, child, depth + 1);
        if (start.server) return start;
    }
    return none;
}

static bool has_containers(const tide_json *root) {
    return tide_json_is(tide_json_at(root, "services"), TIDE_JSON_OBJECT) ||
           (tide_json_at(root, "apiVersion") && tide_json_at(root, "kind"));
}

void tide_server_read_containers(tide_reading *r, tide_json *root) {
    server_start start = find_container(r->arena, root, 0);
    if (start.server)
        add_start(r, &start);
    else
        tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN,
                         "starts containers, but none of them runs `vllm serve`, llama-server or sglang.launch_server",
                         TIDE_GIVE_CONFIG);
}

const tide_reader tide_server_command_reader = {
    .title = "containers that start a server", .recognises = has_containers, .read = tide_server_read_containers};
