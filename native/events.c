/* SPDX-License-Identifier: Apache-2.0 */
/* --events and --state: the events of a job or a recording one by one, and the allocator after one of them. */
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_COUNT = 20, SEGMENT_ROWS = 20, ALIVE_ROWS = 12 };

/* ---- the request ---- */

static bool number_of(const char *option, const char *text, int64_t most, int64_t *number) {
    char *end = NULL;
    *number = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : -1;
    if (end && !*end && *number >= 0 && *number <= most) return true;
    cli_complain(NULL, "%s %s: a whole number, at most %" PRId64, option, text, most);
    return false;
}

bool cli_events_members(cli_buffer *members, const cli_arguments *a) {
    int64_t at = 0, count = USUAL_COUNT;
    if (!a->shows_events && !a->shows_state) {
        if (!a->at && !a->count && !a->filter) return true;
        cli_complain("--events lists them; --state shows the allocator after one",
                     "--at, --count and --filter are for --events and --state");
        return false;
    }
    if (a->at && !number_of("--at", a->at, INT32_MAX, &at)) return false;
    if (a->count && !number_of("--count", a->count, 500, &count)) return false;
    cli_format(members, ",\"count\":%" PRId64, count);
    if (a->at) cli_format(members, ",\"at\":%" PRId64, at);
    if (!a->filter) return true;
    cli_append_text(members, ",\"filter\":");
    cli_append_quoted(members, a->filter, strlen(a->filter));
    return true;
}

/* ---- text ---- */

static const char *size_of(cli_number out, int64_t bytes, bool is_exact) {
    return is_exact ? cli_count(out, bytes) : cli_size(out, bytes);
}

static void address_of(cli_buffer *out, const cJSON *of, const char *key) {
    if (cli_at(of, key)) cli_format(out, "%#" PRIx64, cli_int_at(of, key));
}

/* "file:line function" for a recording, "module operation" for a job. */
static void source_of(cli_buffer *out, const cJSON *of) {
    const char *frame = cli_text_at(of, "frame"), *module = cli_text_at(of, "module"), *op = cli_text_at(of, "op");
    cli_append_text(out, frame);
    if (module[0]) cli_format(out, "%s ", module);
    cli_append_text(out, op);
}

static void cell(cli_table *table, cli_buffer *text) {
    cli_table_cell(table, text->at ? text->at : "");
    cli_buffer_free(text);
}

static void rows_show(const cJSON *answer, bool is_exact, int64_t at) {
    static const char *const heads[] = {"",      "Event",   "",          "Bytes",    "Stream",
                                        "Block", "Segment", "Allocated", "Reserved", "From"};
    enum { HEADS = sizeof heads / sizeof *heads };
    const cJSON *row;
    cli_table table;
    cli_number text, reserved;
    cli_table_init(&table, HEADS);
    table.is_left[0] = table.is_left[2] = table.is_left[9] = table.shrinks_last = true;
    for (int i = 0; i < HEADS; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        cli_buffer block = {0}, segment = {0}, source = {0};
        bool is_played = cli_at(row, "allocated") != NULL;
        address_of(&block, row, "address");
        address_of(&segment, row, "segment");
        source_of(&source, row);
        cli_table_cell(&table, cli_int_at(row, "event") == at ? ">" : "");
        cli_table_cell(&table, cli_count(text, cli_int_at(row, "event")));
        cli_table_cell(&table, cli_text_at(row, "kind"));
        cli_table_cell(&table,
                       cli_at(row, "requested")
                           ? size_of(text, cli_int_at(row, cli_at(row, "bytes") ? "bytes" : "requested"), is_exact)
                           : "");
        cli_table_cell(&table, cli_at(row, "stream") ? cli_count(text, cli_int_at(row, "stream")) : "");
        cell(&table, &block);
        cell(&table, &segment);
        cli_table_cell(&table, is_played ? size_of(text, cli_int_at(row, "allocated"), is_exact) : "not played");
        cli_table_cell(&table, is_played ? size_of(reserved, cli_int_at(row, "reserved"), is_exact) : "");
        cell(&table, &source);
    }
    cli_table_print(&table);
}

static void segments_show(const cJSON *answer, bool is_exact) {
    static const char *const heads[] = {"Segment", "Pool", "Bytes", "Count", "Blocks", "Live", "Free", "Largest gap"};
    enum { HEADS = sizeof heads / sizeof *heads };
    const cJSON *segment, *others = cli_at(answer, "other_segments");
    cli_table table;
    cli_number text;
    int64_t rest = cli_int_at(others, "count"), rest_bytes = cli_int_at(others, "bytes"),
            rest_live = cli_int_at(others, "live");
    int shown = 0;
    cli_heading("Segments, those with most free memory first");
    cli_table_init(&table, HEADS);
    table.is_left[1] = true;
    for (int i = 0; i < HEADS; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(segment, cli_at(answer, "segments")) {
        int64_t bytes = cli_int_at(segment, "bytes"), live = cli_int_at(segment, "live"),
                count = cli_at(segment, "count") ? cli_int_at(segment, "count") : 1;
        cli_buffer address = {0};
        if (shown++ >= SEGMENT_ROWS) {
            rest += count, rest_bytes += bytes * count, rest_live += live * count;
            continue;
        }
        address_of(&address, segment, "address");
        cell(&table, &address);
        cli_table_cell(&table, cli_text_at(segment, "pool"));
        cli_table_cell(&table, size_of(text, bytes, is_exact));
        cli_table_cell(&table, cli_count(text, count));
        cli_table_cell(&table, cli_count(text, cli_int_at(segment, "blocks")));
        cli_table_cell(&table, size_of(text, live, is_exact));
        cli_table_cell(&table, size_of(text, bytes - live - cli_int_at(segment, "waiting"), is_exact));
        cli_table_cell(&table, size_of(text, cli_int_at(segment, "largest_free"), is_exact));
    }
    cli_table_print(&table);
    if (rest) {
        printf("  and %s others, of which ", cli_count(text, rest));
        printf("%s are reserved, ", size_of(text, rest_bytes, is_exact));
        printf("%s live\n", size_of(text, rest_live, is_exact));
    }
}

static void alive_show(const cJSON *answer, bool is_exact) {
    static const char *const heads[] = {"Total", "Count", "Each", "Since event", "From"};
    const cJSON *one;
    cli_table table;
    cli_number text;
    int64_t rest = 0;
    int shown = 0;
    cli_heading("Alive");
    cli_table_init(&table, 5);
    table.is_left[0] = false;
    table.is_left[4] = table.shrinks_last = true;
    for (int i = 0; i < 5; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(one, cli_at(answer, "alive")) {
        cli_buffer source = {0};
        rest += cli_int_at(one, "rest");
        if (cli_at(one, "rest")) continue;
        if (shown++ >= ALIVE_ROWS) {
            rest += cli_int_at(one, "bytes");
            continue;
        }
        source_of(&source, one);
        cli_table_cell(&table, size_of(text, cli_int_at(one, "bytes"), is_exact));
        cli_table_cell(&table, cli_count(text, cli_int_at(one, "count")));
        cli_table_cell(&table, size_of(text, cli_int_at(one, "each"), is_exact));
        cli_table_cell(&table, cli_at(one, "event") ? cli_count(text, cli_int_at(one, "event")) : "before");
        cell(&table, &source);
    }
    cli_table_print(&table);
    if (rest) printf("  and %s of all others\n", size_of(text, rest, is_exact));
}

static void state_show(const cJSON *answer, bool is_exact) {
    cli_number allocated, reserved, text, count;
    int64_t free_bytes =
        cli_int_at(answer, "reserved") - cli_int_at(answer, "allocated") - cli_int_at(answer, "waiting");
    printf("After event %s of %s: %s allocated, ", cli_count(count, cli_int_at(answer, "event")),
           cli_count(text, cli_int_at(answer, "events")),
           size_of(allocated, cli_int_at(answer, "allocated"), is_exact));
    printf("%s reserved\n", size_of(reserved, cli_int_at(answer, "reserved"), is_exact));
    printf("  %s blocks live in %s segments; ", cli_count(count, cli_int_at(answer, "live_count")),
           cli_count(text, cli_int_at(answer, "segment_count")));
    printf("%s free, the largest gap %s", size_of(allocated, free_bytes, is_exact),
           size_of(reserved, cli_int_at(answer, "largest_free"), is_exact));
    printf("; %s in empty segments\n", size_of(text, cli_int_at(cli_at(answer, "idle"), "bytes"), is_exact));
    if (cli_int_at(answer, "waiting"))
        printf("  %s wait for another stream\n", size_of(text, cli_int_at(answer, "waiting"), is_exact));
    if (cli_at(answer, "failed_at"))
        printf("  it ran out of memory at event %s: this is the state then\n",
               cli_count(text, cli_int_at(answer, "failed_at")));
    segments_show(answer, is_exact);
    alive_show(answer, is_exact);
}

void cli_events_show(const cJSON *answer, const cli_arguments *a) {
    cli_number text, all;
    if (a->shows_state) {
        state_show(answer, a->shows_bytes);
        return;
    }
    rows_show(answer, a->shows_bytes, a->at ? strtoll(a->at, NULL, 10) : -1);
    printf("  of %s events", cli_count(all, cli_int_at(answer, "events")));
    if (a->filter) printf(", %s with \"%s\"", cli_count(text, cli_int_at(answer, "passing")), a->filter);
    putchar('\n');
}
