/* SPDX-License-Identifier: Apache-2.0 */
/* The results of `tidemark verify`: tables, JSON, CSV. */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_LIST = 400 }; /* the most cases that are listed one by one */

/* "0.0123 %"; six digits of parts per million are four of percent. */
static const char *percent(cli_number out, uint64_t ppm) {
    snprintf(out, sizeof(cli_number), "%" PRIu64 ".%04" PRIu64 " %%", ppm / 10000, ppm % 10000);
    return out;
}

static const char *signed_bytes(cli_number out, int64_t bytes) {
    cli_number digits;
    if (bytes == 0) return strcpy(out, "exact");
    snprintf(out, sizeof(cli_number), "%s%s", bytes > 0 ? "+" : "", cli_count(digits, bytes));
    return out;
}

static void cases_show(const verify_results *results) {
    cli_table table;
    cli_number text;
    size_t shown = 0;
    static const char *const heads[] = {"Case", "Measured", "Predicted", "Error, bytes", "", "Reserved", "Error", ""};
    cli_heading("Predicted against measured, allocated peak and reserved peak, GiB");
    cli_table_init(&table, 8);
    table.limit[0] = 32;
    for (size_t i = 0; i < 8; i++) cli_table_cell(&table, heads[i]);
    for (size_t i = 0; i < results->count && shown < LONG_LIST; i++) {
        const verify_case *c = &results->cases[i];
        if (c->reason || c->is_served) continue;
        shown++;
        cli_table_cell(&table, c->id);
        cli_table_cell(&table, cli_gib(text, c->measured[0]));
        cli_table_cell(&table, cli_gib(text, c->predicted[0]));
        cli_table_cell(&table, signed_bytes(text, c->predicted[0] - c->measured[0]));
        uint64_t ppm = verify_ppm(c->predicted[0], c->measured[0]);
        cli_table_cell(&table, c->predicted[0] == c->measured[0] ? "" : percent(text, ppm));
        cli_table_cell(&table, cli_gib(text, c->measured[1]));
        ppm = verify_ppm(c->predicted[1], c->measured[1]);
        cli_table_cell(&table, c->predicted[1] == c->measured[1] ? "exact" : percent(text, ppm));
        cli_table_cell(&table, c->has_other_outcome ? c->outcome : "");
    }
    cli_table_print(&table);
    if (results->expressed - results->served > shown)
        printf("and %zu more; --csv has all\n", results->expressed - results->served - shown);
}

static void summary_row(cli_table *table, const verify_results *results, const char *name,
                        const verify_errors *errors) {
    cli_number text;
    verify_summary s = verify_summarize(errors);
    if (s.count == 0) return;
    cli_table_cell(table, name);
    cli_table_cell(table, cli_count(text, (int64_t)s.count));
    snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64 " %%", s.exact_ppm / 10000, s.exact_ppm / 1000 % 10);
    cli_table_cell(table, text);
    cli_table_cell(table, percent(text, s.median_ppm));
    cli_table_cell(table, percent(text, s.p95_ppm));
    cli_table_cell(table, percent(text, s.worst_ppm));
    cli_table_cell(table, s.worst_ppm || s.exact < s.count ? results->cases[s.worst_case].id : "");
}

static void summaries_show(const verify_results *results) {
    static const char *const heads[] = {"", "Figures", "Exact", "Median", "95th", "Worst", "Case"};
    cli_table table;
    cli_heading("Absolute errors, of the measured value");
    cli_table_init(&table, 7);
    table.is_left[6] = true;
    table.limit[6] = 32;
    for (size_t i = 0; i < 7; i++) cli_table_cell(&table, heads[i]);
    for (int f = 0; f < VERIFY_FIGURE_COUNT; f++) {
        if (f == VERIFY_FIRST_PHASE) cli_table_rule(&table);
        summary_row(&table, results, verify_figure_names[f], &results->errors[f]);
    }
    cli_table_rule(&table);
    summary_row(&table, results, "categories, of peak", &results->breakdown);
    cli_table_print(&table);
}

static void serving_show(const verify_results *results) {
    static const char *const heads[] = {"", "Figures", "Exact", "Median", "95th", "Worst", "Case"};
    cli_table table;
    cli_number text;
    cli_heading("Starts of an inference server: absolute errors, of the measured value");
    cli_table_init(&table, 7);
    table.is_left[6] = true;
    table.limit[6] = 48;
    for (size_t i = 0; i < 7; i++) cli_table_cell(&table, heads[i]);
    for (int f = 0; f < VERIFY_SERVING_COUNT; f++)
        summary_row(&table, results, verify_serving_names[f], &results->serving[f]);
    cli_table_print(&table);
    for (size_t i = 0; i < results->count; i++) {
        const verify_case *c = &results->cases[i];
        if (!c->is_served || c->reason || c->predicted[0] == c->measured[0]) continue;
        printf("  %s: %s blocks off\n", c->id, signed_bytes(text, c->predicted[0] - c->measured[0]));
    }
}

static void counts_show(const verify_results *results) {
    cli_number a, b;
    if (results->other_parameters) cli_heading("Other numbers of parameters");
    for (size_t i = 0; i < results->count; i++) {
        const verify_case *c = &results->cases[i];
        if (c->has_other_parameters)
            printf("  %s: %s predicted, %s measured\n", c->id, cli_count(a, c->parameters_predicted),
                   cli_count(b, c->parameters_measured));
    }
    if (results->other_outcomes) cli_heading("Other outcomes");
    for (size_t i = 0; i < results->count; i++) {
        const verify_case *c = &results->cases[i];
        if (c->has_other_outcome)
            printf("  %s: \"%s\" predicted, \"%s\" measured\n", c->id, c->other_outcome, c->outcome);
    }
}

static bool is_first_of_reason(const verify_results *results, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (results->cases[i].reason && strcmp(results->cases[i].reason, results->cases[at].reason) == 0) return false;
    return true;
}

static void not_expressed_show(const verify_results *results) {
    if (results->expressed == results->count) return;
    cli_heading("Not expressed");
    for (size_t i = 0; i < results->count; i++) {
        if (!results->cases[i].reason || !is_first_of_reason(results, i)) continue;
        size_t count = 0;
        cli_buffer ids = {0}, head = {0};
        for (size_t j = i; j < results->count; j++) {
            const verify_case *c = &results->cases[j];
            if (!c->reason || strcmp(c->reason, results->cases[i].reason) != 0) continue;
            if (count++ < 3) cli_format(&ids, "%s%s", ids.length ? ", " : "", c->id);
        }
        if (count > 3) cli_append_text(&ids, ", ...");
        cli_format(&head, "%5zu  %s: ", count, results->cases[i].reason);
        fputs(head.at, stdout);
        cli_wrapped(ids.at, 7, cli_width(head.at));
        cli_buffer_free(&ids);
        cli_buffer_free(&head);
    }
}

void verify_show(verify_results *results) {
    if (results->expressed > results->served) {
        cases_show(results);
        summaries_show(results);
    }
    if (results->served) serving_show(results);
    counts_show(results);
    not_expressed_show(results);
    printf("\n%zu cases, %zu expressed\n", results->count, results->expressed);
}

/* ---- JSON ---- */

static void summary_json(cli_buffer *out, const verify_results *results, const char *name,
                         const verify_errors *errors) {
    verify_summary s = verify_summarize(errors);
    cli_format(out,
               "\"%s\":{\"exact_ppm\":%" PRIu64 ",\"median_ppm\":%" PRIu64 ",\"p95_ppm\":%" PRIu64
               ",\"worst_ppm\":%" PRIu64 ",\"worst_id\":",
               name, s.exact_ppm, s.median_ppm, s.p95_ppm, s.worst_ppm);
    const char *id = s.count ? results->cases[s.worst_case].id : "";
    cli_append_quoted(out, id, strlen(id));
    cli_append_text(out, "}");
}

void verify_show_json(verify_results *results) {
    cli_buffer out = {0};
    bool is_first = true;
    cli_format(&out, "{\"cases\":%zu,\"not_expressed\":[", results->count);
    for (size_t i = 0; i < results->count; i++) {
        const verify_case *c = &results->cases[i];
        if (!c->reason) continue;
        cli_append_text(&out, is_first ? "{\"id\":" : ",{\"id\":");
        cli_append_quoted(&out, c->id, strlen(c->id));
        cli_append_text(&out, ",\"reason\":");
        cli_append_quoted(&out, c->reason, strlen(c->reason));
        cli_append_text(&out, "}");
        is_first = false;
    }
    cli_append_text(&out, "],");
    summary_json(&out, results, "allocated", &results->errors[VERIFY_allocated]);
    cli_append_text(&out, ",");
    summary_json(&out, results, "reserved", &results->errors[VERIFY_reserved]);
    cli_append_text(&out, ",\"phases\":{");
    for (int f = VERIFY_FIRST_PHASE; f < VERIFY_FIGURE_COUNT; f++) {
        if (f > VERIFY_FIRST_PHASE && !results->errors[f].count) continue; /* only in training, or only in inference */
        if (f > VERIFY_FIRST_PHASE) cli_append_text(&out, ",");
        summary_json(&out, results, verify_figure_names[f], &results->errors[f]);
    }
    cli_append_text(&out, "}");
    if (results->served) {
        cli_append_text(&out, ",\"serving\":{");
        for (int f = 0; f < VERIFY_SERVING_COUNT; f++) {
            if (f) cli_append_text(&out, ",");
            summary_json(&out, results, verify_serving_names[f], &results->serving[f]);
        }
        cli_append_text(&out, "}");
    }
    cli_append_text(&out, "}");
    puts(out.at);
    cli_buffer_free(&out);
}

/* ---- CSV ---- */

/* Largest error of a phase over the steps of a case. */
static uint64_t phase_ppm(const verify_errors *errors, size_t of_case) {
    uint64_t worst = 0;
    for (size_t i = 0; i < errors->count; i++)
        if (errors->items[i].of_case == of_case && errors->items[i].ppm > worst) worst = errors->items[i].ppm;
    return worst;
}

static void csv_row(FILE *file, const verify_results *results, size_t at) {
    const verify_case *c = &results->cases[at];
    cli_csv_text(file, c->id);
    fputc(',', file);
    cli_csv_text(file, c->model);
    fprintf(file, ",%s", c->outcome);
    for (int i = 0; i < 2; i++) {
        fprintf(file, ",%" PRId64, c->measured[i]);
        if (c->reason)
            fputs(",,,", file);
        else
            fprintf(file, ",%" PRId64 ",%" PRId64 ",%" PRIu64, c->predicted[i], c->predicted[i] - c->measured[i],
                    verify_ppm(c->predicted[i], c->measured[i]));
    }
    for (int f = VERIFY_FIRST_PHASE; f < VERIFY_FIGURE_COUNT; f++) {
        if (c->reason)
            fputc(',', file);
        else
            fprintf(file, ",%" PRIu64, phase_ppm(&results->errors[f], at));
    }
    if (c->reason)
        fputc(',', file);
    else
        fprintf(file, ",%" PRIu64, c->breakdown_ppm);
    fprintf(file, ",%s", c->breakdown_name ? c->breakdown_name : "");
    if (c->reason)
        fputs(",,,,", file);
    else
        fprintf(file, ",%" PRId64 ",%s,%" PRId64 ",", c->parameters_predicted - c->parameters_measured,
                c->has_other_outcome ? c->other_outcome : "", c->range_percent);
    cli_csv_text(file, c->reason ? c->reason : "");
    fputc('\n', file);
}

bool verify_write_csv(const verify_results *results, const char *path) {
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!file) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        return false;
    }
    fputs("id,model,outcome,allocated_measured,allocated_predicted,allocated_error,allocated_ppm,"
          "reserved_measured,reserved_predicted,reserved_error,reserved_ppm",
          file);
    for (int f = VERIFY_FIRST_PHASE; f < VERIFY_FIGURE_COUNT; f++) fprintf(file, ",%s_ppm", verify_figure_names[f]);
    fputs(",category_ppm,category,parameters_error,other_outcome,range_percent,not_expressed\n", file);
    for (size_t i = 0; i < results->count; i++) csv_row(file, results, i);
    bool is_written = !ferror(file);
    if (file != stdout && fclose(file) != 0) is_written = false;
    if (!is_written) cli_complain(NULL, "%s: %s", path, strerror(errno));
    return is_written;
}
