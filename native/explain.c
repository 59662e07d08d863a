/* `tidemark explain`: whatever the core tells about a number, as an outline.
 *
 * The answer's form is the core's: members become lines, lists of objects become tables. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OUTLINE_DEPTH = 12 };

static void outline(const cJSON *node, size_t indent);

static bool is_plain(const cJSON *node) { return !cJSON_IsObject(node) && !cJSON_IsArray(node); }

static void plain_text(cli_buffer *text, const cJSON *node) {
    cli_number number;
    if (cJSON_IsString(node))
        cli_append_text(text, node->valuestring);
    else if (cJSON_IsNumber(node))
        cli_append_text(text, cli_count(number, cli_int(node)));
    else
        cli_append_text(text, cJSON_IsTrue(node) ? "yes" : cJSON_IsFalse(node) ? "no" : "-");
}

/* Shapes and other short lists stand on one line. */
static bool line_text(cli_buffer *text, const cJSON *node) {
    const cJSON *child;
    if (is_plain(node)) {
        plain_text(text, node);
        return true;
    }
    if (!cJSON_IsArray(node) || cJSON_GetArraySize(node) > 8) return false;
    cJSON_ArrayForEach(child, node) {
        if (text->length) cli_append_text(text, cli_is_utf8() ? " × " : " x ");
        if (is_plain(child)) {
            plain_text(text, child);
        } else if (cJSON_IsObject(child) && cli_at(child, "n") && cJSON_GetArraySize(child) <= 2) {
            cli_format(text, "%" PRId64 " %s", cli_int_at(child, "n"), cli_text_at(child, "name"));
        } else {
            return false;
        }
    }
    return true;
}

/* Objects of the same few members. */
static bool is_table(const cJSON *list) {
    const cJSON *first = list->child, *row, *cell;
    int columns = cJSON_IsObject(first) ? cJSON_GetArraySize(first) : 0;
    if (columns == 0 || columns > 8) return false;
    cJSON_ArrayForEach(row, list) {
        if (!cJSON_IsObject(row) || cJSON_GetArraySize(row) > columns) return false;
        cJSON_ArrayForEach(cell, row) {
            cli_buffer text = {0};
            bool is_line = cli_at(first, cell->string) && line_text(&text, cell);
            cli_buffer_free(&text);
            if (!is_line) return false;
        }
    }
    return true;
}

static void table_show(const cJSON *list) {
    const cJSON *first = list->child, *row, *column;
    cli_table table;
    cli_table_init(&table, (size_t)cJSON_GetArraySize(first));
    size_t at = 0;
    cJSON_ArrayForEach(column, first) {
        table.is_left[at] = !cJSON_IsNumber(column);
        table.limit[at++] = 48;
        cli_table_cell(&table, column->string);
    }
    cJSON_ArrayForEach(row, list) cJSON_ArrayForEach(column, first) {
        cli_buffer text = {0};
        const cJSON *cell = cli_at(row, column->string);
        if (cell) line_text(&text, cell);
        cli_table_cell(&table, text.at ? text.at : "");
        cli_buffer_free(&text);
    }
    cli_table_print(&table);
}

static void outline_member(const cJSON *node, size_t indent) {
    cli_buffer text = {0}, head = {0};
    bool is_line = line_text(&text, node);
    cli_format(&head, "%*s%s%s%s  ", (int)indent, "", cli_styled(CLI_BOLD),
               node->string ? node->string : "-", cli_styled_end());
    fputs(head.at, stdout);
    if (is_line) {
        size_t at = indent + cli_width(node->string ? node->string : "-") + 2;
        cli_wrapped(text.at ? text.at : "", indent + 2, at);
    } else {
        putchar('\n');
        outline(node, indent + 2);
    }
    cli_buffer_free(&text);
    cli_buffer_free(&head);
}

static void outline(const cJSON *node, size_t indent) {
    const cJSON *child;
    if (indent > 2 * OUTLINE_DEPTH) return;
    if (cJSON_IsArray(node) && is_table(node)) {
        table_show(node);
        return;
    }
    cJSON_ArrayForEach(child, node) {
        if (indent == 0 && child->string && strcmp(child->string, "ok") == 0) continue;
        outline_member(child, indent);
    }
}

int cli_explain(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0}, more = {0};
    cli_answer answer = {0};
    int status =
        cli_arguments_read(&arguments, argc, argv, CLI_TAKES_JSON | CLI_TAKES_OF | CLI_TAKES_GPU);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "explain");
    } else if (status == CLI_OK) {
        cli_append_text(&more, ",\"of\":");
        cli_append_quoted(&more, arguments.of ? arguments.of : "",
                          arguments.of ? strlen(arguments.of) : 0);
        status = cli_request(&request, "explain", &arguments, more.at);
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK) {
            if (arguments.is_json)
                printf("%.*s\n", (int)answer.length, answer.text);
            else
                outline(answer.json, 0);
        }
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&more);
    cli_arguments_free(&arguments);
    return status;
}
