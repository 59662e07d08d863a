/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the core and answers from it. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

static bool is_utf8(const char *text, size_t length) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    while (at < end) {
        size_t more = *at < 0x80                  ? 0
                      : *at >= 0xc2 && *at < 0xe0 ? 1
                      : *at >= 0xe0 && *at < 0xf0 ? 2
                      : *at >= 0xf0 && *at < 0xf5 ? 3
                                                  : 4;
        if (more == 4 || (size_t)(end - at) <= more) return false;
        for (size_t i = 1; i <= more; i++)
            if ((at[i] & 0xc0) != 0x80) return false;
        at += more + 1;
    }
    return true;
}

/* JSON only contains text: other bytes of a file become U+FFFD, which the core reports. */
static void append_file_text(cli_buffer *out, const cli_buffer *text) {
    if (is_utf8(text->at, text->length)) {
        cli_append_quoted(out, text->at, text->length);
        return;
    }
    cli_buffer clean = {0};
    for (size_t i = 0; i < text->length; i++) {
        if ((unsigned char)text->at[i] < 0x80)
            cli_append(&clean, text->at + i, 1);
        else
            cli_append_text(&clean, "\xef\xbf\xbd");
    }
    cli_append_quoted(out, clean.at ? clean.at : "", clean.length);
    cli_buffer_free(&clean);
}

/* Converts YAML to the JSON that the core reads. */
static bool to_json(cli_buffer *text, const char *name) {
    char message[256];
    cli_buffer json = {0};
    if (!cli_is_yaml(name, text->at, text->length)) return true;
    bool is_read = cli_yaml_to_json(&json, text->at, text->length, message, sizeof message);
    if (!is_read) cli_complain(NULL, "%s: %s", name, message);
    cli_buffer_free(text);
    *text = json;
    return is_read;
}

/* Whether a file that another refers to is given, or one that replaces it: a DeepSpeed configuration. */
static bool is_given(const cli_arguments *a, const char *path, bool has_stages) {
    if (has_stages && cli_ends_in(path, ".json")) return true;
    for (size_t i = 0; i < a->path_count; i++)
        if (strcmp(cli_base_name(a->paths[i]), cli_base_name(path)) == 0) return true;
    return false;
}

typedef struct files {
    cli_named named;
    bool has_stages; /* one of the given files is a DeepSpeed configuration */
} files;

/* The request that contains a file, and its parsed form, are as large again, each. */
enum { JOB_FILE_LIMIT = 32 << 20 };

/* Reads a file and adds it to those of the request, and to `held` the files that it refers to. */
static int append_file(cli_buffer *request, const char *path, bool is_first, files *held) {
    cli_buffer text = {0};
    if (!cli_read_file(&text, path)) {
        cli_buffer_free(&text);
        return CLI_NO_FILE;
    }
    const char *name = strcmp(path, "-") == 0 ? "config.json" : cli_base_name(path);
    if (text.length > JOB_FILE_LIMIT) {
        cli_complain("give the model's config.json", "%s is larger than 32 MiB", path);
        cli_buffer_free(&text);
        return CLI_BAD_INPUT;
    }
    if (!to_json(&text, name)) {
        cli_buffer_free(&text);
        return CLI_BAD_INPUT;
    }
    cli_append_text(request, is_first ? "{\"name\":" : ",{\"name\":");
    cli_append_quoted(request, name, strlen(name));
    cli_append_text(request, ",\"text\":");
    append_file_text(request, &text);
    cli_append_text(request, "}");
    held->has_stages = held->has_stages || (text.length && strstr(text.at, "\"zero_optimization\""));
    cli_named_find(&held->named, text.at, text.length, path);
    cli_buffer_free(&text);
    return CLI_OK;
}

int cli_request(cli_buffer *request, const char *call, const cli_arguments *a, const char *more) {
    cli_format(request, "{\"call\":\"%s\",\"settings\":[", call);
    for (size_t i = 0; i < a->word_count; i++) {
        if (i) cli_append_text(request, ",");
        cli_append_quoted(request, a->words[i], strlen(a->words[i]));
    }
    cli_append_text(request, "]");
    if (a->link.length) {
        cli_append_text(request, ",\"link\":");
        append_file_text(request, &a->link);
    }
    cli_append_text(request, ",\"files\":[");
    files held = {0};
    int status = CLI_OK;
    for (size_t i = 0; i < a->path_count && status == CLI_OK; i++)
        status = append_file(request, a->paths[i], i == 0, &held);
    if (a->command.length) {
        cli_append_text(request,
                        a->path_count ? ",{\"name\":\"the command\",\"text\":" : "{\"name\":\"the command\",\"text\":");
        append_file_text(request, &a->command);
        cli_append_text(request, "}");
        cli_named_find(&held.named, a->command.at, a->command.length, "");
    }
    bool has_stages = held.has_stages;
    for (size_t i = 0; i < held.named.count && status == CLI_OK; i++) /* which may refer to others */
        if (!is_given(a, held.named.paths[i].at, has_stages))
            status = append_file(request, held.named.paths[i].at, false, &held);
    cli_named_free(&held.named);
    if (status != CLI_OK) return status;
    cli_format(request, "]%s}", more);
    return CLI_OK;
}

static void clean_texts(cJSON *item) {
    if (item->string) cli_clean(item->string);
    if (item->valuestring) cli_clean(item->valuestring);
    for (cJSON *child = item->child; child; child = child->next) clean_texts(child);
}

/* Parses what the core returned, for printing. */
static int take_answer(cli_answer *answer, int status) {
    if (status == 2 || !answer->text) {
        cli_complain(NULL, "out of memory");
        return CLI_INTERNAL;
    }
    answer->json = cJSON_ParseWithLength(answer->text, answer->length);
    if (!answer->json) {
        cli_complain("this is a fault of tidemark; please report it", "the core's answer is not JSON");
        cli_answer_free(answer);
        return CLI_INTERNAL;
    }
    clean_texts(answer->json);
    answer->is_ok = status == 0 && cli_true_at(answer->json, "ok");
    return CLI_OK;
}

int cli_ask(cli_answer *answer, const cli_buffer *request) {
    *answer = (cli_answer){0};
    return take_answer(answer, tide_call(request->at, request->length, NULL, &answer->text, &answer->length));
}

void cli_answer_free(cli_answer *answer) {
    cJSON_Delete(answer->json);
    if (answer->text) tide_free(NULL, answer->text, answer->length);
    *answer = (cli_answer){0};
}

/* The exit code for an error. */
static int exit_of(const cJSON *diagnostics) {
    const cJSON *diagnostic;
    cJSON_ArrayForEach(diagnostic, diagnostics) {
        if (strcmp(cli_text_at(diagnostic, "code"), "ERR_NO_MEMORY") == 0) return CLI_INTERNAL;
    }
    return CLI_BAD_INPUT;
}

/* How the words of a job were understood, unless the answer itself says so. */
static void say_reading(const cJSON *answer) {
    const char *read_as = cli_text_at(answer, "read_as");
    if (*read_as && !cli_at(answer, "assumptions")) fprintf(stderr, "%s\n", read_as);
}

static int explain(cli_answer *answer, int status, bool is_json) {
    if (status == CLI_OK && answer->is_ok && !is_json) say_reading(answer->json);
    if (status != CLI_OK || answer->is_ok) return status;
    const cJSON *diagnostics = cli_at(answer->json, "diagnostics");
    status = exit_of(diagnostics);
    if (is_json)
        printf("%.*s\n", (int)answer->length, answer->text);
    else
        cli_diagnostics_show(stderr, diagnostics);
    cli_answer_free(answer);
    return status;
}

int cli_ask_or_explain(cli_answer *answer, const cli_buffer *request, bool is_json) {
    return explain(answer, cli_ask(answer, request), is_json);
}

int cli_ask_recording(cli_answer *answer, struct tide_recorded *recording, const cli_buffer *request, bool is_json) {
    *answer = (cli_answer){0};
    int status = tide_recording_call(recording, request->at, request->length, &answer->text, &answer->length);
    return explain(answer, take_answer(answer, status), is_json);
}

/* ---- reading answers ---- */

const cJSON *cli_at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

const char *cli_text_at(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cli_at(object, key));
    return text ? text : "";
}

/* Sizes are integers below 2^53, which a double can represent. */
int64_t cli_int(const cJSON *number) {
    if (!cJSON_IsNumber(number) || !(fabs(number->valuedouble) < 9.1e15)) return 0;
    return (int64_t)number->valuedouble;
}

int64_t cli_int_at(const cJSON *object, const char *key) {
    return cli_int(cli_at(object, key));
}

bool cli_true_at(const cJSON *object, const char *key) {
    return cJSON_IsTrue(cli_at(object, key));
}

bool cli_may_fit(const cJSON *answer) {
    const cJSON *verdict = cli_at(answer, "verdict");
    return !cli_at(verdict, "gpu_bytes") || cli_true_at(verdict, "fits");
}

const char *cli_verdict(const cJSON *verdict) {
    const cJSON *fits = cli_at(verdict, "fits");
    if (cJSON_IsNull(fits) && cli_at(verdict, "gpu_bytes")) return "cannot tell";
    if (!cJSON_IsBool(fits)) return "";
    if (!cJSON_IsTrue(fits)) return "does not fit";
    if (cli_int_at(verdict, "device_bytes") > cli_int_at(verdict, "gpu_bytes")) return "barely fits";
    return cJSON_IsFalse(cli_at(verdict, "lasts")) ? "fits, with less than 3 % to spare" : "fits";
}
