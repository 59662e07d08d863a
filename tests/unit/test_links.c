/* SPDX-License-Identifier: Apache-2.0 */
/* Links made by every version open to the job they were made of, and damaged ones to what is left of it.
 *
 *     test_links FOLDER
 *
 * FOLDER/v1.jsonl holds links with what they came to when they were recorded; a line is never changed.
 * FOLDER/defaults-v1.txt is the table that v=1 names: a setting that a link leaves out has that value for good. A
 * failure points to core/src/job/links.c, or to a default that changed: then v=2 is due, and v=1 keeps its table. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <tidemark/tidemark.h>

static int passed, failed;

static void check(bool is_right, const char *what, const char *which) {
    if (is_right)
        passed++;
    else
        printf("FAIL %s: %.120s\n", what, which), failed++;
}

static cJSON *ask(cJSON *request) {
    char *text = cJSON_PrintUnformatted(request), *answer;
    size_t length;
    tide_call(text, strlen(text), NULL, &answer, &length);
    cJSON *json = cJSON_ParseWithLength(answer, length);
    free(text);
    tide_free(NULL, answer, length);
    cJSON_Delete(request);
    return json;
}

static cJSON *request_of(const char *call, const char *link) {
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "call", call);
    cJSON_AddStringToObject(request, "link", link);
    return request;
}

static const cJSON *at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}
static const char *text_at(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(at(object, key));
    return text ? text : "";
}

static FILE *open_in(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) perror(path), exit(2);
    return file;
}

/* ---- links of published versions ---- */

static bool says(const cJSON *diagnostics, const char *message) {
    const cJSON *d;
    cJSON_ArrayForEach(d, diagnostics) if (strcmp(text_at(d, "message"), message) == 0) return true;
    return false;
}

static void recorded_link(const cJSON *row) {
    const char *link = text_at(row, "link");
    cJSON *answer = ask(request_of("estimate", link));
    const cJSON *message;
    check(cJSON_IsTrue(at(answer, "ok")), "a recorded link opens", link);
    check(at(at(answer, "peak"), "allocated") &&
              cJSON_Compare(at(at(answer, "peak"), "allocated"), at(row, "allocated"), true),
          "to the same allocated peak", link);
    check(at(at(answer, "peak"), "reserved") &&
              cJSON_Compare(at(at(answer, "peak"), "reserved"), at(row, "reserved"), true),
          "to the same reserved peak", link);
    check(strcmp(text_at(answer, "link"), text_at(row, "link_written")) == 0, "and is written in the same way", link);
    cJSON_ArrayForEach(message, at(row, "says"))
        check(says(at(answer, "diagnostics"), cJSON_GetStringValue(message)), "it says", cJSON_GetStringValue(message));
    cJSON *again = ask(request_of("estimate", text_at(answer, "link")));
    check(strcmp(text_at(again, "link"), text_at(answer, "link")) == 0, "its own link says the same", link);
    check(cJSON_Compare(at(again, "peak"), at(answer, "peak"), true), "and comes to the same", link);
    cJSON_Delete(again);
    cJSON_Delete(answer);
}

static void recorded_links(const char *folder) {
    static char line[1 << 20];
    FILE *file = open_in(folder, "v1.jsonl");
    while (fgets(line, sizeof line, file)) {
        cJSON *row = cJSON_Parse(line);
        if (strncmp(text_at(row, "link"), "z=", 2) != 0) recorded_link(row); /* packed ones are the doors' */
        cJSON_Delete(row);
    }
    fclose(file);
}

static void table_of_defaults(const char *folder) {
    char line[4096];
    FILE *file = open_in(folder, "defaults-v1.txt");
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "call", "describe");
    cJSON *answer = ask(request);
    while (fgets(line, sizeof line, file)) {
        const cJSON *setting;
        bool is_kept = false;
        line[strcspn(line, "\n")] = 0;
        size_t length = strcspn(line, "=");
        cJSON_ArrayForEach(setting, at(answer, "settings")) {
            const char *name = text_at(setting, "name");
            if (strlen(name) == length && strncmp(name, line, length) == 0)
                is_kept = strcmp(text_at(setting, "default"), line + length + 1) == 0;
        }
        check(is_kept, "v=1 keeps its default", line);
    }
    cJSON_Delete(answer);
    fclose(file);
}

/* ---- what a link may hold ---- */

/* The first word of an answer's list that begins so. */
static const char *word(const cJSON *answer, const char *list, const char *start) {
    const cJSON *one;
    cJSON_ArrayForEach(one, at(answer, list)) if (strncmp(cJSON_GetStringValue(one), start, strlen(start)) ==
                                                  0) return cJSON_GetStringValue(one);
    return "";
}

static void members(void) {
    cJSON *answer = ask(request_of(
        "read_link", "model=gpt2&batch=4&seq=64&title=a%3Cb%3E&was=61.8_0.4.0&view=timeline&b.seq=&b.batch=8&v=1"));
    check(strcmp(text_at(answer, "was"), "61.8_0.4.0") == 0, "was= is read", "");
    check(strcmp(text_at(answer, "view"), "timeline") == 0, "view= is read", "");
    check(strcmp(word(answer, "settings", "title="), "title=a<b>") == 0, "a title is text", "");
    check(strcmp(word(answer, "baseline", "batch="), "batch=8") == 0, "b.KEY is the baseline's", "");
    check(!*word(answer, "baseline", "seq="), "b.KEY= is the default", "");
    check(strcmp(word(answer, "baseline", "model="), "model=gpt2") == 0, "the rest is as in the job", "");
    cJSON_Delete(answer);
    answer = ask(request_of("read_link", "model=gpt2&was=%22%3Cscript%3E_1&v=1"));
    check(!*text_at(answer, "was"), "a strange was= is nothing", "");
    cJSON_Delete(answer);
}

static void other_words_hold(void) {
    cJSON *request = request_of("estimate", "model=gpt2&mbs=4&seq=16&was=1.0_0.0.1&v=1"),
          *words = cJSON_AddArrayToObject(request, "settings");
    cJSON_AddItemToArray(words, cJSON_CreateString("batch=2"));
    cJSON *answer = ask(request);
    check(strcmp(text_at(answer, "link"), "model=gpt2&batch=2&seq=16&v=1") == 0, "a word besides the link holds",
          text_at(answer, "link"));
    check(cJSON_GetArraySize(at(answer, "diagnostics")) == 0, "without a remark", "");
    cJSON_Delete(answer);
}

static void written_with_a_baseline(void) {
    cJSON *request = request_of("link", "model=gpt2&batch=4&v=1"), *with = cJSON_AddArrayToObject(request, "with");
    cJSON_AddItemToArray(with, cJSON_CreateString("model=gpt2"));
    cJSON_AddItemToArray(with, cJSON_CreateString("seq=128"));
    cJSON_AddBoolToObject(request, "was", true);
    cJSON *answer = ask(request);
    cJSON *again = ask(request_of("read_link", text_at(answer, "link")));
    check(strcmp(word(again, "baseline", "seq="), "seq=128") == 0 && !*word(again, "baseline", "batch="),
          "a baseline comes back", text_at(answer, "link"));
    check(strcmp(text_at(again, "was"), "3.1_" TIDEMARK_VERSION) == 0, "was= is what the job comes to",
          text_at(answer, "link"));
    cJSON_Delete(again);
    cJSON_Delete(answer);
}

/* What a page shows has no effect on the answer, and is passed on as long as it may still be there. */
static void with_a_view(void) {
    static const char link[] =
        "model=gpt2&batch=4&b.batch=8&view=sweep&sel=event%3A1304,part%3Ah&sweep=batch:1,2/seq:512,1024&v=1";
    static const char written[] =
        "model=gpt2&batch=4&b.batch=8&view=sweep&sel=event:1304,part:h&sweep=batch:1,2/seq:512,1024&v=1";
    cJSON *answer = ask(request_of("read_link", link));
    check(strcmp(text_at(answer, "view"), "sweep") == 0 && strcmp(text_at(answer, "sel"), "event:1304,part:h") == 0,
          "view= and sel= are read", "");
    check(strcmp(text_at(answer, "sweep"), "batch:1,2/seq:512,1024") == 0, "sweep= is read", "");
    check(cJSON_GetArraySize(at(answer, "diagnostics")) == 0, "without a remark", "");
    cJSON_Delete(answer);
    answer = ask(request_of("estimate", link));
    cJSON *plain = ask(request_of("estimate", "model=gpt2&batch=4&v=1"));
    check(cJSON_Compare(answer, plain, true), "a view changes nothing of an answer", "");
    cJSON_Delete(plain);
    cJSON_Delete(answer);
    answer = ask(request_of("link", link));
    check(strcmp(text_at(answer, "link"), written) == 0, "a link is passed on with its view and its baseline",
          text_at(answer, "link"));
    cJSON_Delete(answer);
    cJSON *request = request_of("link", link);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(request, "settings"), cJSON_CreateString("batch=2"));
    answer = ask(request);
    check(strcmp(text_at(answer, "link"), "model=gpt2&batch=2&b.batch=8&view=sweep&sweep=batch:1,2/seq:512,1024&v=1") ==
              0,
          "what was selected in another job is left out", text_at(answer, "link"));
    cJSON_Delete(answer);
    request = request_of("link", "model=gpt2&view=sweep&v=1");
    cJSON_AddStringToObject(request, "view", "timeline");
    cJSON_AddStringToObject(request, "sel", "outside:context");
    answer = ask(request);
    check(strcmp(text_at(answer, "link"), "model=gpt2&view=timeline&sel=outside:context&v=1") == 0,
          "a view of the request holds over it", text_at(answer, "link"));
    cJSON_Delete(answer);
}

/* Nothing in a link is a fault of the program, and each is answered. */
static void hostile(void) {
    static char text[(256 << 10) + 4096];
    static const char *const pieces[] = {"__proto__=1&", "%",         "%2",      "%zz&",          "=&",
                                         "&&",           "b.=1&",     "v=",      "overrides.=1&", "b.b.b.=&",
                                         "\x01=\x02&",   "config={&", "%00=%00&"};
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        size_t size = strlen(pieces[k]), length = 0;
        while (length + size < 65536) memcpy(text + length, pieces[k], size), length += size;
        text[length] = 0;
        cJSON *answer = ask(request_of("read_link", text));
        check(cJSON_IsTrue(at(answer, "ok")), "64 KiB of nonsense are read", pieces[k]);
        cJSON_Delete(answer);
    }
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "model=gpt2&batch=4&title=", 25);
    text[sizeof text - 1] = 0;
    cJSON *answer = ask(request_of("estimate", text));
    check(cJSON_IsTrue(at(answer, "ok")) &&
              says(at(answer, "diagnostics"), "is longer than 256 KiB; the rest was not read"),
          "an endless link is cut, and says so", "");
    cJSON_Delete(answer);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    recorded_links(argv[1]);
    table_of_defaults(argv[1]);
    members();
    other_words_hold();
    written_with_a_baseline();
    with_a_view();
    hostile();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
