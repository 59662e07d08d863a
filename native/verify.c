/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark verify`: plays recorded cases and compares. */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS_LIMIT = 256 << 20 }; /* bytes of a file after decompression */

typedef struct verifier {
    const cli_arguments *arguments;
    const char *path;     /* of the results being read */
    cli_answer described; /* for the settings' defaults */
    verify_results results;
} verifier;

/* ---- which cases ---- */

/* A setting of a case as the value of a word; false if the case does not give it. */
static bool case_value(cli_buffer *text, const cJSON *of_case, const char *key, size_t length) {
    const char *dot = memchr(key, '.', length);
    cli_buffer name = {0};
    cli_append(&name, key, dot ? (size_t)(dot - key) : length);
    const cJSON *value = cli_at(of_case, name.at);
    cli_buffer_free(&name);
    if (dot && cJSON_IsObject(value)) {
        size_t skip = (size_t)(dot - key) + 1;
        cli_append(&name, key + skip, length - skip);
        const cJSON *whole = cli_at(value, name.at); /* overrides have dots in their keys */
        cli_buffer_free(&name);
        if (!whole) return case_value(text, value, key + skip, length - skip);
        value = whole;
    }
    if (!value || cJSON_IsNull(value)) return false;
    const cJSON *child;
    if (cJSON_IsArray(value)) {
        cJSON_ArrayForEach(child, value) {
            char *piece = cJSON_IsString(child) ? NULL : cJSON_PrintUnformatted(child);
            cli_format(text, "%s%s", child == value->child ? "" : ",", piece ? piece : child->valuestring);
            cJSON_free(piece);
        }
    } else if (cJSON_IsString(value)) {
        cli_append_text(text, value->valuestring);
    } else {
        char *piece = cJSON_PrintUnformatted(value);
        cli_append_text(text, piece ? piece : "");
        cJSON_free(piece);
    }
    if (!text->at) cli_append_text(text, "");
    return true;
}

/* The default for a case that does not give the setting. */
static bool is_default(const verifier *v, const char *key, size_t length, const char *value) {
    static const char *const none[] = {"", "none", "null", "default", "false"};
    const cJSON *setting;
    cJSON_ArrayForEach(setting, cli_at(v->described.json, "settings")) {
        const char *name = cli_text_at(setting, "name");
        if (strlen(name) != length || strncmp(name, key, length) != 0) continue;
        if (cli_text_at(setting, "default")[0]) return strcmp(cli_text_at(setting, "default"), value) == 0;
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(none[i], value) == 0) return true;
    return false;
}

static bool is_chosen(const verifier *v, const cJSON *of_case) {
    for (size_t i = 0; i < v->arguments->where_count; i++) {
        const char *where = v->arguments->where[i], *equals = strchr(where, '=');
        bool is_not = equals > where && equals[-1] == '!';
        size_t length = (size_t)(equals - where) - (is_not ? 1 : 0);
        cli_buffer value = {0};
        bool is_equal = case_value(&value, of_case, where, length) ? strcmp(value.at, equals + 1) == 0
                                                                   : is_default(v, where, length, equals + 1);
        cli_buffer_free(&value);
        if (is_equal == is_not) return false;
    }
    return true;
}

/* ---- one case ---- */

/* The location of the configuration of `model`: in --configs, or for unpublished models in the recorder's folder,
 * relative to its results. */
static void find_configuration(cli_buffer *folder, const verifier *v, const char *model) {
    static const char *const recorders[] = {"../../serving/configs", "../../record/configs"};
    size_t length = (size_t)(cli_base_name(v->path) - v->path);
    if (v->arguments->configs) {
        cli_format(folder, "%s/%s", v->arguments->configs, model);
        if (cli_is_folder(folder->at)) return;
    }
    for (size_t i = 0; model[0] && i < sizeof recorders / sizeof *recorders; i++) {
        folder->length = 0;
        cli_format(folder, "%.*s%s/%s", (int)length, v->path, recorders[i], model);
        if (cli_is_folder(folder->at)) return;
    }
    folder->length = 0;
}

static void append_configuration(cli_buffer *request, const verifier *v, const char *model, bool has_its_own) {
    static const char *const names[] = {"config.json", "preprocessor_config.json"};
    bool is_first = true;
    cli_buffer folder = {0};
    if (!has_its_own) find_configuration(&folder, v, model);
    cli_append_text(request, ",\"files\":[");
    for (size_t i = 0; folder.length && i < sizeof names / sizeof *names; i++) {
        cli_buffer path = {0}, text = {0};
        cli_format(&path, "%s/%s", folder.at, names[i]);
        if (cli_is_file(path.at) && cli_read_file(&text, path.at)) {
            cli_format(request, "%s{\"name\":\"%s\",\"text\":", is_first ? "" : ",", names[i]);
            cli_append_quoted(request, text.at, text.length);
            cli_append_text(request, "}");
            is_first = false;
        }
        cli_buffer_free(&path);
        cli_buffer_free(&text);
    }
    cli_append_text(request, "]}");
    cli_buffer_free(&folder);
}

/* The first error of an answer, as a reason. */
static void error_reason(cli_buffer *reason, const cJSON *answer) {
    const cJSON *diagnostics = cli_at(answer, "diagnostics"), *first = cJSON_GetArrayItem(diagnostics, 0), *diagnostic;
    cJSON_ArrayForEach(diagnostic, diagnostics) {
        if (strcmp(cli_text_at(first, "severity"), "error") != 0) first = diagnostic;
    }
    const char *place = cli_text_at(first, "place"), *message = cli_text_at(first, "message");
    cli_format(reason, "%s%s%s", place, place[0] ? ": " : "", message[0] ? message : "no reason given");
}

/* A start that the engine refuses before it allocates anything, with the same words as here. */
static bool is_refused_alike(const cJSON *measured, const char *reason) {
    const char *message = strstr(reason, ": ");
    return verify_is_serving(measured) && strcmp(cli_text_at(measured, "outcome"), "refused") == 0 && message &&
           strstr(cli_text_at(measured, "message"), message + 2);
}

static void compare_refusal(verify_results *results, const cJSON *measured) {
    cJSON *refused = cJSON_CreateObject();
    cJSON_AddStringToObject(refused, "outcome", "refused");
    verify_compare_serving(results, measured, refused);
    cJSON_Delete(refused);
}

static int case_run(verifier *v, const cJSON *measured) {
    const cJSON *of_case = cli_at(measured, "case");
    cli_buffer request = {0}, reason = {0};
    cli_answer answer = {0};
    char *text = cJSON_PrintUnformatted(of_case);
    cli_format(&request, "{\"call\":\"verify\",\"case\":%s", text ? text : "{}");
    cJSON_free(text);
    if (verify_is_serving(measured))
        cli_format(&request, ",\"of\":\"serving\",\"device\":{\"total\":%" PRId64 "}",
                   cli_int_at(cli_at(measured, "memory"), "total"));
    append_configuration(&request, v, cli_text_at(of_case, "model"), cJSON_IsObject(cli_at(of_case, "config")));
    int status = cli_ask(&answer, &request);
    bool is_expressed = answer.is_ok && cli_true_at(answer.json, "expressed");
    if (status == CLI_OK && !answer.is_ok) error_reason(&reason, answer.json);
    const char *why = answer.is_ok ? cli_text_at(answer.json, "reason") : reason.at ? reason.at : "";
    if (status == CLI_OK && !is_expressed && is_refused_alike(measured, why)) {
        compare_refusal(&v->results, measured);
    } else if (status == CLI_OK && !is_expressed) {
        verify_refuse(&v->results, measured, why);
    } else if (status == CLI_OK && verify_is_serving(measured)) {
        verify_compare_serving(&v->results, measured, answer.json);
    } else if (status == CLI_OK) {
        verify_compare(&v->results, measured, answer.json);
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&reason);
    return status;
}

/* ---- files ---- */

static int line_run(verifier *v, const cli_lines *lines, const char *path, size_t number) {
    const char *text = lines->line.at ? lines->line.at : "";
    if (text[strspn(text, " \t\r")] == 0) return CLI_OK;
    cJSON *measured = lines->is_too_long ? NULL : cJSON_ParseWithLength(text, lines->line.length);
    int status = CLI_OK;
    if (!cJSON_IsObject(measured) || !cJSON_IsObject(cli_at(measured, "case"))) {
        cli_complain("each line is one result with its \"case\"", "%s:%zu: not a result", path, number);
        status = CLI_BAD_INPUT;
    } else if (is_chosen(v, cli_at(measured, "case"))) {
        cli_progress("case %zu, %s", v->results.count + 1, cli_base_name(path));
        status = case_run(v, measured);
    }
    cJSON_Delete(measured);
    return status;
}

/* Checks how a file ended. */
static int file_end(const cli_source *source) {
    if (source->error)
        cli_complain(NULL, "%s: %s", source->path, strerror(source->error));
    else if (source->damage)
        cli_complain(source->damage == source->limit_text ? "give it in parts" : "write it again", "%s: %s",
                     strcmp(source->path, "-") == 0 ? "standard input" : source->path, source->damage);
    return source->error ? CLI_NO_FILE : source->damage ? CLI_BAD_INPUT : CLI_OK;
}

static int file_run(verifier *v, const char *path) {
    cli_lines lines;
    int status = CLI_OK;
    v->path = path;
    if (!cli_lines_open(&lines, path)) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        return CLI_NO_FILE;
    }
    lines.source.limit = RESULTS_LIMIT;
    lines.source.limit_text = "more than 256 MiB of results";
    for (size_t number = 1; status == CLI_OK && cli_next_line(&lines); number++)
        status = line_run(v, &lines, path, number);
    cli_source_close(&lines.source);
    if (status == CLI_OK) status = file_end(&lines.source);
    cli_lines_close(&lines);
    return status;
}

/* ---- the command ---- */

/* "0.5" (percent) as parts per million. */
static bool tolerance_read(uint64_t *ppm, const char *text) {
    char *end;
    double percent = strtod(text, &end);
    if (end == text || (*end && strcmp(end, "%") != 0) || !(percent >= 0 && percent <= 1e6)) return false;
    *ppm = (uint64_t)(percent * 10000 + 0.5);
    return true;
}

static int arguments_check(const cli_arguments *a, uint64_t *tolerance) {
    for (size_t i = 0; i < a->where_count; i++)
        if (strcspn(a->where[i], "=!") == 0 || !strchr(a->where[i], '=')) {
            cli_complain("as in --where checkpointing=full", "--where %s: not key=value", a->where[i]);
            return CLI_BAD_INPUT;
        }
    if (a->tolerance && !tolerance_read(tolerance, a->tolerance)) {
        cli_complain("as in --tolerance 0.5", "--tolerance %s: not a percentage", a->tolerance);
        return CLI_BAD_INPUT;
    }
    if (a->configs && !cli_is_folder(a->configs)) {
        cli_complain(NULL, "--configs %s: no such folder", a->configs);
        return CLI_NO_FILE;
    }
    if (a->path_count == 0) {
        cli_complain("as in tidemark verify results/*.jsonl", "no file of results");
        return CLI_BAD_INPUT;
    }
    return CLI_OK;
}

static int run(verifier *v) {
    const cli_arguments *a = v->arguments;
    uint64_t tolerance = 0;
    cli_buffer request = {0};
    int status = arguments_check(a, &tolerance);
    if (status == CLI_OK && a->where_count) {
        cli_append_text(&request, "{\"call\":\"describe\"}");
        status = cli_ask(&v->described, &request);
        cli_buffer_free(&request);
    }
    for (size_t i = 0; status == CLI_OK && i < a->path_count; i++) status = file_run(v, a->paths[i]);
    cli_progress_end();
    if (status != CLI_OK) return status;
    if (!v->results.count) {
        cli_complain(NULL, a->where_count ? "no case matches --where" : "there is no result to compare with");
        return CLI_BAD_INPUT;
    }
    if (a->csv && !verify_write_csv(&v->results, a->csv)) return CLI_NO_FILE;
    if (a->csv && strcmp(a->csv, "-") == 0)
        fflush(stdout);
    else if (a->is_json)
        verify_show_json(&v->results);
    else
        verify_show(&v->results);
    if (!a->tolerance) return CLI_OK;
    if (!v->results.expressed) {
        cli_complain(NULL, "no case can be expressed, so none is within --tolerance");
        return CLI_NO;
    }
    verify_summary summary = verify_summarize(&v->results.errors[VERIFY_allocated]);
    return summary.worst_ppm > tolerance ? CLI_NO : CLI_OK;
}

static int cli_verify(int argc, char **argv) {
    cli_arguments arguments;
    verifier v = {.arguments = &arguments};
    int status =
        cli_arguments_read(&arguments, argc, argv, CLI_TAKES_JSON | CLI_TAKES_VERIFY | CLI_TAKES_CSV | CLI_ARE_PATHS);
    if (status == CLI_OK && arguments.shows_help)
        cli_help(stdout, "verify");
    else if (status == CLI_OK)
        status = run(&v);
    verify_results_free(&v.results);
    cli_answer_free(&v.described);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_verify_command = {
    "verify", cli_verify,
    "verify FILE.jsonl... [--configs DIR] [--where key=value] [--csv FILE] [--tolerance PERCENT] "
    "[--json]",
    "predicted against measured memory, for recorded runs",
    "Reads measured runs, one JSON object a line (\"case\" holds the settings; sizes are bytes), "
    "predicts\n"
    "each, and shows the errors. Files may be gzip; \"-\" is standard input.\n\n"
    "  --configs DIR     take configurations from DIR/MODEL/config.json, not from the catalogue\n"
    "  --where KEY=VALUE only cases with this setting (KEY!=VALUE: without it); may be repeated; "
    "a\n"
    "                    setting that a case does not state has its default\n"
    "  --csv FILE        a row for each case; \"-\" prints them in place of the summary\n"
    "  --tolerance P     exit code 1 if an allocated peak is off by more than P percent\n"
    "  --json            the summary as an object; errors in parts per million of the measured "
    "value\n\n"
    "examples\n"
    "  tidemark verify results/*.jsonl --configs configs --tolerance 1\n"
    "  tidemark verify results/llava-1.5-7b.jsonl --where checkpointing=full --csv errors.csv\n"};
