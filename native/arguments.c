/* SPDX-License-Identifier: Apache-2.0 */
/* The words after a command: options, files, links and settings.
 *
 * A word is a link if it has a fragment of settings (#a=b, a=b&c=d or z=1.TEXT), a setting if it contains "=", a file
 * if one of that name exists, and otherwise the model's name. --NAME VALUE is a setting unless it is an option. The
 * command of a server or of a training is treated as a file (pasted.c). */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void list_add(char ***list, size_t *count, const char *text, size_t length) {
    *list = cli_grow(*list, *count, sizeof **list);
    cli_buffer copy = {0};
    cli_append(&copy, text, length);
    (*list)[(*count)++] = copy.at;
}

static void list_free(char **list, size_t count) {
    for (size_t i = 0; i < count; i++) free(list[i]);
    free(list);
}

void cli_arguments_free(cli_arguments *arguments) {
    list_free(arguments->words, arguments->word_count);
    list_free(arguments->paths, arguments->path_count);
    list_free(arguments->with, arguments->with_count);
    list_free(arguments->where, arguments->where_count);
    cli_buffer_free(&arguments->link);
    cli_buffer_free(&arguments->command);
    *arguments = (cli_arguments){0};
}

/* ---- options ---- */

typedef struct option {
    const char *name;
    unsigned needs; /* of CLI_TAKES_* */
    bool has_value;
} option;

static const option options[] = {
    {"--help", 0, false},
    {"--json", CLI_TAKES_JSON, false},
    {"--bytes", CLI_TAKES_BYTES, false},
    {"--of", CLI_TAKES_OF, true},
    {"--stage", CLI_TAKES_OF, true},
    {"--base", CLI_TAKES_BASE, true},
    {"--was", CLI_TAKES_BASE, false},
    {"--page", CLI_TAKES_PAGE, true},
    {"--html", CLI_TAKES_HTML, false},
    {"--print", CLI_TAKES_PRINT, false},
    {"--lines", CLI_TAKES_LINES, false},
    {"--max", CLI_TAKES_BADGE, true},
    {"--out", CLI_TAKES_BADGE, true},
    {"--configs", CLI_TAKES_VERIFY, true},
    {"--where", CLI_TAKES_VERIFY, true},
    {"--csv", CLI_TAKES_CSV, true},
    {"--tolerance", CLI_TAKES_VERIFY, true},
    {"--device", CLI_TAKES_DEVICE, true},
    {"--events", CLI_TAKES_EVENTS, false},
    {"--state", CLI_TAKES_EVENTS, false},
    {"--at", CLI_TAKES_EVENTS, true},
    {"--count", CLI_TAKES_EVENTS, true},
    {"--filter", CLI_TAKES_EVENTS, true},
    {"--knob", CLI_TAKES_KNOB, true},
    {"--by", CLI_TAKES_KNOB, true},
    {"--with", CLI_TAKES_WITH, true},
    {"--recording", CLI_TAKES_WITH, true},
};

static void option_take(cli_arguments *a, const char *name, const char *value) {
    if (strcmp(name, "--help") == 0) a->shows_help = true;
    if (strcmp(name, "--json") == 0) a->is_json = true;
    if (strcmp(name, "--bytes") == 0) a->shows_bytes = true;
    if (strcmp(name, "--of") == 0) a->of = value;
    if (strcmp(name, "--stage") == 0) a->stage = value;
    if (strcmp(name, "--base") == 0) a->base = value;
    if (strcmp(name, "--was") == 0) a->notes_was = true;
    if (strcmp(name, "--page") == 0) a->page = value;
    if (strcmp(name, "--print") == 0) a->prints = true;
    if (strcmp(name, "--lines") == 0) a->are_lines = true;
    if (strcmp(name, "--max") == 0) a->most = value;
    if (strcmp(name, "--out") == 0) a->out = value;
    if (strcmp(name, "--configs") == 0) a->configs = value;
    if (strcmp(name, "--csv") == 0) a->csv = value;
    if (strcmp(name, "--tolerance") == 0) a->tolerance = value;
    if (strcmp(name, "--device") == 0) a->device = value;
    if (strcmp(name, "--events") == 0) a->shows_events = true;
    if (strcmp(name, "--state") == 0) a->shows_state = true;
    if (strcmp(name, "--at") == 0) a->at = value;
    if (strcmp(name, "--count") == 0) a->count = value;
    if (strcmp(name, "--filter") == 0) a->filter = value;
    if (strcmp(name, "--knob") == 0) a->knob = value;
    if (strcmp(name, "--by") == 0) a->by = value;
    if (strcmp(name, "--recording") == 0) a->recording = value;
    if (strcmp(name, "--with") == 0) list_add(&a->with, &a->with_count, value, strlen(value));
    if (strcmp(name, "--where") == 0) list_add(&a->where, &a->where_count, value, strlen(value));
}

/* --zero 2, --grad-accum=8, --padding, -tp 2: zero=2, grad_accum=8, padding=true, tp=2. */
static void setting_take(cli_arguments *a, int argc, char **argv, int *at) {
    const char *name = argv[*at] + strspn(argv[*at], "-"), *equals = strchr(name, '=');
    const char *next = *at + 1 < argc && argv[*at + 1][0] != '-' ? argv[*at + 1] : NULL;
    cli_buffer word = {0};
    cli_append(&word, name, equals ? (size_t)(equals - name) : strlen(name));
    for (size_t i = 0; i < word.length; i++)
        if (word.at[i] == '-') word.at[i] = '_';
    cli_format(&word, "=%s", equals ? equals + 1 : next ? next : "true");
    *at += !equals && next;
    if (a->with_count)
        list_add(&a->with, &a->with_count, word.at, word.length);
    else
        list_add(&a->words, &a->word_count, word.at, word.length);
    cli_buffer_free(&word);
}

/* Consumes argv[*at] and its value. */
static int option_read(cli_arguments *a, int argc, char **argv, int *at, unsigned takes) {
    const char *word = strcmp(argv[*at], "-h") == 0 ? "--help" : argv[*at];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    bool is_short = length == 3 && word[2] == 'p'; /* -tp, -pp and -dp of vLLM */
    bool is_setting = (takes & CLI_TAKES_SETTINGS) && length > 2 && (is_short || strncmp(word, "--", 2) == 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const option *o = &options[i];
        if (strlen(o->name) != length || strncmp(o->name, word, length) != 0) continue;
        is_setting = false;
        if ((o->needs & takes) != o->needs) break;
        const char *value = NULL;
        if (o->has_value) {
            value = equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
            if (!value) {
                cli_complain(NULL, "%s needs a value", o->name);
                return CLI_BAD_INPUT;
            }
        } else if (equals) {
            cli_complain(NULL, "%s takes no value", o->name);
            return CLI_BAD_INPUT;
        }
        option_take(a, o->name, value);
        return CLI_OK;
    }
    if (is_setting) {
        setting_take(a, argc, argv, at);
        return CLI_OK;
    }
    cli_complain("--help lists the options", "no option %s here", argv[*at]);
    return CLI_BAD_INPUT;
}

/* ---- words ---- */

static bool has_path(const cli_arguments *a, const char *path) {
    for (size_t i = 0; i < a->path_count; i++)
        if (strcmp(a->paths[i], path) == 0) return true;
    return false;
}

/* The files named in a checkpoint's index, if they exist next to it. */
static void shards_read(cli_arguments *a, const char *path) {
    cli_buffer text = {0};
    if (!cli_is_file(path) || !cli_read_file(&text, path)) return;
    cJSON *index = cJSON_ParseWithLength(text.at, text.length);
    const cJSON *entry;
    const char *last = "";
    cJSON_ArrayForEach(entry, cli_at(index, "weight_map")) {
        const char *name = cJSON_GetStringValue(entry);
        if (!name || strchr(name, '/') || strcmp(name, last) == 0) continue;
        last = name;
        cli_buffer shard = {0};
        cli_format(&shard, "%.*s%s", (int)(cli_base_name(path) - path), path, name);
        if (cli_is_file(shard.at) && !has_path(a, shard.at))
            list_add(&a->paths, &a->path_count, shard.at, shard.length);
        cli_buffer_free(&shard);
    }
    cJSON_Delete(index);
    cli_buffer_free(&text);
}

static void folder_read(cli_arguments *a, const char *path) {
    static const char *const names[] = {"config.json", "preprocessor_config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cli_buffer name = {0};
        cli_format(&name, "%s/%s", path, names[i]);
        if (i == 0 || cli_is_file(name.at)) list_add(&a->paths, &a->path_count, name.at, name.length);
        if (i == 3) shards_read(a, name.at);
        cli_buffer_free(&name);
    }
}

/* A name with the extension of a file, whether or not that exists. */
static bool ends_as_file(const char *word) {
    static const char *const endings[] = {".json", ".yaml", ".yml", ".toml", ".sh", ".txt", ".gguf", ".safetensors"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (cli_ends_in(word, endings[i])) return true;
    return false;
}

/* Words that are not settings form one text: qwen 2.5 7b. */
static void name_read(cli_arguments *a, const char *word) {
    cli_buffer name = {0};
    if (a->has_name) {
        cli_format(&name, "%s %s", a->words[a->name_at], word);
        free(a->words[a->name_at]);
        a->words[a->name_at] = name.at;
        return;
    }
    cli_format(&name, "model=%s", word);
    a->has_name = true;
    a->name_at = a->word_count;
    list_add(&a->words, &a->word_count, name.at, name.length);
    cli_buffer_free(&name);
}

/* A word for a folder with a slash in it, or a folder that contains a model, which from_pretrained prefers to the Hub.
 */
static bool is_model_folder(const char *word) {
    cli_buffer name = {0};
    if (!cli_is_folder(word)) return false;
    cli_format(&name, "%s/config.json", word);
    bool is_one = strchr(word, '/') || cli_is_file(name.at);
    cli_buffer_free(&name);
    return is_one;
}

/* A program in this folder, such as "run", is a word of a question, unless it has a path, an extension or a dash. */
static bool is_program(const char *word) {
    return !strpbrk(word, "./-_") && access(word, X_OK) == 0;
}

static int word_read(cli_arguments *a, const char *word, unsigned takes) {
    const char *fragment = cli_link_fragment(word);
    bool is_path = (takes & CLI_NAMES_ARE_PATHS) && !strchr(word, '=');
    if (strcmp(word, "-") == 0 || is_path || (cli_is_file(word) && !is_program(word))) {
        list_add(&a->paths, &a->path_count, word, strlen(word));
        if (cli_ends_in(word, ".safetensors.index.json")) shards_read(a, word);
    } else if (fragment) {
        cli_buffer_free(&a->link);
        return cli_link_read(&a->link, fragment) ? CLI_OK : CLI_BAD_INPUT;
    } else if (strchr(word, '=')) {
        list_add(&a->words, &a->word_count, word, strlen(word));
    } else if (is_model_folder(word)) {
        folder_read(a, word);
    } else if (ends_as_file(word)) {
        list_add(&a->paths, &a->path_count, word, strlen(word)); /* to be reported as missing */
    } else {
        name_read(a, word);
    }
    return CLI_OK;
}

void cli_arguments_add(cli_arguments *a, const char *word) {
    for (size_t i = 0; i < a->word_count; i++)
        if (strcmp(a->words[i], word) == 0) return;
    list_add(&a->words, &a->word_count, word, strlen(word));
}

int cli_arguments_read(cli_arguments *a, int argc, char **argv, unsigned takes) {
    *a = (cli_arguments){0};
    bool are_words = false; /* after "--" */
    for (int i = 0; i < argc; i++) {
        bool may_be_command = (takes & CLI_TAKES_SETTINGS) && !a->with_count && !a->command.length;
        if (may_be_command && strpbrk(argv[i], " \t\n") && cli_is_command(argv[i])) {
            cli_append_text(&a->command, argv[i]);
            continue;
        }
        if (may_be_command) {
            argc = i + cli_command_read(&a->command, argc - i, argv + i);
            are_words = are_words && !a->command.length;
            if (i == argc) break;
        }
        const char *word = argv[i];
        if (!are_words && strcmp(word, "--") == 0) {
            are_words = true;
        } else if (!are_words && word[0] == '-' && word[1]) {
            int status = option_read(a, argc, argv, &i, takes);
            if (status != CLI_OK) return status;
        } else if (takes & CLI_ARE_PATHS) {
            list_add(&a->paths, &a->path_count, word, strlen(word));
        } else if (takes & CLI_ARE_TOPICS) {
            list_add(&a->words, &a->word_count, word, strlen(word));
        } else if (a->with_count && strchr(word, '=')) {
            list_add(&a->with, &a->with_count, word, strlen(word)); /* --with takes all settings after it */
        } else {
            int status = word_read(a, word, takes);
            if (status != CLI_OK) return status;
        }
    }
    return CLI_OK;
}
