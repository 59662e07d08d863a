/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as PyYAML reads it: cases.jsonl, and what is refused before it grows. A failure points to native/yaml.c.
 *
 *     test_yaml CASES */
#include "../../native/cli.h"

#include <stdlib.h>
#include <string.h>

static unsigned passed, failed;

static void check(bool is_right, const char *text, const char *got) {
    if (is_right) {
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s\n     gave %s\n", text, got);
}

static void play_case(const cJSON *one) {
    const char *text = cli_text_at(one, "yaml");
    const cJSON *wanted = cli_at(one, "json");
    cli_buffer out = {0};
    char message[256];
    bool is_read = cli_yaml_to_json(&out, text, strlen(text), message, sizeof message);
    cJSON *got = is_read ? cJSON_Parse(out.at) : NULL;
    if (wanted)
        check(got && cJSON_Compare(got, wanted, true), text, is_read ? out.at : message);
    else
        check(!is_read && message[0], text, is_read ? out.at : message);
    cJSON_Delete(got);
    cli_buffer_free(&out);
}

static void refused(const char *text, size_t length, const char *part) {
    cli_buffer out = {0};
    char message[256];
    bool is_read = cli_yaml_to_json(&out, text, length, message, sizeof message);
    check(!is_read && strstr(message, part), part, is_read ? "JSON" : message);
    cli_buffer_free(&out);
}

/* Nine doublings on nine names: a billion values out of a few lines. */
static void refuse_laughs(void) {
    cli_buffer text = {0};
    cli_append_text(&text, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 10; i++) {
        cli_format(&text, "a%d: &a%d [*a%d", i, i, i - 1);
        for (int k = 1; k < 10; k++) cli_format(&text, ",*a%d", i - 1);
        cli_append_text(&text, "]\n");
    }
    refused(text.at, text.length, "aliases expand to more than");
    text.length = 0;
    cli_append_text(&text, "a0: &a0 {x: 1}\n");
    for (int i = 1; i < 60; i++) cli_format(&text, "a%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i - 1, i - 1);
    refused(text.at, text.length, "aliases expand to more than");
    cli_buffer_free(&text);
}

static void refuse_depth(void) {
    cli_buffer text = {0};
    for (int i = 0; i < 100; i++) cli_append_text(&text, "[");
    refused(text.at, text.length, "nested deeper than");
    text.length = 0;
    for (int i = 0; i < 5000; i++) cli_format(&text, "k%d: 1\n", i);
    refused(text.at, text.length, "a mapping of more than");
    cli_buffer_free(&text);
}

static void names(void) {
    static const struct {
        const char *name, *text;
        bool is_yaml;
    } cases[] = {{"x.yaml", "{}", true},
                 {"x.yml", "", true},
                 {"x", "{\"a\": 1}", false},
                 {"x", "# c\n---\nnum_processes: 8\n", true},
                 {"x", "a:1\n", false},
                 {"x", "key:\n  - 1\n", true},
                 {"x", "import torch\n", false},
                 {"x", "https://a.b/c", false},
                 {"x", "", false},
                 {"config.json", "  \n[1]\n", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cli_is_yaml(cases[i].name, cases[i].text, strlen(cases[i].text)) == cases[i].is_yaml, cases[i].text,
              "the other");
}

int main(int argc, char **argv) {
    cli_lines lines;
    bool is_open = argc > 1 && cli_lines_open(&lines, argv[1]);
    while (is_open && cli_next_line(&lines)) {
        cJSON *one = cJSON_Parse(lines.line.at);
        play_case(one);
        cJSON_Delete(one);
    }
    if (is_open) cli_lines_close(&lines);
    check(passed + failed > 100, "cases", "too few");
    refuse_laughs();
    refuse_depth();
    refused("\xff\xfe\x00", 3, "");
    names();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
