/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark describe`: what the core knows, as tables or as JSON. */
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_INDENT = 4 };

/* ---- settings ---- */

static void setting_values(cli_buffer *text, const cJSON *setting) {
    const cJSON *choices = cli_at(setting, "choices"), *choice;
    const char *unit = cli_text_at(setting, "unit"), *type = cli_text_at(setting, "type");
    if (cJSON_GetArraySize(choices) > 0) {
        cJSON_ArrayForEach(choice, choices)
            cli_format(text, "%s%s", choice->prev && choice != choices->child ? "|" : "",
                       cJSON_IsString(choice) ? choice->valuestring : "");
    } else {
        cli_format(text, "%s%s%s", type, unit[0] ? ", " : "", unit);
    }
}

static void setting_show(const cJSON *setting) {
    const cJSON *aliases = cli_at(setting, "aliases"), *alias;
    const char *standard = cli_text_at(setting, "default");
    cli_buffer text = {0};
    printf("  %s%s%s", cli_styled(CLI_BOLD), cli_text_at(setting, "name"), cli_styled_end());
    if (standard[0]) printf("=%s", standard);
    cJSON_ArrayForEach(alias, aliases)
        printf("%s%s", alias == aliases->child ? ", or " : ", ", cJSON_IsString(alias) ? alias->valuestring : "");
    putchar('\n');
    setting_values(&text, setting);
    printf("%*s%s", HELP_INDENT, "", cli_styled(CLI_DIM));
    cli_wrapped(text.at, HELP_INDENT, HELP_INDENT);
    printf("%s%*s", cli_styled_end(), HELP_INDENT, "");
    cli_wrapped(cli_text_at(setting, "help"), HELP_INDENT, HELP_INDENT);
    cli_buffer_free(&text);
}

static void settings_show(const cJSON *settings) {
    const cJSON *setting, *other;
    puts("Written as name=value, here with the default; lists are separated by commas.");
    cJSON_ArrayForEach(setting, settings) {
        /* A group is shown at its first setting. */
        const char *group = cli_text_at(setting, "group");
        bool is_first = true;
        cJSON_ArrayForEach(other, settings) {
            if (other == setting) break;
            if (strcmp(cli_text_at(other, "group"), group) == 0) is_first = false;
        }
        if (!is_first) continue;
        cli_buffer title = {0};
        cli_append_text(&title, group);
        if (title.length) title.at[0] = (char)toupper((unsigned char)title.at[0]);
        cli_heading(title.at);
        cJSON_ArrayForEach(other, settings) if (strcmp(cli_text_at(other, "group"), group) == 0) setting_show(other);
        cli_buffer_free(&title);
    }
}

/* ---- models, GPUs, operations ---- */

/* 86, which counts tenths, as "8.6". */
static const char *capability_text(cli_number out, int64_t tenths) {
    snprintf(out, sizeof(cli_number), "%" PRId64 ".%" PRId64, tenths / 10, tenths % 10);
    return out;
}

/* Selected members of each object; numbers with separators. */
static void list_show(const cJSON *list, const char *const *keys, const char *const *heads, size_t count) {
    const cJSON *row;
    cli_table table;
    cli_number text;
    cli_table_init(&table, count);
    for (size_t i = 0; i < count; i++) {
        table.is_left[i] = !cJSON_IsNumber(cli_at(list ? list->child : NULL, keys[i]));
        table.limit[i] = 50;
        cli_table_cell(&table, heads[i]);
    }
    cJSON_ArrayForEach(row, list) {
        for (size_t i = 0; i < count; i++) {
            const cJSON *cell = cli_at(row, keys[i]);
            if (strcmp(keys[i], "bytes") == 0)
                cli_table_cell(&table, cli_size(text, cli_int(cell)));
            else if (strcmp(keys[i], "capability") == 0)
                cli_table_cell(&table, capability_text(text, cli_int(cell)));
            else if (cJSON_IsNumber(cell))
                cli_table_cell(&table, cli_count(text, cli_int(cell)));
            else
                cli_table_cell(&table, cli_text_at(row, keys[i]));
        }
    }
    cli_table_print(&table);
}

static void models_show(const cJSON *models) {
    static const char *const keys[] = {"name", "title", "parameters", "model_type"};
    static const char *const heads[] = {"Name", "Model", "Parameters", "model_type"};
    list_show(models, keys, heads, 4);
}

static void gpus_show(const cJSON *gpus) {
    static const char *const keys[] = {"name", "title", "bytes", "capability"};
    static const char *const heads[] = {"Name", "GPU", "Memory", "Capability"};
    list_show(gpus, keys, heads, 4);
}

static void ops_show(const cJSON *ops) {
    const cJSON *op;
    cli_buffer text = {0};
    cJSON_ArrayForEach(op, ops) {
        const char *name = cJSON_IsString(op) ? op->valuestring : cli_text_at(op, "name");
        cli_format(&text, "%s%s", text.length ? " " : "", name);
    }
    if (text.length) cli_wrapped(text.at, 0, 0);
    cli_buffer_free(&text);
}

static const struct {
    const char *name;
    void (*show)(const cJSON *list);
} topics[] = {{"settings", settings_show}, {"models", models_show}, {"gpus", gpus_show}, {"ops", ops_show}};

enum { TOPIC_COUNT = sizeof topics / sizeof *topics };

/* ---- one thing by its name ---- */

static bool is_named(const cJSON *entry, const char *name) {
    const cJSON *alias;
    if (strcmp(cli_text_at(entry, "name"), name) == 0) return true;
    cJSON_ArrayForEach(alias, cli_at(entry, "aliases")) if (cJSON_IsString(alias) &&
                                                            strcmp(alias->valuestring, name) == 0) return true;
    return false;
}

static void entry_show(const cJSON *entry) {
    const cJSON *member;
    cli_number text;
    cJSON_ArrayForEach(member, entry) {
        if (cJSON_IsArray(member) || cJSON_IsObject(member)) continue;
        printf("%-16s", member->string);
        if (cJSON_IsNumber(member))
            printf("%s", cli_count(text, cli_int(member)));
        else
            printf("%s", cJSON_IsString(member) ? member->valuestring : "");
        if (cJSON_IsNumber(member) && strcmp(member->string, "bytes") == 0)
            printf(" (%s)", cli_size(text, cli_int(member)));
        putchar('\n');
    }
}

static int name_show(const cJSON *answer, const char *name) {
    const cJSON *entry;
    for (int i = 0; i < TOPIC_COUNT; i++) cJSON_ArrayForEach(entry, cli_at(answer, topics[i].name)) {
            if (!is_named(entry, name)) continue;
            if (topics[i].show == settings_show)
                setting_show(entry);
            else
                entry_show(entry);
            return CLI_OK;
        }
    cli_complain("topics are settings, models, gpus and ops", "nothing is named \"%s\"", name);
    return CLI_BAD_INPUT;
}

static void summary_show(const cJSON *answer) {
    for (int i = 0; i < TOPIC_COUNT; i++)
        printf("%-10s%4d   tidemark describe %s\n", topics[i].name, cJSON_GetArraySize(cli_at(answer, topics[i].name)),
               topics[i].name);
}

static int topic_show(const cJSON *answer, const char *name) {
    for (int i = 0; i < TOPIC_COUNT; i++)
        if (strcmp(topics[i].name, name) == 0) {
            topics[i].show(cli_at(answer, name));
            return CLI_OK;
        }
    return name_show(answer, name);
}

/* Everything, or the list of one topic. */
static void json_show(const cli_answer *answer, const char *topic) {
    const cJSON *list = topic ? cli_at(answer->json, topic) : NULL;
    char *text = cJSON_Print(list ? list : answer->json);
    if (text) puts(text);
    cJSON_free(text);
}

/* The errors in a description, in the format of compilers. */
static int check_show(const cJSON *check, const char *path) {
    const cJSON *found;
    cJSON_ArrayForEach(found, cli_at(check, "found")) {
        const char *remedy = cli_text_at(found, "remedy");
        printf("%s:%.0f:%.0f: %s: %s\n", path, cli_at(found, "line")->valuedouble, cli_at(found, "column")->valuedouble,
               cli_text_at(found, "severity"), cli_text_at(found, "message"));
        if (remedy[0]) printf("%*s%s\n", HELP_INDENT, "", remedy);
    }
    if (cli_int(cli_at(check, "errors")) > 0) return CLI_BAD_INPUT;
    printf("%s: no errors\n", path);
    return CLI_OK;
}

static int check_description(const char *path, bool is_json) {
    cli_buffer text = {0}, request = {0};
    cli_answer answer = {0};
    if (!cli_read_file(&text, path)) return CLI_NO_FILE;
    cli_append_text(&request, "{\"call\":\"describe\",\"check\":");
    cli_append_quoted(&request, text.at ? text.at : "", text.length);
    cli_append_text(&request, "}");
    int status = cli_ask_or_explain(&answer, &request, is_json);
    if (status == CLI_OK && is_json) {
        char *shown = cJSON_Print(cli_at(answer.json, "check"));
        if (shown) puts(shown);
        cJSON_free(shown);
        if (cli_int(cli_at(cli_at(answer.json, "check"), "errors")) > 0) status = CLI_BAD_INPUT;
    } else if (status == CLI_OK) {
        status = check_show(cli_at(answer.json, "check"), path);
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&text);
    return status;
}

static int cli_describe(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[0], "--check") == 0)
        return check_description(argv[1], argc > 2 && strcmp(argv[2], "--json") == 0);
    cli_arguments arguments;
    cli_buffer request = {0};
    cli_answer answer = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_JSON | CLI_ARE_TOPICS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "describe");
    } else if (status == CLI_OK && arguments.word_count > 1) {
        cli_complain(NULL, "one topic at a time");
        status = CLI_BAD_INPUT;
    } else if (status == CLI_OK) {
        const char *topic = arguments.word_count ? arguments.words[0] : NULL;
        cli_append_text(&request, "{\"call\":\"describe\"}");
        status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK && arguments.is_json && !topic)
            printf("%.*s\n", (int)answer.length, answer.text);
        else if (status == CLI_OK && arguments.is_json)
            json_show(&answer, topic);
        else if (status == CLI_OK && topic)
            status = topic_show(answer.json, topic);
        else if (status == CLI_OK)
            summary_show(answer.json);
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_describe_command = {
    "describe", cli_describe, "describe [settings|models|gpus|ops|NAME | --check FILE] [--json]",
    "settings, models, GPUs and operations that tidemark knows",
    "Without a topic, how many of each there are. NAME shows one setting, model or GPU.\n\n"
    "examples\n"
    "  tidemark describe settings\n"
    "  tidemark describe checkpointing\n"
    "  tidemark describe --json | jq '.models[].name'\n"
    "  tidemark describe --check my-model.json   what is wrong with a description, by line and column\n"};
