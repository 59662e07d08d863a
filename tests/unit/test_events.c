/* SPDX-License-Identifier: Apache-2.0 */
/* Events one by one and the allocator after one, of recordings and of jobs. A failure points to
 * core/src/report/: event_rows.c, allocator_state.c and player.c, timeline_events.c or tape_events.c below them.
 *
 *     test_events ORACLE_FOLDER RECORDINGS_FOLDER */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cjson/cJSON.h>
#include <tidemark/tidemark.h>

static int passed, failed;

static void check(bool is_right, const char *what, const char *which, double have, double want) {
    if (is_right)
        passed++;
    else
        printf("FAIL %s: %s: %.0f, want %.0f\n", which, what, have, want), failed++;
}

static const cJSON *at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}
static double number(const cJSON *object, const char *key) {
    return cJSON_IsNumber(at(object, key)) ? at(object, key)->valuedouble : 0;
}
static const char *text_at(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(at(object, key));
    return text ? text : "";
}

/* ---- what is asked ---- */

typedef struct subject {
    const char *name, *prefix, *settings; /* prefix: of the calls */
    struct tide_recorded *recording;      /* NULL: a job */
} subject;

static cJSON *ask(const subject *of, const char *call, const char *more) {
    char request[2048], *text = NULL;
    size_t length = 0;
    snprintf(request, sizeof request, "{\"call\":\"%s%s\",\"settings\":[%s]%s}", of->prefix, call, of->settings, more);
    if (of->recording)
        tide_recording_call(of->recording, request, strlen(request), &text, &length);
    else
        tide_call(request, strlen(request), NULL, &text, &length);
    cJSON *answer = text ? cJSON_ParseWithLength(text, length) : NULL;
    check(cJSON_IsTrue(at(answer, "ok")), call, of->name, 0, 1);
    if (text) tide_free(NULL, text, length);
    return answer;
}

/* All rows, 500 at a time. */
static cJSON *all_rows(const subject *of, const char *filter) {
    cJSON *all = cJSON_CreateArray();
    for (int first = 0;;) {
        char more[200];
        snprintf(more, sizeof more, ",\"first\":%d,\"count\":500,\"filter\":\"%s\"", first, filter);
        cJSON *answer = ask(of, "events", more), *rows = cJSON_DetachItemFromObjectCaseSensitive(answer, "rows"),
              *stacks = cJSON_DetachItemFromObjectCaseSensitive(answer, "stacks");
        int passing = (int)number(answer, "passing");
        check(number(answer, "first") == (first + 500 > passing ? (passing > 500 ? passing - 500 : 0) : first),
              "the first of a window", of->name, number(answer, "first"), first);
        for (int skip = first - (int)number(answer, "first"); skip > 0; skip--) cJSON_DeleteItemFromArray(rows, 0);
        while (cJSON_GetArraySize(rows)) {
            cJSON *row = cJSON_DetachItemFromArray(rows, 0);
            if (at(row, "stack"))
                cJSON_AddItemToObject(row, "frames",
                                      cJSON_Duplicate(cJSON_GetArrayItem(stacks, (int)number(row, "stack")), true));
            cJSON_AddItemToArray(all, row);
        }
        cJSON_Delete(rows);
        cJSON_Delete(stacks);
        cJSON_Delete(answer);
        first += 500;
        if (first >= passing) return all;
    }
}

/* ---- what must hold ---- */

static bool is_kind(const cJSON *row, const char *kind) {
    return strcmp(text_at(row, "kind"), kind) == 0;
}

static void rows_add_up(const subject *of, const cJSON *const *rows, int count, double peak) {
    double allocated = 0, highest = 0;
    int wrong = 0, unpaired = 0, out_of_place = 0;
    for (int i = 0; i < count; i++) {
        const cJSON *row = rows[i], *other = at(row, "other");
        if (number(row, "event") != i) out_of_place++;
        if (!at(row, "allocated")) continue; /* behind a failure */
        if (i == 0)
            allocated = number(row, "allocated") -
                        (is_kind(row, "alloc") ? number(row, "bytes") : 0); /* what was there before */
        if (is_kind(row, "alloc")) allocated += number(row, "bytes");
        if (i > 0 && (is_kind(row, "free") || is_kind(row, "wait"))) allocated -= number(row, "bytes");
        if (allocated != number(row, "allocated")) wrong++, allocated = number(row, "allocated");
        if (allocated > highest) highest = allocated;
        if (number(row, "reserved") < allocated) wrong++;
        if (!other || is_kind(row, "back")) continue;
        const cJSON *partner = rows[(int)other->valuedouble];
        if (number(partner, "other") != i || number(partner, "requested") != number(row, "requested")) unpaired++;
        if (at(partner, "allocated") && number(partner, "address") != number(row, "address")) unpaired++;
    }
    check(out_of_place == 0, "events are in a row", of->name, out_of_place, 0);
    check(wrong == 0, "what is taken and given back adds up to what is allocated", of->name, wrong, 0);
    check(unpaired == 0, "what takes a block and what frees it name each other", of->name, unpaired, 0);
    if (peak >= 0) check(highest == peak, "their highest is the peak", of->name, highest, peak);
}

static void state_adds_up(const subject *of, const cJSON *row) {
    char more[100];
    snprintf(more, sizeof more, ",\"at\":%.0f", number(row, "event"));
    cJSON *state = ask(of, "state", more);
    const cJSON *segment, *cell, *alive;
    double bytes = number(at(state, "other_segments"), "bytes"), live = number(at(state, "other_segments"), "live"),
           held = 0, idle = 0, gap = 0;
    int segments = (int)number(at(state, "other_segments"), "count"), wrong = 0;
    cJSON_ArrayForEach(segment, at(state, "segments")) {
        double count = at(segment, "count") ? number(segment, "count") : 1, end = 0, cells_live = 0, blocks = 0;
        bytes += count * number(segment, "bytes");
        live += count * number(segment, "live");
        segments += (int)count;
        if (number(segment, "live") + number(segment, "waiting") == 0) idle += count * number(segment, "bytes");
        if (number(segment, "largest_free") > gap) gap = number(segment, "largest_free");
        cJSON_ArrayForEach(cell, at(segment, "cells")) {
            if (number(cell, "at") != end) wrong++;
            end += number(cell, "bytes");
            cells_live += strcmp(text_at(cell, "state"), "live") == 0 ? number(cell, "bytes") : number(cell, "live");
            blocks += at(cell, "blocks") ? number(cell, "blocks") : 1;
        }
        if (number(segment, "address") < 0) wrong++;
        if (end != number(segment, "bytes") || cells_live != number(segment, "live") ||
            blocks != number(segment, "blocks"))
            wrong++;
    }
    cJSON_ArrayForEach(alive, at(state, "alive")) {
        held += number(alive, "bytes") + number(alive, "rest");
        if (number(alive, "bytes") != number(alive, "count") * number(alive, "each")) wrong++;
        if (at(alive, "event") && number(alive, "event") > number(row, "event")) wrong++;
    }
    check(number(state, "allocated") == number(row, "allocated"), "allocated then", of->name,
          number(state, "allocated"), number(row, "allocated"));
    check(number(state, "reserved") == number(row, "reserved"), "reserved then", of->name, number(state, "reserved"),
          number(row, "reserved"));
    check(bytes == number(state, "reserved"), "segments are what is reserved", of->name, bytes,
          number(state, "reserved"));
    check(live == number(state, "allocated"), "live blocks are what is allocated", of->name, live,
          number(state, "allocated"));
    check(held == number(state, "allocated"), "each of them is somebody's", of->name, held, number(state, "allocated"));
    check(segments == (int)number(state, "segment_count"), "all segments are told", of->name, segments,
          number(state, "segment_count"));
    check(at(state, "other_segments") ||
              (idle == number(at(state, "idle"), "bytes") && gap == number(state, "largest_free")),
          "empty segments and the largest gap", of->name, idle, number(at(state, "idle"), "bytes"));
    check(wrong == 0, "cells cover their segment", of->name, wrong, 0);
    /* The blocks of the first segment, each. */
    segment = cJSON_GetArrayItem(at(state, "segments"), 0);
    if (segment) {
        snprintf(more, sizeof more, ",\"at\":%.0f,\"segment\":%.0f", number(row, "event"), number(segment, "address"));
        cJSON *closer = ask(of, "state", more);
        int blocks = cJSON_GetArraySize(at(closer, "blocks")), want = (int)number(segment, "blocks");
        check(blocks == (want < 500 ? want : 500), "its blocks one by one", of->name, blocks, want);
        cJSON_Delete(closer);
    }
    cJSON_Delete(state);
}

static bool has_text(const cJSON *row, const char *filter) {
    const cJSON *frame;
    cJSON_ArrayForEach(frame, at(row, "frames")) if (strstr(cJSON_GetStringValue(frame), filter)) return true;
    return strstr(text_at(row, "kind"), filter) || strstr(text_at(row, "module"), filter) ||
           strstr(text_at(row, "op"), filter) || strstr(text_at(row, "factor"), filter);
}

static void filter_passes(const subject *of, const cJSON *const *rows, int count, const char *filter) {
    cJSON *some = all_rows(of, filter);
    const cJSON *next = some->child;
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        if (!has_text(rows[i], filter)) continue;
        if (!next || number(next, "event") != i) wrong++;
        next = next ? next->next : NULL;
    }
    check(!wrong && !next, "a filter passes what has its text, and nothing else", filter, wrong, 0);
    if (some->child) { /* around an event: it is there */
        const cJSON *wanted = cJSON_GetArrayItem(some, cJSON_GetArraySize(some) / 2), *row;
        char more[200];
        bool is_there = false;
        snprintf(more, sizeof more, ",\"at\":%.0f,\"count\":10,\"filter\":\"%s\"", number(wanted, "event"), filter);
        cJSON *window = ask(of, "events", more);
        cJSON_ArrayForEach(row, at(window, "rows")) is_there |= number(row, "event") == number(wanted, "event");
        check(is_there && cJSON_GetArraySize(at(window, "rows")) ==
                              (cJSON_GetArraySize(some) < 10 ? cJSON_GetArraySize(some) : 10),
              "a window around an event has it", of->name, is_there, 1);
        cJSON_Delete(window);
    }
    cJSON_Delete(some);
}

/* The columns of a part are the most of its events. */
static void curve_adds_up(const subject *of, const cJSON *const *rows, int count, int from, int to) {
    char more[100];
    snprintf(more, sizeof more, ",\"from\":%d,\"to\":%d", from, to);
    cJSON *answer = ask(of, "timeline", more);
    const cJSON *curve = at(answer, "timeline"), *columns = at(curve, "columns"), *column;
    int row = from, wrong = 0, is_part = from > 0 || to < count;
    double time = 0;
    check(number(curve, "events") == count, "events of a part's curve", of->name, number(curve, "events"), count);
    check(number(curve, "from") == from * is_part && number(curve, "to") == to * is_part, "where a part is", of->name,
          number(curve, "from"), from);
    check(cJSON_GetArraySize(columns) == (to - from < 400 ? to - from : 400), "columns of a part", of->name,
          cJSON_GetArraySize(columns), to - from);
    cJSON_ArrayForEach(column, columns) {
        double allocated = 0, reserved = 0;
        int end = column->next ? (int)number(column->next, "from") : to;
        wrong += number(column, "from") != row || end <= row;
        for (; row < end; row++) {
            if (number(rows[row], "allocated") > allocated) allocated = number(rows[row], "allocated");
            if (number(rows[row], "reserved") > reserved) reserved = number(rows[row], "reserved");
        }
        wrong += number(column, "allocated") != allocated || number(column, "reserved") != reserved;
        wrong += number(column, "us") < 0 || (at(column, "us") && number(column, "us") < time);
        time = number(column, "us");
    }
    check(wrong == 0 && row == to, "a column is the most of its events", of->name, wrong, 0);
    cJSON_Delete(answer);
}

/* Where the play failed, what is alive is older than that, and fills its blocks. */
static void failure_adds_up(const subject *of, const cJSON *oom, int events) {
    char more[100];
    snprintf(more, sizeof more, ",\"at\":%d", events - 1);
    cJSON *state = ask(of, "state", more);
    const cJSON *alive;
    double at_event = number(oom, "event");
    int wrong = 0;
    check(number(state, "failed_at") == at_event, "where it failed", of->name, number(state, "failed_at"), at_event);
    cJSON_ArrayForEach(alive, at(state, "alive")) {
        if (number(alive, "event") >= at_event) wrong++;
        if (number(alive, "requested") > number(alive, "each")) wrong++;
        if (number(alive, "each") >= 4 << 20 && number(alive, "requested") * 2 < number(alive, "each")) wrong++;
    }
    check(wrong == 0, "what was alive then", of->name, wrong, 0);
    cJSON_Delete(state);
}

static void look_at(const subject *of, double peak, const char *const *filters) {
    cJSON *all = all_rows(of, "");
    const cJSON *row;
    int count = cJSON_GetArraySize(all), i = 0;
    const cJSON **rows = malloc(sizeof *rows * ((size_t)count + 1));
    if (!rows) exit(2);
    cJSON_ArrayForEach(row, all) rows[i++] = row;
    rows_add_up(of, rows, count, peak);
    curve_adds_up(of, rows, count, 0, count);
    if (count > 10) {
        curve_adds_up(of, rows, count, count / 3, count - 2);
        curve_adds_up(of, rows, count, count / 2, count / 2 + 4);
    }
    for (int step = 0; step < 5 && count; step++) {
        row = rows[(int)((long)(count - 1) * step / 4)];
        if (at(row, "allocated")) state_adds_up(of, row);
    }
    for (; *filters; filters++) filter_passes(of, rows, count, *filters);
    free(rows);
    cJSON_Delete(all);
}

/* ---- subjects ---- */

static struct tide_recorded *read_recording(const char *folder, const char *file) {
    static unsigned char piece[1 << 16];
    char path[1024];
    struct tide_recorded *recording;
    int length;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    gzFile from = gzopen(path, "rb");
    if (!from || tide_recording_open(NULL, &recording) != 0) {
        perror(path);
        exit(2);
    }
    while ((length = gzread(from, piece, sizeof piece)) > 0) tide_recording_add(recording, piece, (size_t)length);
    gzclose(from);
    return recording;
}

static void look_at_recording(const char *folder, const char *file, const char *settings) {
    static const char *const filters[] = {"alloc", ".py", "no such text", NULL};
    subject of = {file, "", settings, read_recording(folder, file)};
    cJSON *played = ask(&of, "replay", "");
    of.prefix = "recorded_";
    look_at(&of, number(at(played, "recording"), "before") > 0 ? -1 : number(played, "allocated_peak"), filters);
    const cJSON *oom = at(at(played, "verdict"), "oom");
    if (oom) failure_adds_up(&of, oom, (int)number(at(played, "timeline"), "events"));
    cJSON *state = ask(&of, "state", "");
    check(number(state, "event") == number(played, "peak_event"), "without an event, the peak's", file,
          number(state, "event"), number(played, "peak_event"));
    cJSON_Delete(state);
    cJSON_Delete(played);
    tide_recording_free(of.recording);
}

static void look_at_job(const char *settings) {
    static const char *const filters[] = {"free", "attn", "optimizer", NULL};
    subject of = {settings, "", settings, NULL};
    cJSON *estimate = ask(&of, "estimate", "");
    look_at(&of, number(at(estimate, "peak"), "allocated"), filters);
    cJSON *state = ask(&of, "state", "");
    check(number(state, "event") == number(at(estimate, "peak"), "event"), "without an event, the peak's", settings,
          number(state, "event"), number(at(estimate, "peak"), "event"));
    cJSON_Delete(state);
    cJSON_Delete(estimate);
}

/* A recording that released segments by empty_cache() shows no limit of its device: none holds for the prediction. */
static void align_without_limit(const char *folder, const char *file) {
    static const char settings[] = "\"model=gpt2\",\"overrides.n_layer=1\"";
    subject job = {file, "", settings, NULL}, both = {file, "", settings, read_recording(folder, file)};
    cJSON *measure = ask(&job, "measure", ""), *align = ask(&both, "align", "");
    double peak = number(at(measure, "peak"), "allocated"),
           predicted = number(at(align, "predicted"), "allocated_peak");
    check(predicted == peak, "a prediction beside a recording without limit", file, predicted, peak);
    cJSON_Delete(align);
    cJSON_Delete(measure);
    tide_recording_free(both.recording);
}

int main(int argc, char **argv) {
    static const char *const snapshots[] = {"snapshot-empty",   "snapshot-expand",  "snapshot-late",
                                            "snapshot-oom",     "snapshot-plain",   "snapshot-ring",
                                            "snapshot-streams", "snapshot-streams2"};
    char name[100];
    if (argc != 3) return 2;
    for (size_t i = 0; i < sizeof snapshots / sizeof *snapshots; i++) {
        snprintf(name, sizeof name, "%s.pickle.gz", snapshots[i]);
        look_at_recording(argv[2], name, "");
    }
    look_at_recording(argv[2], "snapshot-plain.pickle.gz", "\"allocator=expandable_segments:True\"");
    look_at_recording(argv[2], "snapshot-plain.pickle.gz", "\"gpu_gib=0.03\"");
    look_at_recording(argv[2], "snapshot-streams.pickle.gz", "\"gpu_gib=0.03\"");
    look_at_recording(argv[2], "trace-cuda.json.gz", "");
    align_without_limit(argv[2], "snapshot-empty.pickle.gz");
    snprintf(name, sizeof name, "%s/events", argv[1]);
    look_at_recording(name, "events-retry.jsonl.gz", "");
    look_at_recording(name, "events-oom.jsonl.gz", "");
    look_at_job("\"model=gpt2\",\"overrides.n_layer=2\"");
    look_at_job("\"model=gpt2\",\"overrides.n_layer=1\",\"allocator=expandable_segments:True\"");
    look_at_job(
        "\"model=smollm2-135m\",\"overrides.num_hidden_layers=2\",\"quant=int8\",\"adapter=lora\""); /* empties the
                                                                                                        cache */
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
