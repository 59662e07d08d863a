/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing one answer with one measurement, and summaries of many. */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

const char *const verify_figure_names[VERIFY_FIGURE_COUNT] = {
#define VERIFY_NAME(name) #name,
    VERIFY_FIGURES(VERIFY_NAME)
#undef VERIFY_NAME
};

static char *copied(const char *text) {
    cli_buffer copy = {0};
    cli_append_text(&copy, text);
    if (copy.at) cli_clean(copy.at);
    return copy.at;
}

static uint64_t distance(int64_t a, int64_t b) {
    return a > b ? (uint64_t)(a - b) : (uint64_t)(b - a);
}

/* Rounded half up. The part of the error below one measured value, times 10^6, fits up to 18 TB. */
static uint64_t ppm_of(uint64_t error, uint64_t measured) {
    if (measured == 0) return error ? 1000000 : 0;
    return error / measured * 1000000 + (error % measured * 1000000 + measured / 2) / measured;
}

uint64_t verify_ppm(int64_t predicted, int64_t measured) {
    return ppm_of(distance(predicted, measured), measured > 0 ? (uint64_t)measured : 0);
}

static void error_add(verify_errors *errors, uint64_t bytes, uint64_t ppm, size_t of_case) {
    errors->items = cli_grow(errors->items, errors->count, sizeof *errors->items);
    errors->items[errors->count++] = (verify_error){bytes, ppm, of_case};
}

static void figure_add(verify_results *results, enum verify_figure figure, int64_t predicted, int64_t measured) {
    error_add(&results->errors[figure], distance(predicted, measured), verify_ppm(predicted, measured),
              results->count - 1);
}

void verify_error_add(verify_errors *errors, int64_t predicted, int64_t measured, size_t of_case) {
    error_add(errors, distance(predicted, measured), verify_ppm(predicted, measured), of_case);
}

verify_case *verify_case_add(verify_results *results, const cJSON *measured) {
    const cJSON *of_case = cli_at(measured, "case");
    results->cases = cli_grow(results->cases, results->count, sizeof *results->cases);
    verify_case *c = &results->cases[results->count++];
    *c = (verify_case){.id = copied(cli_text_at(of_case, "id")),
                       .model = copied(cli_text_at(of_case, "model")),
                       .outcome = copied(cli_text_at(measured, "outcome"))};
    c->measured[0] = cli_int_at(measured, "allocated_peak");
    c->measured[1] = cli_int_at(measured, "reserved_peak");
    return c;
}

void verify_refuse(verify_results *results, const cJSON *measured, const char *reason) {
    verify_case_add(results, measured)->reason = copied(reason[0] ? reason : "no reason given");
}

/* Every phase of every measured step. A step that was not predicted counts as 0 bytes. */
static void compare_steps(verify_results *results, const cJSON *measured, const cJSON *answer) {
    const cJSON *step, *steps = cli_at(answer, "steps");
    int number = 0;
    cJSON_ArrayForEach(step, cli_at(measured, "steps")) {
        const cJSON *predicted = cJSON_GetArrayItem(steps, number++);
        for (int f = VERIFY_FIRST_PHASE; f < VERIFY_FIGURE_COUNT; f++) {
            const cJSON *value = cli_at(step, verify_figure_names[f]);
            if (cJSON_IsNumber(value))
                figure_add(results, (enum verify_figure)f, cli_int_at(predicted, verify_figure_names[f]),
                           cli_int(value));
        }
    }
}

/* The largest error of a category, relative to the peak. */
static void compare_breakdown(verify_results *results, verify_case *c, const cJSON *measured, const cJSON *answer) {
    const cJSON *category, *at_peak = cli_at(measured, "at_peak"), *predicted = cli_at(answer, "at_peak");
    uint64_t worst = 0;
    if (!cJSON_IsObject(at_peak) || !cJSON_IsObject(predicted)) return;
    int64_t reference = cli_int_at(at_peak, "reference"); /* parameters of a second model */
    cJSON_ArrayForEach(category, at_peak) {
        int64_t bytes = cli_int(category) + (strcmp(category->string, "parameters") == 0 ? reference : 0);
        if (strcmp(category->string, "reference") == 0) continue;
        uint64_t error = distance(cli_int_at(predicted, category->string), bytes);
        if (error <= worst) continue;
        worst = error;
        free(c->breakdown_name);
        c->breakdown_name = copied(category->string);
    }
    c->breakdown_ppm = ppm_of(worst, c->measured[0] > 0 ? (uint64_t)c->measured[0] : 0);
    error_add(&results->breakdown, worst, c->breakdown_ppm, results->count - 1);
}

static void compare_counts(verify_results *results, verify_case *c, const cJSON *measured, const cJSON *answer) {
    const cJSON *a = cli_at(answer, "parameters"), *b = cli_at(measured, "parameters");
    const char *outcome = cli_text_at(answer, "outcome");
    bool is_total = cli_int_at(a, "total") != cli_int_at(b, "total");
    const char *which = is_total ? "total" : "trainable";
    c->parameters_predicted = cli_int_at(a, which);
    c->parameters_measured = cli_int_at(b, which);
    c->has_other_parameters = cJSON_IsObject(b) && c->parameters_predicted != c->parameters_measured;
    c->has_other_outcome = strcmp(outcome, c->outcome) != 0;
    if (c->has_other_outcome) c->other_outcome = copied(outcome);
    if (c->has_other_parameters) results->other_parameters++;
    if (c->has_other_outcome) results->other_outcomes++;
}

void verify_compare(verify_results *results, const cJSON *measured, const cJSON *answer) {
    verify_case *c = verify_case_add(results, measured);
    results->expressed++;
    c->range_percent = cli_int_at(answer, "range_percent");
    c->predicted[0] = cli_int_at(answer, "allocated_peak");
    c->predicted[1] = cli_int_at(answer, "reserved_peak");
    figure_add(results, VERIFY_allocated, c->predicted[0], c->measured[0]);
    figure_add(results, VERIFY_reserved, c->predicted[1], c->measured[1]);
    compare_counts(results, c, measured, answer);
    compare_steps(results, measured, answer);
    compare_breakdown(results, c, measured, answer);
}

/* ---- summaries ---- */

static int by_ppm(const void *a, const void *b) {
    const verify_error *x = a, *y = b;
    if (x->ppm != y->ppm) return x->ppm < y->ppm ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->of_case < y->of_case ? 1 : x->of_case > y->of_case ? -1 : 0;
}

verify_summary verify_summarize(const verify_errors *errors) {
    verify_summary s = {.count = errors->count};
    size_t n = errors->count;
    if (n == 0) return s;
    verify_error *e = errors->items;
    qsort(e, n, sizeof *e, by_ppm);
    for (size_t i = 0; i < n; i++)
        if (e[i].bytes == 0) s.exact++;
    s.exact_ppm = (uint64_t)s.exact * 1000000 / n;
    s.median_ppm = (e[(n - 1) / 2].ppm + e[n / 2].ppm) / 2;
    s.p95_ppm = e[(n * 95 + 99) / 100 - 1].ppm; /* nearest rank */
    s.worst_ppm = e[n - 1].ppm;
    s.worst_case = e[n - 1].of_case;
    return s;
}

void verify_results_free(verify_results *results) {
    for (size_t i = 0; i < results->count; i++) {
        verify_case *c = &results->cases[i];
        free(c->id);
        free(c->model);
        free(c->reason);
        free(c->outcome);
        free(c->other_outcome);
        free(c->breakdown_name);
    }
    for (int f = 0; f < VERIFY_FIGURE_COUNT; f++) free(results->errors[f].items);
    for (int f = 0; f < VERIFY_SERVING_COUNT; f++) free(results->serving[f].items);
    free(results->breakdown.items);
    free(results->cases);
    *results = (verify_results){0};
}
