/* SPDX-License-Identifier: Apache-2.0 */
/* Printing an observed run in the form of an estimate. */
#define _GNU_SOURCE
#include "../native/estimate.h"
#include "launch.h"

#include <inttypes.h>
#include <string.h>

enum { TENSOR_ROWS = 12, READ_ROWS = 8 };

static void row(cli_table *table, const char *title, int64_t bytes, int64_t whole, cli_unit unit) {
    cli_number text;
    cli_table_cell(table, title);
    cli_table_cell(table, cli_amount(text, bytes, unit));
    cli_table_cell(table, cli_share(text, bytes, whole));
}

static void factors_show(const cJSON *answer, cli_unit unit) {
    const cJSON *peak = cli_at(answer, "peak"), *item;
    int64_t device = cli_int_at(peak, "device");
    cli_buffer head = {0};
    cli_table table;
    cli_format(&head, "At the peak, %s", cli_unit_name(unit));
    cli_heading(head.at);
    cli_buffer_free(&head);
    cli_table_init(&table, 3);
    cli_table_cell(&table, "");
    cli_table_cell(&table, "Total");
    cli_table_cell(&table, "Share");
    cli_table_rule(&table);
    cJSON_ArrayForEach(item, cli_at(answer, "factors"))
        row(&table, cli_factor_title(cli_text_at(item, "name")), cli_int_at(item, "bytes"), device, unit);
    if (cli_at(answer, "factors")) cli_table_rule(&table);
    row(&table, "Allocated", cli_int_at(peak, "allocated"), device, unit);
    cJSON_ArrayForEach(item, cli_at(answer, "outside"))
        row(&table, cli_factor_title(cli_text_at(item, "name")), cli_int_at(item, "bytes"), device, unit);
    cli_table_rule(&table);
    row(&table, "Device", device, device, unit);
    cli_table_print(&table);
}

static void tensors_show(const cJSON *answer, bool is_exact) {
    const cJSON *tensor;
    cli_number text;
    cli_table table;
    int shown = 0;
    if (cJSON_GetArraySize(cli_at(answer, "tensors")) == 0) return;
    cli_heading("Largest at the peak");
    cli_table_init(&table, 4);
    table.is_left[0] = false;
    table.is_left[2] = table.is_left[3] = true;
    table.shrinks_last = true;
    cli_table_cell(&table, "Total");
    cli_table_cell(&table, "Count");
    cli_table_cell(&table, "Factor");
    cli_table_cell(&table, "From");
    cJSON_ArrayForEach(tensor, cli_at(answer, "tensors")) {
        const char *factor = cli_text_at(tensor, "factor");
        int64_t bytes = cli_int_at(tensor, "bytes");
        if (shown == TENSOR_ROWS || strcmp(factor, "rounding") == 0) break;
        cli_table_cell(&table, is_exact ? cli_count(text, bytes) : cli_size(text, bytes));
        cli_table_cell(&table, cli_count(text, cli_int_at(tensor, "count")));
        cli_table_cell(&table, cli_factor_title(factor));
        cli_table_cell(&table, cli_text_at(tensor, "from"));
        shown++;
    }
    cli_table_print(&table);
}

static void processes_show(const cJSON *answer, cli_unit unit) {
    const cJSON *process, *device;
    cli_number text;
    cli_table table;
    int users = 0;
    cJSON_ArrayForEach(process, cli_at(answer, "processes")) users += cJSON_GetArraySize(cli_at(process, "devices"));
    if (users < 2) return;
    cli_heading("By rank");
    cli_table_init(&table, 5);
    cli_table_cell(&table, "Rank");
    cli_table_cell(&table, "GPU");
    cli_table_cell(&table, "Allocated");
    cli_table_cell(&table, "Reserved");
    cli_table_cell(&table, "Steps");
    cJSON_ArrayForEach(process, cli_at(answer, "processes")) cJSON_ArrayForEach(device, cli_at(process, "devices")) {
        cli_table_cell(&table, cli_count(text, cli_int_at(process, "rank")));
        cli_table_cell(&table, cli_count(text, cli_int_at(device, "index")));
        cli_table_cell(&table, cli_amount(text, cli_int_at(device, "allocated_peak"), unit));
        cli_table_cell(&table, cli_amount(text, cli_int_at(device, "reserved_peak"), unit));
        cli_table_cell(&table, cli_count(text, cli_int_at(process, "steps")));
    }
    cli_table_print(&table);
}

static void item_show(const char *head, const char *text) {
    printf("  %s%s%s  ", cli_styled(CLI_BOLD), head, cli_styled_end());
    cli_wrapped(text, 4, 4 + cli_width(head));
}

static void notes_show(const cJSON *answer) {
    const cJSON *notes = cli_at(answer, "notes"), *note;
    if (cJSON_GetArraySize(notes) == 0) return;
    cli_heading("Look at");
    cJSON_ArrayForEach(note, notes) item_show(cli_text_at(note, "kind"), cli_text_at(note, "text"));
}

static void values_show(const cJSON *answer) {
    const cJSON *reads = cli_at(answer, "reads"), *assumed = cli_at(answer, "assumed"), *item;
    int shown = 0;
    if (cJSON_GetArraySize(assumed) > 0) {
        cli_heading("Assumed of values, which a phantom GPU does not compute");
        cJSON_ArrayForEach(item, assumed) item_show("", cli_text_at(item, "what"));
    }
    if (cJSON_GetArraySize(reads) == 0) return;
    cli_heading("Lines that read values from the GPU: computed ones were zero; --answer FILE:LINE=N gives one");
    cJSON_ArrayForEach(item, reads) {
        cli_buffer text = {0};
        if (shown++ == READ_ROWS) {
            printf("  and %d more\n", cJSON_GetArraySize(reads) - READ_ROWS);
            break;
        }
        int64_t times = cli_int_at(item, "count");
        cli_format(&text, "%s:%" PRId64 " %s, %" PRId64 " time%s", cli_text_at(item, "file"), cli_int_at(item, "line"),
                   cli_text_at(item, "function"), times, times == 1 ? "" : "s");
        printf("  %s\n", text.at);
        cli_buffer_free(&text);
    }
}

void observed_show(const cJSON *answer, bool is_exact) {
    bool is_small = cli_int_at(cli_at(answer, "peak"), "device") < 1 << 30;
    cli_unit unit = is_exact ? CLI_BYTES : is_small ? CLI_MIB : CLI_GIB;
    printf("%s%s%s\n", cli_styled(CLI_BOLD), cli_text_at(answer, "title"), cli_styled_end());
    cli_verdict_show(answer);
    if (cli_at(answer, "smallest_device_bytes")) {
        cli_number smallest;
        printf("  runs on a device of %s or more\n", cli_size(smallest, cli_int_at(answer, "smallest_device_bytes")));
    } else if (cJSON_IsFalse(cli_at(cli_at(answer, "verdict"), "fits"))) {
        puts("  the program ended there: a larger --gpu shows what it needs after that");
    }
    factors_show(answer, unit);
    cli_peak_show(answer);
    cli_steps_show(answer, unit);
    tensors_show(answer, is_exact);
    if (cli_at(answer, "options")) cli_options_show(answer, is_exact);
    processes_show(answer, unit);
    values_show(answer);
    notes_show(answer);
}
