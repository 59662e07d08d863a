/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's log lines about its memory, compared with an estimate: v1/worker/gpu_worker.py, v1/worker/gpu/model_runner.py
 * and v1/core/kv_cache_utils.py of 0.32.0. */
#include "engine_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A line of the log: the text before the number, and the estimate's counterpart. */
static const struct {
    const char *name, *before, *key;
    bool is_gib; /* two digits after the point; else an integer with commas */
} lines[] = {{"weights", "Model loading took ", "model_bytes", true},
             {"KV cache memory", "Available KV cache memory: ", "available", true},
             {"KV cache tokens", "GPU KV cache size: ", "tokens", false}};

enum { LINE_COUNT = sizeof lines / sizeof *lines };

/* "14.99", "206,800": parses the number at the beginning; false: there is none. */
static bool number_read(const char *at, double *value) {
    char digits[40];
    size_t count = 0;
    for (; count + 1 < sizeof digits && ((*at >= '0' && *at <= '9') || *at == '.' || *at == ','); at++)
        if (*at != ',') digits[count++] = *at;
    digits[count] = 0;
    char *end;
    *value = strtod(digits, &end);
    return count && !*end;
}

/* The last line of its kind: a log may contain several starts. */
static bool last_of(const char *text, const char *before, double *value) {
    bool is_found = false;
    for (const char *at = strstr(text, before); at; at = strstr(at + 1, before))
        is_found |= number_read(at + strlen(before), value);
    return is_found;
}

static double rounded(double value, bool is_gib) {
    return is_gib ? rint(value / (1 << 30) * 100) / 100 : value;
}

bool engine_log_is_met(const engine_log_row *row) {
    return row->logged >= row->least && row->logged <= row->most;
}

int engine_log_read(engine_log_row *rows, const char *text, const cJSON *serving) {
    int count = 0;
    double blocks = (double)cli_int_at(serving, "blocks"), bytes = (double)cli_int_at(serving, "block_bytes");
    double least = blocks > 0 && cli_at(serving, "blocks_at_least") ? (double)cli_int_at(serving, "blocks_at_least")
                                                                    : blocks,
           most = cli_at(serving, "blocks_at_most") ? (double)cli_int_at(serving, "blocks_at_most") : blocks;
    for (size_t i = 0; i < LINE_COUNT; i++) {
        engine_log_row row = {.name = lines[i].name, .is_gib = lines[i].is_gib};
        double predicted = (double)cli_int_at(serving, lines[i].key);
        if (!last_of(text, lines[i].before, &row.logged)) continue;
        row.predicted = rounded(predicted, row.is_gib);
        row.least = row.most = row.predicted;
        if (i && blocks > 0) { /* of a range of blocks */
            double each = i == 1 ? bytes : predicted / blocks;
            row.least = rounded(predicted - (blocks - least) * each, row.is_gib);
            row.most = rounded(predicted + (most - blocks) * each, row.is_gib);
        }
        if (!row.is_gib) row.least = floor(row.least), row.most = ceil(row.most);
        rows[count++] = row;
    }
    return count;
}

static void number_cell(cli_table *table, double value, bool is_gib) {
    char text[40];
    cli_number count;
    snprintf(text, sizeof text, "%.2f", value);
    cli_table_cell(table, is_gib ? text : cli_count(count, (int64_t)value));
}

void engine_log_show(const engine_log_row *rows, int count) {
    static const char *const heads[] = {"The engine's log", "Predicted", "Logged", ""};
    cli_table table;
    cli_table_init(&table, 4);
    for (size_t i = 0; i < 4; i++) cli_table_cell(&table, heads[i]);
    cli_table_rule(&table);
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", rows[i].name, rows[i].is_gib ? ", GiB" : "");
        cli_table_cell(&table, name);
        number_cell(&table, rows[i].predicted, rows[i].is_gib);
        number_cell(&table, rows[i].logged, rows[i].is_gib);
        cli_table_cell(&table, rows[i].logged == rows[i].predicted ? "equal"
                               : engine_log_is_met(&rows[i])       ? "in the range"
                                                                   : "another");
    }
    cli_table_print(&table);
}

cJSON *engine_log_json(const engine_log_row *rows, int count) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < count; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", rows[i].name);
        cJSON_AddNumberToObject(one, "predicted", rows[i].predicted);
        cJSON_AddNumberToObject(one, "least", rows[i].least);
        cJSON_AddNumberToObject(one, "most", rows[i].most);
        cJSON_AddNumberToObject(one, "logged", rows[i].logged);
        cJSON_AddBoolToObject(one, "is_met", engine_log_is_met(&rows[i]));
        cJSON_AddItemToArray(list, one);
    }
    return list;
}

void engine_log_print(const engine_log_row *rows, int count) {
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "ok", true);
    cJSON_AddItemToObject(answer, "log", engine_log_json(rows, count));
    char *text = cJSON_Print(answer);
    puts(text ? text : "");
    free(text);
    cJSON_Delete(answer);
}
