/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the files of a job refer to by path: a DeepSpeed configuration, the base of a recipe, the configurations
 * in a script's command. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED_LIMIT = 1 << 20, FOLDERS_ABOVE = 8 };

/* A member of an object; or an option of a command, followed by a blank or "=" and the path. */
static const struct {
    const char *key, *ends[3]; /* of the names of files */
    bool is_option;
} rows[] = {
    {"deepspeed", {".json"}, false},
    {"defaults", {".yaml", ".yml"}, false},
    {"--config_file", {".yaml", ".yml", ".json"}, true},
    {"--config-file", {".yaml", ".json"}, true},
    {"--deepspeed", {".json"}, true},
    {"--config", {".yaml", ".yml"}, true},
    {"--deepspeed_config", {".json"}, true},
    {"axolotl train", {".yml", ".yaml"}, true},
    {"axolotl.cli.train", {".yml", ".yaml"}, true},
    {"llamafactory-cli train", {".yaml", ".json"}, true},
};

static bool has_end(const char *name, size_t row) {
    const char *const *ends = rows[row].ends;
    for (size_t i = 0; i < sizeof rows->ends / sizeof *rows->ends && ends[i]; i++)
        if (cli_ends_in(name, ends[i])) return true;
    return false;
}

/* A path is relative to this folder, where programs open it, to the file, or to a folder above it. */
static bool find_file(cli_buffer *found, const char *named, const char *path) {
    size_t length = (size_t)(cli_base_name(path) - path);
    found->length = 0;
    cli_append_text(found, named);
    if (cli_is_file(named)) return true;
    for (int above = 0; above < FOLDERS_ABOVE && named[0] != '/'; above++) {
        found->length = 0;
        cli_append(found, path, length);
        for (int i = 0; i < above && path[0] != '/'; i++) cli_append_text(found, "../");
        cli_append_text(found, named);
        if (cli_is_file(found->at)) return true;
        if (path[0] != '/') continue;
        if (length < 2) return false;
        for (length--; length > 0 && path[length - 1] != '/';) length--;
    }
    return false;
}

static void add_named(cli_named *named, const char *name, const char *path) {
    cli_buffer found = {0};
    bool is_new = named->count < CLI_NAMED_MOST && find_file(&found, name, path);
    for (size_t i = 0; i < named->count && is_new; i++)
        is_new = strcmp(cli_base_name(named->paths[i].at), cli_base_name(found.at)) != 0;
    if (is_new)
        named->paths[named->count++] = found;
    else
        cli_buffer_free(&found);
}

/* Finds what follows an option of a command. */
static void find_options(cli_named *named, const char *text, size_t row, const char *path) {
    size_t length = strlen(rows[row].key);
    for (const char *at = text; (at = strstr(at, rows[row].key)); at += length) {
        const char *value = at + length;
        if (*value != ' ' && *value != '=') continue;
        value += strspn(value, " =\"'");
        cli_buffer name = {0};
        cli_append(&name, value, strcspn(value, " \t\r\n\"'\\"));
        if (name.length && !strchr(name.at, '$') && has_end(name.at, row)) add_named(named, name.at, path);
        cli_buffer_free(&name);
    }
}

void cli_named_find(cli_named *named, const char *text, size_t length, const char *path) {
    if (!text || length > NAMED_LIMIT || strlen(text) != length) return;
    bool is_object = text[strspn(text, " \t\r\n")] == '{', has_key = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) has_key |= !rows[i].is_option && strstr(text, rows[i].key);
    cJSON *root = is_object && has_key ? cJSON_ParseWithLength(text, length) : NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].is_option && !is_object) find_options(named, text, i, path);
        const cJSON *value = rows[i].is_option ? NULL : cJSON_GetObjectItemCaseSensitive(root, rows[i].key);
        if (cJSON_IsArray(value) && cJSON_GetArraySize(value) == 1) value = cJSON_GetArrayItem(value, 0);
        const char *name = cJSON_IsString(value) ? value->valuestring : "";
        if (name[0] && has_end(name, i)) add_named(named, name, path);
    }
    cJSON_Delete(root);
}

void cli_named_free(cli_named *named) {
    for (size_t i = 0; i < named->count; i++) cli_buffer_free(&named->paths[i]);
    *named = (cli_named){0};
}
