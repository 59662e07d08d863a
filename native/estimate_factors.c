/* SPDX-License-Identifier: Apache-2.0 */
/* The table of an estimate: factors down, parts of the model across. */
#include "estimate.h"

#include <inttypes.h>
#include <string.h>

enum { PARTS_KEPT = 32, COLUMNS_WIDE = 66 }; /* screen columns that parts get */

static const struct {
    const char *name, *title;
} titles[] = {
    {"parameters", "Parameters"},
    {"gradients", "Gradients"},
    {"optimizer", "Optimizer state"},
    {"master", "Master weights"},
    {"activations", "Activations"},
    {"temporary", "Temporaries"},
    {"kv_cache", "KV cache"},
    {"workspace", "Library workspace"},
    {"gathered", "Gathered weights"},
    {"communication", "Communication"},
    {"inputs", "Inputs"},
    {"buffers", "Buffers"},
    {"other", "Other tensors"},
    {"rounding", "Rounding of blocks"},
    {"fragmentation", "Fragmentation"},
    {"reserved_elsewhen", "Other reserved"},
    {"libraries", "Other libraries"},
    {"context", "CUDA context"},
};

const char *cli_factor_title(const char *name) {
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (strcmp(titles[i].name, name) == 0) return titles[i].title;
    return name;
}

const char *cli_unit_name(cli_unit unit) {
    return unit == CLI_GIB ? "GiB" : unit == CLI_MIB ? "MiB" : "bytes";
}

const char *cli_amount(cli_number out, int64_t bytes, cli_unit unit) {
    if (bytes == 0) return strcpy(out, cli_is_utf8() ? "·" : ".");
    if (unit == CLI_BYTES) return cli_count(out, bytes);
    return unit == CLI_GIB ? cli_gib(out, bytes) : cli_mib(out, bytes);
}

/* "16 batch x 1024 seq x 11008 inner x bf16" */
void cli_shape(cli_buffer *text, const cJSON *tensor) {
    const char *times = cli_is_utf8() ? " × " : " x ";
    const cJSON *dim;
    cJSON_ArrayForEach(dim, cli_at(tensor, "shape")) {
        const char *name = cli_text_at(dim, "name");
        if (text->length) cli_append_text(text, times);
        cli_format(text, "%" PRId64 "%s%s", cli_int_at(dim, "n"), name[0] ? " " : "", name);
    }
    const char *dtype = cli_text_at(tensor, "dtype");
    if (dtype[0]) cli_format(text, "%s%s", text->length ? times : "", dtype);
}

/* The parts with a column of their own, in the model's order; all others share the last column. */
typedef struct parts {
    const cJSON *breakdown;
    int own[PARTS_KEPT];
    int own_count, count; /* count: of all parts */
    cli_unit unit;
} parts;

static int64_t part_bytes(const parts *p, int part, const char *factor) {
    const cJSON *of = cJSON_GetArrayItem(p->breakdown, part);
    return factor[0] ? cli_int_at(cli_at(of, "factors"), factor) : cli_int_at(of, "bytes");
}

static bool has_column(const parts *p, int part) {
    for (int i = 0; i < p->own_count; i++)
        if (p->own[i] == part) return true;
    return false;
}

static int64_t others_bytes(const parts *p, const char *factor) {
    int64_t bytes = 0;
    for (int i = 0; i < p->count; i++)
        if (!has_column(p, i)) bytes += part_bytes(p, i, factor);
    return bytes;
}

/* How many parts hold more than this one, or the same amount and come first. */
static int part_rank(const parts *p, int part) {
    int rank = 0;
    int64_t bytes = part_bytes(p, part, "");
    for (int i = 0; i < p->count; i++) {
        int64_t other = part_bytes(p, i, "");
        if (other > bytes || (other == bytes && i < part)) rank++;
    }
    return rank;
}

static void parts_choose(parts *p, int room) {
    int kept = p->count <= room ? p->count : room - 1;
    for (int i = 0; i < p->count && p->own_count < PARTS_KEPT; i++)
        if (part_rank(p, i) < kept) p->own[p->own_count++] = i;
}

static size_t part_columns(const parts *p) {
    return (size_t)p->own_count + (p->count > p->own_count ? 1 : 0);
}

static const char *part_title(const parts *p, int i) {
    const cJSON *part = cJSON_GetArrayItem(p->breakdown, p->own[i]);
    const char *title = cli_text_at(part, "title"), *name = cli_text_at(part, "part");
    if (!name[0]) return "Rest"; /* the batch, the loss: outside of the model */
    return title[0] ? title : name;
}

/* Truncates titles, the widest first, until the columns fit the screen. */
static size_t title_limit(const parts *p) {
    size_t limit = 24, total, least = p->unit == CLI_BYTES ? 14 : 7;
    do {
        total = p->count > p->own_count ? least + 2 : 0;
        for (int i = 0; i < p->own_count; i++) {
            size_t width = cli_width(part_title(p, i));
            if (width < least) width = least;
            total += (width < limit ? width : limit) + 2;
        }
    } while (total > COLUMNS_WIDE && --limit > least);
    return limit;
}

static void head_row(cli_table *table, const parts *p) {
    size_t limit = title_limit(p);
    for (size_t i = 1; i <= part_columns(p); i++) table->limit[i] = limit;
    cli_table_cell(table, "");
    for (int i = 0; i < p->own_count; i++) cli_table_cell(table, part_title(p, i));
    if (p->count > p->own_count) cli_table_cell(table, "Others");
    cli_table_cell(table, "Total");
    cli_table_cell(table, "Share");
}

/* factor "" is the total. */
static void factor_row(cli_table *table, const parts *p, const char *title, const char *factor, int64_t total,
                       int64_t device) {
    cli_number text;
    cli_table_cell(table, title);
    for (int i = 0; i < p->own_count; i++)
        cli_table_cell(table, cli_amount(text, part_bytes(p, p->own[i], factor), p->unit));
    if (p->count > p->own_count) cli_table_cell(table, cli_amount(text, others_bytes(p, factor), p->unit));
    cli_table_cell(table, cli_amount(text, total, p->unit));
    cli_table_cell(table, cli_share(text, total, device));
}

/* A row for the whole device, which belongs to no part. */
static void device_row(cli_table *table, const parts *p, const char *title, int64_t bytes, int64_t device) {
    cli_number text;
    cli_table_cell(table, title);
    for (size_t i = 0; i < part_columns(p); i++) cli_table_cell(table, "");
    cli_table_cell(table, cli_amount(text, bytes, p->unit));
    cli_table_cell(table, cli_share(text, bytes, device));
}

void cli_factors_show(const cJSON *answer, cli_unit unit) {
    const cJSON *peak = cli_at(answer, "peak"), *row;
    int64_t allocated = cli_int_at(peak, "allocated"), device = cli_int_at(peak, "device");
    parts p = {.breakdown = cli_at(answer, "breakdown"), .unit = unit};
    cli_table table;
    p.count = cJSON_GetArraySize(p.breakdown);
    parts_choose(&p, unit == CLI_BYTES ? 3 : 5);
    cli_buffer head = {0};
    cli_format(&head, "At the peak, %s", cli_unit_name(unit));
    cli_heading(head.at);
    cli_buffer_free(&head);
    cli_table_init(&table, part_columns(&p) + 3);
    head_row(&table, &p);
    cli_table_rule(&table);
    cJSON_ArrayForEach(row, cli_at(answer, "factors")) {
        const char *name = cli_text_at(row, "name");
        int64_t bytes = cli_int_at(row, "bytes");
        if (bytes) factor_row(&table, &p, cli_factor_title(name), name, bytes, device);
    }
    cli_table_rule(&table);
    factor_row(&table, &p, "Allocated", "", allocated, device);
    cJSON_ArrayForEach(row, cli_at(answer, "outside"))
        device_row(&table, &p, cli_factor_title(cli_text_at(row, "name")), cli_int_at(row, "bytes"), device);
    cli_table_rule(&table);
    device_row(&table, &p, "Device", device, device);
    cli_table_print(&table);
}
