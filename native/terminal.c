/* SPDX-License-Identifier: Apache-2.0 */
/* Text on the terminal: styles, widths, wrapping, numbers, tables. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_colour, has_utf8, has_progress;

void cli_screen_init(void) {
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    setlocale(LC_CTYPE, "");
    has_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    setlocale(LC_CTYPE, "C");
    has_colour = isatty(STDOUT_FILENO) && !(no_colour && no_colour[0]) && !(terminal && strcmp(terminal, "dumb") == 0);
    has_progress = isatty(STDERR_FILENO) != 0;
}

void cli_screen_plain(void) {
    has_colour = false;
    has_utf8 = true;
}

bool cli_is_utf8(void) {
    return has_utf8;
}

const char *cli_styled(enum cli_style style) {
    static const char *const escapes[] = {"", "\033[1m", "\033[2m", "\033[1;32m", "\033[1;31m", "\033[33m"};
    return has_colour ? escapes[style] : "";
}

const char *cli_styled_end(void) {
    return has_colour ? "\033[0m" : "";
}

void cli_heading(const char *text) {
    printf("\n%s%s%s\n", cli_styled(CLI_BOLD), text, cli_styled_end());
}

void cli_clean(char *text) {
    unsigned char *at = (unsigned char *)text;
    for (; *at; at++) {
        bool is_c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (is_c1) *at++ = '.';
        if (is_c1 || (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f) *at = '.';
    }
}

/* One column per code point: the output has no wide characters. */
size_t cli_width(const char *text) {
    size_t width = 0;
    for (; *text; text++)
        if (((unsigned char)*text & 0xc0) != 0x80) width++;
    return width;
}

/* Bytes of the first `width` columns. */
static size_t bytes_of_width(const char *text, size_t width) {
    size_t at = 0;
    while (text[at]) {
        if (((unsigned char)text[at] & 0xc0) != 0x80 && width-- == 0) break;
        at++;
    }
    return at;
}

/* Truncated at its start: the end of a dotted name says more. */
static void put_end(const char *text, size_t width) {
    size_t is = cli_width(text);
    if (is <= width) {
        fputs(text, stdout);
        return;
    }
    printf("%s%s", has_utf8 ? "…" : "~", text + bytes_of_width(text, is - width + 1));
}

static void spaces(size_t count) {
    while (count--) putchar(' ');
}

void cli_pad(const char *text, size_t width, bool right) {
    size_t is = cli_width(text);
    if (right && is < width) spaces(width - is);
    if (is > width)
        printf("%.*s%s", (int)bytes_of_width(text, width - 1), text, has_utf8 ? "…" : "~");
    else
        fputs(text, stdout);
    if (!right && is < width) spaces(width - is);
}

void cli_wrapped(const char *text, size_t indent, size_t at) {
    bool is_first = true;
    while (*text) {
        size_t length = strcspn(text, " ");
        cli_buffer word = {0};
        cli_append(&word, text, length);
        size_t width = cli_width(word.at);
        if (!is_first && at + 1 + width > CLI_WIDTH) {
            putchar('\n');
            spaces(indent);
            at = indent;
        } else if (!is_first) {
            putchar(' ');
            at++;
        }
        fputs(word.at, stdout);
        at += width;
        is_first = false;
        cli_buffer_free(&word);
        text += length + strspn(text + length, " ");
    }
    putchar('\n');
}

/* One line on standard error, over the previous one. */
void cli_progress(const char *format, ...) {
    if (!has_progress) return;
    va_list list;
    va_start(list, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, list);
    va_end(list);
    fflush(stderr);
}

void cli_progress_end(void) {
    if (has_progress) fputs("\r\033[K", stderr);
}

/* ---- numbers ---- */

/* value / unit with digits after the point, rounded half up, without floating point. */
static void put_ratio(char *out, size_t size, uint64_t value, uint64_t unit, unsigned digits) {
    uint64_t scale = 1, whole = value / unit, rest = value % unit;
    for (unsigned i = 0; i < digits; i++) scale *= 10;
    uint64_t fraction = (rest * scale + unit / 2) / unit; /* rest < 2^40, scale <= 1000 */
    if (fraction == scale) whole++, fraction = 0;
    if (digits)
        snprintf(out, size, "%" PRIu64 ".%0*" PRIu64, whole, (int)digits, fraction);
    else
        snprintf(out, size, "%" PRIu64, whole);
}

static const char *signed_ratio(char *out, size_t size, int64_t bytes, uint64_t unit, unsigned digits) {
    uint64_t value = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    size_t at = bytes < 0 ? 1 : 0;
    if (at) out[0] = '-';
    put_ratio(out + at, size - at, value, unit, digits);
    return out;
}

/* A value that would round to zero is shown as less than the last digit. */
const char *cli_gib(cli_number out, int64_t bytes) {
    if (bytes > 0 && bytes < (1 << 30) / 200) return strcpy(out, "<0.01");
    return signed_ratio(out, sizeof(cli_number), bytes, 1u << 30, 2);
}

const char *cli_mib(cli_number out, int64_t bytes) {
    if (bytes > 0 && bytes < (1 << 20) / 20) return strcpy(out, "<0.1");
    return signed_ratio(out, sizeof(cli_number), bytes, 1u << 20, 1);
}

const char *cli_size(cli_number out, int64_t bytes) {
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {{1u << 30, "GiB"}, {1u << 20, "MiB"}, {1u << 10, "KiB"}};
    uint64_t value = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (value < units[i].unit) continue;
        signed_ratio(out, sizeof(cli_number) - 5, bytes, units[i].unit, 1);
        strcat(strcat(out, " "), units[i].name);
        return out;
    }
    snprintf(out, sizeof(cli_number), "%" PRId64 " B", bytes);
    return out;
}

const char *cli_count(cli_number out, int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    size_t length = strlen(digits), at = 0;
    if (value < 0) out[at++] = '-';
    for (size_t i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

const char *cli_share(cli_number out, int64_t part, int64_t whole) {
    out[0] = 0;
    if (whole <= 0 || part < 0) return out;
    int64_t percent = (part * 100 + whole / 2) / whole;
    if (percent == 0 && part > 0)
        snprintf(out, sizeof(cli_number), "<1 %%");
    else
        snprintf(out, sizeof(cli_number), "%" PRId64 " %%", percent);
    return out;
}

/* ---- tables ---- */

void cli_table_init(cli_table *table, size_t columns) {
    *table = (cli_table){.columns = columns};
    table->is_left[0] = true;
}

void cli_table_rule(cli_table *table) {
    table->has_rule_next = true;
}

void cli_table_cell(cli_table *table, const char *text) {
    if (table->count % table->columns == 0) {
        size_t row = table->count / table->columns;
        table->rules = cli_grow(table->rules, row, sizeof *table->rules);
        table->rules[row] = table->has_rule_next;
        table->has_rule_next = false;
    }
    cli_buffer copy = {0};
    cli_append_text(&copy, text);
    table->cells = cli_grow(table->cells, table->count, sizeof *table->cells);
    table->cells[table->count++] = copy.at;
}

void cli_table_free(cli_table *table) {
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    free(table->rules);
    *table = (cli_table){0};
}

void cli_table_print(cli_table *table) {
    size_t widths[CLI_TABLE_COLUMNS] = {0}, total = 0;
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns, width = cli_width(table->cells[i]);
        if (table->limit[column] && width > table->limit[column]) width = table->limit[column];
        if (width > widths[column]) widths[column] = width;
    }
    for (size_t c = 0; c < table->columns; c++) total += widths[c] + (c ? 2 : 0);
    size_t *end = &widths[table->columns - 1];
    if (table->shrinks_last && total > CLI_WIDTH && *end > total - CLI_WIDTH + 8) {
        *end -= total - CLI_WIDTH;
        total = CLI_WIDTH;
    }
    for (size_t r = 0; table->columns && r < table->count / table->columns; r++) {
        if (table->rules[r]) {
            fputs(cli_styled(CLI_DIM), stdout);
            for (size_t i = 0; i < total; i++) fputs(has_utf8 ? "─" : "-", stdout);
            printf("%s\n", cli_styled_end());
        }
        if (r == 0) fputs(cli_styled(CLI_DIM), stdout);
        size_t last = table->columns;
        while (last > 1 && !table->cells[r * table->columns + last - 1][0]) last--;
        for (size_t c = 0; c < last; c++) {
            const char *cell = table->cells[r * table->columns + c];
            bool is_left = table->is_left[c];
            if (c) fputs("  ", stdout);
            if (c + 1 == table->columns && table->shrinks_last)
                put_end(cell, widths[c]);
            else if (c + 1 == last && is_left && cli_width(cell) <= widths[c])
                fputs(cell, stdout);
            else
                cli_pad(cell, widths[c], !is_left);
        }
        if (r == 0) fputs(cli_styled_end(), stdout);
        putchar('\n');
    }
    cli_table_free(table);
}

void cli_csv_text(FILE *csv, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, csv);
        return;
    }
    fputc('"', csv);
    for (; *text; text++) {
        if (*text == '"') fputc('"', csv);
        fputc(*text, csv);
    }
    fputc('"', csv);
}
