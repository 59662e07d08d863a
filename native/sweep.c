/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark sweep`: one estimate for each combination of the given values of settings. */
#include "estimate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { AXIS_LIMIT = 8, POINT_LIMIT = 100000, POINTS_AT_ONCE = 50, FIGURES = 4, SERVED = 3 };

/* A word with several values. */
typedef struct axis {
    size_t word; /* its index among the words */
    cli_buffer name;
    char **values; /* pieces of `text` */
    size_t count, at;
    cli_buffer text;
    cli_buffer chosen; /* NAME=VALUE */
} axis;

typedef struct sweep {
    cli_arguments arguments;
    char **words; /* of the selected point */
    axis axes[AXIS_LIMIT];
    size_t axis_count, points, refused, not_fitting;
    bool serves;
    cli_unit unit;
    cli_table table;
    FILE *csv;
} sweep;

/* ---- what is swept ---- */

/* Of an inference server also counts in "serving". */
static bool is_swept(const cJSON *settings, const char *name, size_t length) {
    const cJSON *setting, *alias;
    cJSON_ArrayForEach(setting, settings) {
        const char *known = cli_text_at(setting, "name"), *type = cli_text_at(setting, "type");
        bool is_it = strlen(known) == length && strncmp(known, name, length) == 0;
        cJSON_ArrayForEach(alias, cli_at(setting, "aliases")) {
            const char *other = cJSON_GetStringValue(alias);
            is_it |= other && strlen(other) == length && strncmp(other, name, length) == 0;
        }
        if (!is_it) continue;
        bool is_name = strcmp(known, "model") == 0 || strcmp(known, "recipe") == 0 || strcmp(known, "gpu") == 0;
        return is_name || (strcmp(type, "list") != 0 && strcmp(type, "text") != 0 && strcmp(type, "overrides") != 0);
    }
    return false;
}

static bool axis_add(sweep *s, size_t word) {
    const char *text = s->arguments.words[word], *value = strchr(text, '=') + 1;
    if (s->axis_count == AXIS_LIMIT) {
        cli_complain("sweep fewer settings at once", "more than %d settings have several values", AXIS_LIMIT);
        return false;
    }
    axis *a = &s->axes[s->axis_count++];
    a->word = word;
    cli_append(&a->name, text, (size_t)(value - text) - 1);
    cli_append_text(&a->text, value);
    for (char *piece = a->text.at; piece;) {
        char *comma = strchr(piece, ',');
        if (comma) *comma = 0;
        a->values = cli_grow(a->values, a->count, sizeof *a->values);
        a->values[a->count++] = piece;
        piece = comma ? comma + 1 : NULL;
    }
    if (s->points > POINT_LIMIT / a->count) {
        cli_complain("give fewer values", "more than %d combinations", POINT_LIMIT);
        return false;
    }
    s->points *= a->count;
    return true;
}

static int axes_find(sweep *s) {
    static const char ask[] = "{\"call\":\"describe\"}";
    cli_buffer request = {0};
    cli_answer answer = {0};
    bool is_good = true;
    cli_append_text(&request, ask);
    int status = cli_ask_or_explain(&answer, &request, false);
    s->points = 1;
    for (size_t i = 0; i < s->arguments.word_count && status == CLI_OK && is_good; i++) {
        const char *word = s->arguments.words[i], *equals = strchr(word, '=');
        if (!equals || !strchr(equals, ',')) continue;
        if (is_swept(cli_at(answer.json, "settings"), word, (size_t)(equals - word))) is_good = axis_add(s, i);
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    return status != CLI_OK ? status : is_good ? CLI_OK : CLI_BAD_INPUT;
}

/* The values of the last setting change first. */

static const struct {
    const char *object, *key, *title, *column;
} figures[FIGURES] = {
    {"peak", "allocated", "Allocated", "allocated_peak"},
    {"peak", "reserved", "Reserved", "reserved_peak"},
    {"verdict", "device_bytes", "Device", "device_bytes"},
    {"verdict", "margin_bytes", "To spare", "margin_bytes"},
};

/* For the selected point, or for several in `more` with all their words. */
static const struct {
    const char *key, *title, *column;
} served[SERVED] = {
    {"tokens", "Tokens", "tokens"}, {"blocks", "Blocks", "blocks"}, {"requests", "Requests", "requests"}};

static bool asks_server(const sweep *s) {
    for (size_t i = 0; i < s->arguments.word_count; i++)
        if (strcmp(s->arguments.words[i], "mode=serve") == 0) return true;
    return s->arguments.link.at && strstr(s->arguments.link.at, "mode=serve");
}

static void head_show(sweep *s) {
    size_t columns = s->axis_count + FIGURES + 2 + (s->serves ? SERVED : 0);
    cli_table_init(&s->table, columns);
    s->table.is_left[columns - 1] = true;
    s->table.limit[columns - 1] = 48;
    for (size_t i = 0; i < s->axis_count; i++) {
        cli_table_cell(&s->table, s->axes[i].name.at);
        if (s->csv) fprintf(s->csv, "%s,", s->axes[i].name.at);
    }
    for (int f = 0; f < FIGURES; f++) {
        cli_table_cell(&s->table, figures[f].title);
        if (s->csv) fprintf(s->csv, "%s,", figures[f].column);
    }
    for (int f = 0; f < SERVED && s->serves; f++) {
        cli_table_cell(&s->table, served[f].title);
        if (s->csv) fprintf(s->csv, "%s,", served[f].column);
    }
    cli_table_cell(&s->table, "Rank");
    cli_table_cell(&s->table, "");
    if (s->csv) fputs("rank,fits,refused\n", s->csv);
}

static const char *first_error(const cJSON *answer) {
    const cJSON *item;
    cJSON_ArrayForEach(item, cli_at(answer, "diagnostics")) {
        if (strcmp(cli_text_at(item, "severity"), "error") == 0) return cli_text_at(item, "message");
    }
    return "";
}

static void row_show(sweep *s, const cJSON *answer) {
    const cJSON *verdict = cli_at(answer, "verdict"), *fits = cli_at(verdict, "fits");
    const cJSON *rank = cli_at(cli_at(answer, "peak"), "rank");
    bool is_ok = cli_true_at(answer, "ok");
    const char *reason = is_ok ? "" : first_error(answer);
    cli_number number;
    for (size_t i = 0; i < s->axis_count; i++) {
        const char *value = s->axes[i].values[s->axes[i].at];
        cli_table_cell(&s->table, value);
        if (s->csv) cli_csv_text(s->csv, value);
        if (s->csv) fputc(',', s->csv);
    }
    for (int f = 0; f < FIGURES; f++) {
        const cJSON *figure = cli_at(cli_at(answer, figures[f].object), figures[f].key);
        cli_table_cell(&s->table, figure ? cli_amount(number, cli_int(figure), s->unit) : "");
        if (s->csv && figure) fprintf(s->csv, "%" PRId64, cli_int(figure));
        if (s->csv) fputc(',', s->csv);
    }
    for (int f = 0; f < SERVED && s->serves; f++) {
        const cJSON *figure = cli_at(cli_at(answer, "serving"), served[f].key);
        cli_table_cell(&s->table, figure ? cli_count(number, cli_int(figure)) : "");
        if (s->csv && figure) fprintf(s->csv, "%" PRId64, cli_int(figure));
        if (s->csv) fputc(',', s->csv);
    }
    cli_table_cell(&s->table, rank ? cli_count(number, cli_int(rank)) : "");
    cli_table_cell(&s->table, reason[0] ? reason : cli_verdict(verdict));
    if (s->csv && rank) fprintf(s->csv, "%" PRId64, cli_int(rank));
    if (s->csv) fprintf(s->csv, ",%s,", cJSON_IsFalse(fits) ? "no" : cJSON_IsTrue(fits) ? "yes" : "");
    if (s->csv) cli_csv_text(s->csv, reason);
    if (s->csv) fputc('\n', s->csv);
    if (!is_ok && s->points == 1 && !s->arguments.is_json) cli_diagnostics_show(stderr, cli_at(answer, "diagnostics"));
    s->refused += is_ok ? 0 : 1;
    s->not_fitting += cJSON_IsFalse(fits) ? 1 : 0;
}

/* In one request, so that they share what they can. */
static void point_choose(sweep *s, size_t point) {
    for (size_t i = s->axis_count; i-- > 0; point /= s->axes[i].count) {
        axis *a = &s->axes[i];
        a->at = point % a->count;
        cli_buffer_free(&a->chosen);
        cli_format(&a->chosen, "%s=%s", a->name.at, a->values[a->at]);
        s->words[a->word] = a->chosen.at;
    }
}

/* Of the point that is chosen, or of several that stand in `more` with all their words. */
static int ask(const sweep *s, bool is_point, const char *more, cli_answer *answer) {
    cli_arguments chosen = s->arguments;
    cli_buffer request = {0};
    chosen.words = s->words;
    if (!is_point) chosen.word_count = 0;
    int status = cli_request(&request, "measure", &chosen, more);
    if (status == CLI_OK) status = cli_ask(answer, &request);
    cli_buffer_free(&request);
    return status;
}

static int point_print(sweep *s, size_t point) {
    cli_answer answer = {0};
    point_choose(s, point);
    int status = ask(s, true, "", &answer);
    if (status == CLI_OK) printf("%.*s\n", (int)answer.length, answer.text);
    if (status == CLI_OK) row_show(s, answer.json);
    cli_answer_free(&answer);
    return status;
}

static void cell_add(const sweep *s, cli_buffer *cells) {
    cli_append_text(cells, "[");
    for (size_t i = 0; i < s->arguments.word_count; i++) {
        cli_append_text(cells, i ? "," : "");
        cli_append_quoted(cells, s->words[i], strlen(s->words[i]));
    }
    cli_append_text(cells, "]");
}

/* In one request, so that they share what they can. */
static int points_play(sweep *s, size_t first, size_t count) {
    cli_buffer cells = {0};
    cli_answer answer = {0};
    for (size_t k = 0; k < count; k++) {
        cli_append_text(&cells, k ? "," : ",\"cells\":[");
        point_choose(s, first + k);
        cell_add(s, &cells);
    }
    cli_append_text(&cells, "]");
    int status = ask(s, false, cells.at, &answer);
    const cJSON *cell = answer.is_ok ? cli_at(answer.json, "cells")->child : answer.json;
    for (size_t k = 0; k < count && status == CLI_OK; k++) {
        point_choose(s, first + k);
        row_show(s, cell);
        if (answer.is_ok) cell = cell->next;
    }
    cli_answer_free(&answer);
    cli_buffer_free(&cells);
    return status;
}

static int points_play_all(sweep *s) {
    size_t at_once = s->arguments.is_json ? 1 : POINTS_AT_ONCE;
    int status = CLI_OK;
    s->words = cli_grow(NULL, s->arguments.word_count, sizeof *s->words);
    for (size_t i = 0; i < s->arguments.word_count; i++) s->words[i] = s->arguments.words[i];
    for (size_t first = 0; first < s->points && status == CLI_OK; first += at_once) {
        size_t count = s->points - first < at_once ? s->points - first : at_once;
        status = s->arguments.is_json ? point_print(s, first) : points_play(s, first, count);
        if ((first + count) % POINTS_AT_ONCE == 0) cli_progress("%zu of %zu", first + count, s->points);
    }
    cli_progress_end();
    return status;
}

static int play_all(sweep *s) {
    int status = axes_find(s);
    if (status != CLI_OK) return status;
    for (size_t i = 0; i < s->arguments.path_count; i++)
        if (s->points > 1 && strcmp(s->arguments.paths[i], "-") == 0) {
            cli_complain("give it as a file", "standard input can be read only once, but a sweep needs it for each "
                                              "combination");
            return CLI_BAD_INPUT;
        }
    bool to_screen = s->arguments.csv && strcmp(s->arguments.csv, "-") == 0;
    if (to_screen && s->arguments.is_json) {
        cli_complain("give one of them, or --csv FILE", "--json and --csv - both write to standard output");
        return CLI_BAD_INPUT;
    }
    if (s->arguments.csv && !(s->csv = to_screen ? stdout : fopen(s->arguments.csv, "w"))) {
        cli_complain(NULL, "%s cannot be written", s->arguments.csv);
        return CLI_NO_FILE;
    }
    s->unit = s->arguments.shows_bytes ? CLI_BYTES : CLI_GIB;
    s->serves = asks_server(s);
    head_show(s);
    status = points_play_all(s);
    bool is_refused = s->points == 1 && s->refused; /* which has been said */
    if (!to_screen && !s->arguments.is_json && !is_refused) {
        printf("Peaks of %zu combination%s, %s\n\n", s->points, s->points == 1 ? "" : "s", cli_unit_name(s->unit));
        cli_table_print(&s->table);
    }
    bool is_written = !s->csv || (to_screen ? fflush(s->csv) == 0 : fclose(s->csv) == 0);
    if (status != CLI_OK) return status;
    if (!is_written) {
        cli_complain(NULL, "%s cannot be written", s->arguments.csv);
        return CLI_NO_FILE;
    }
    return s->refused == s->points ? CLI_BAD_INPUT : s->not_fitting == s->points ? CLI_NO : CLI_OK;
}

static int cli_sweep(int argc, char **argv) {
    sweep s = {0};
    int status = cli_arguments_read(&s.arguments, argc, argv,
                                    CLI_TAKES_BYTES | CLI_TAKES_SETTINGS | CLI_TAKES_CSV | CLI_TAKES_JSON);
    if (status == CLI_OK && s.arguments.shows_help)
        cli_help(stdout, "sweep");
    else if (status == CLI_OK)
        status = play_all(&s);
    cli_table_free(&s.table);
    for (size_t i = 0; i < s.axis_count; i++) {
        free(s.axes[i].values);
        cli_buffer_free(&s.axes[i].name);
        cli_buffer_free(&s.axes[i].text);
        cli_buffer_free(&s.axes[i].chosen);
    }
    free(s.words);
    cli_arguments_free(&s.arguments);
    return status;
}

const cli_command cli_sweep_command = {
    "sweep", cli_sweep,
    "sweep MODEL|config.json|LINK [key=value,value,... ...] [--gpu NAME] [--csv FILE] [--bytes] [--json]",
    "the peaks of every combination of settings, as a table",
    "The same words as `tidemark estimate`; a setting with several values, parted by commas, is swept. Values of "
    "lists\n"
    "(freeze, train_only) are not parted.\n\n"
    "  --csv FILE        exact bytes as CSV; \"-\" is standard output\n"
    "  --bytes           exact bytes in place of GiB\n"
    "  --json            the answer of each combination, one a line\n\n"
    "examples\n"
    "  tidemark sweep llava-1.5-7b recipe=llava-finetune dp=1,2,4,8 parallel.kind=zero1,zero2,zero3\n"
    "  tidemark sweep llama-3.1-8b,llama-2-7b --gpu a100-80 batch=1,2,4,8 checkpointing=none,full --csv sizes.csv\n\n"
    "exit code: 0 done; 1 no combination fits; 2 all are refused; 3 and 4 as in `tidemark --help`\n"};
