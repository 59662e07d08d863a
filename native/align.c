/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark compare JOB --recording FILE`: compares a prediction with a recorded run. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

enum { PARTINGS_SHOWN = 5 };

static void peaks_show(const cJSON *answer) {
    static const char *const keys[] = {"allocated_peak", "reserved_peak"}, *const titles[] = {"Allocated, at most",
                                                                                              "Reserved, at most"};
    const cJSON *predicted = cli_at(answer, "predicted"), *recorded = cli_at(answer, "recorded");
    cli_table table;
    cli_number text;
    cli_table_init(&table, 4);
    static const char *const heads[] = {"Bytes", "Predicted", "Recorded", "Difference"};
    for (int i = 0; i < 4; i++) cli_table_cell(&table, heads[i]);
    for (int i = 0; i < 2; i++) {
        int64_t one = cli_int_at(predicted, keys[i]), other = cli_int_at(recorded, keys[i]), difference = one - other;
        cli_buffer sign = {0};
        cli_table_cell(&table, titles[i]);
        cli_table_cell(&table, cli_count(text, one));
        cli_table_cell(&table, cli_count(text, other));
        cli_format(&sign, "%s%s", difference > 0 ? "+" : difference < 0 ? "-" : "", cli_count(text, llabs(difference)));
        cli_table_cell(&table, difference ? sign.at : "exact");
        cli_buffer_free(&sign);
    }
    cli_table_print(&table);
}

static void event_show(const char *side, const cJSON *event) {
    int64_t bytes = cli_int_at(event, "bytes");
    cli_number text;
    const char *module = cli_text_at(event, "module"), *op = cli_text_at(event, "op"),
               *frame = cli_text_at(event, "frame");
    printf("    %-9s %s %14s", side, bytes < 0 ? "free " : "alloc", cli_count(text, llabs(bytes)));
    if (module[0]) printf("  %s", module);
    if (op[0]) printf("  %s", op);
    if (frame[0]) printf("  %s", frame);
    putchar('\n');
}

static void parting_show(const cJSON *parting) {
    const cJSON *event;
    int64_t predicted = cli_int_at(parting, "predicted_count"), recorded = cli_int_at(parting, "recorded_count");
    printf("  event %" PRId64 " of the prediction, %" PRId64 " of the recording: ", cli_int_at(parting, "at"),
           cli_int_at(parting, "recorded_at"));
    if (cli_true_at(parting, "is_order"))
        printf("%" PRId64 " in another order\n", predicted);
    else
        printf("%" PRId64 " only predicted, %" PRId64 " only recorded\n", predicted, recorded);
    cJSON_ArrayForEach(event, cli_at(parting, "predicted")) event_show("predicted", event);
    cJSON_ArrayForEach(event, cli_at(parting, "recorded")) event_show("recorded", event);
}

static void factors_show(const cJSON *answer) {
    const cJSON *factor, *factors = cli_at(answer, "only_predicted_bytes");
    cli_number text;
    if (!cJSON_GetArraySize(factors) && !cli_int_at(answer, "only_recorded_bytes")) return;
    cli_heading("Requests that only one of them has, bytes in all");
    cJSON_ArrayForEach(factor, factors)
        printf("  predicted, %s: %s\n", factor->string, cli_count(text, cli_int(factor)));
    printf("  recorded: %s\n", cli_count(text, cli_int_at(answer, "only_recorded_bytes")));
}

static void alignment_show(const cJSON *answer) {
    const cJSON *parting;
    int64_t count = cli_int_at(answer, "parting_count");
    int shown = 0;
    cli_number one, other, same;
    peaks_show(answer);
    printf("\n  %s requests and frees predicted, %s recorded, %s the same in size and order\n",
           cli_count(one, cli_int_at(answer, "predicted_events")),
           cli_count(other, cli_int_at(answer, "recorded_events")), cli_count(same, cli_int_at(answer, "same")));
    if (count) cli_heading("Where they part");
    cJSON_ArrayForEach(parting, cli_at(answer, "partings")) {
        if (shown++ < PARTINGS_SHOWN) parting_show(parting);
    }
    if (count > PARTINGS_SHOWN) printf("  and %" PRId64 " times more\n", count - PARTINGS_SHOWN);
    if (cli_true_at(answer, "has_lost"))
        puts("  After the last one they do not meet again: another job, or another program, was recorded.");
    factors_show(answer);
    cli_diagnostics_show(stdout, cli_at(answer, "diagnostics"));
}

int cli_align(const cli_arguments *a) {
    struct tide_recorded *recording = NULL;
    cli_buffer request = {0}, more = {0};
    cli_answer answer = {0};
    const char *damage = NULL;
    int status = cli_recording_read(&recording, a->recording, &damage);
    if (damage) cli_format(&more, ",\"damage\":\"%s\"", damage);
    if (status == CLI_OK) status = cli_request(&request, "align", a, more.at ? more.at : "");
    if (status == CLI_OK) status = cli_ask_recording(&answer, recording, &request, a->is_json);
    if (status == CLI_OK && a->is_json)
        printf("%.*s\n", (int)answer.length, answer.text);
    else if (status == CLI_OK)
        alignment_show(answer.json);
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&more);
    tide_recording_free(recording);
    return status;
}
