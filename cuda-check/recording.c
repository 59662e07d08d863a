/* SPDX-License-Identifier: Apache-2.0 */
/* Converting the events that a process wrote as text to tidemark's recording format. */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/recorder.h>
#include <unistd.h>

bool recording_can_write(const char *path) {
    FILE *file = fopen(path, "ab");
    if (!file) {
        cli_complain("name a file in a folder that can be written", "--out %s: %s", path, strerror(errno));
        return false;
    }
    fclose(file);
    return true;
}

static bool to_file(void *user, const void *bytes, size_t length) {
    return fwrite(bytes, 1, length, user) == length;
}

/* Parses up to four numbers; missing ones are 0. Returns what follows. */
static const char *numbers_read(const char *text, uint64_t *out) {
    for (int i = 0; i < 4; i++) {
        char *end;
        out[i] = strtoull(text, &end, 10);
        if (end == text) break;
        text = end;
    }
    return text;
}

/* One line of LETTER NUMBERS; see hook/tidemark_history.py. */
static void event_write(tide_recorder *r, const char *line) {
    uint64_t n[4] = {0};
    char letter = line[0];
    if (letter == 'F') {
        char *text;
        uint32_t parent = (uint32_t)strtoull(line + 1, &text, 10);
        text += *text == ' ';
        tide_recorder_frame(r, parent, text, strlen(text));
        return;
    }
    numbers_read(line + 1, n);
    switch (letter) {
    case 'a':
        tide_recorder_alloc(r, n[0], n[1], (uint32_t)n[2], (uint32_t)n[3]);
        break;
    case 'f':
        tide_recorder_free(r, n[0]);
        break;
    case 'p':
        tide_recorder_free_pending(r, n[0]);
        break;
    case 'c':
        tide_recorder_free_completed(r, n[0]);
        break;
    case 'o':
        tide_recorder_oom(r, n[0], n[1], (uint32_t)n[2], (uint32_t)n[3]);
        break;
    case 't':
        tide_recorder_time(r, n[0]);
        break;
    case 'm':
        tide_recorder_mark(r, (uint32_t)n[0], (uint32_t)n[1]);
        break;
    case 'S':
    case 's':
    case 'M':
    case 'U':
        tide_recorder_segment(r, (tide_recorder_event)letter, n[0], n[1], (uint32_t)n[2]);
        break;
    default:
        break;
    }
}

static bool events_copy(cli_lines *lines, FILE *out, const char *facts, const cJSON *device) {
    static tide_recorder recorder;
    bool is_whole = false;
    tide_recorder_begin(&recorder, to_file, out, facts);
    while (cli_next_line(lines)) {
        is_whole = lines->line.at[0] == 'E';
        event_write(&recorder, lines->line.at);
    }
    static const char *const counters[] = {"allocated",     "reserved", "allocated_peak",
                                           "reserved_peak", "retries",  "ooms"};
    uint64_t n[6];
    for (int i = 0; i < 6; i++) n[i] = (uint64_t)cli_int_at(device, counters[i]);
    tide_recorder_statistics(&recorder, n[0], n[1], n[2], n[3], n[4], n[5]);
    return is_whole ? tide_recorder_end(&recorder) : tide_recorder_flush(&recorder);
}

static char *facts_text(const cJSON *seen, int64_t device, int64_t device_bytes, int64_t outside_bytes) {
    static const char *const copied[] = {"torch", "python", "allocator", "rank", "world", "command"};
    cJSON *facts = cJSON_CreateObject();
    cJSON_AddStringToObject(facts, "source", "tidemark dry-run");
    cJSON_AddNumberToObject(facts, "device", (double)device);
    cJSON_AddNumberToObject(facts, "device_bytes", (double)device_bytes);
    cJSON_AddNumberToObject(facts, "outside_bytes", (double)outside_bytes);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (cli_at(seen, copied[i]))
            cJSON_AddItemToObject(facts, copied[i], cJSON_Duplicate(cli_at(seen, copied[i]), true));
    char *text = cJSON_PrintUnformatted(facts);
    cJSON_Delete(facts);
    return text;
}

/* FILE; run.rank1.tide for the second of several ranks. */
static void name_of(cli_buffer *out, const char *path, int64_t rank, int64_t device, bool is_only) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    size_t stem = dot && dot > (slash ? slash : path) ? (size_t)(dot - path) : strlen(path);
    cli_append(out, path, stem);
    if (!is_only) cli_format(out, ".rank%" PRId64 ".device%" PRId64, rank, device);
    cli_append_text(out, path + stem);
}

/* Writes the events of a process on a device to a file. CLI_OK if there are none. */
static int one_write(const launch *l, const cJSON *seen, const cJSON *device, const char *path, int64_t device_bytes,
                     int64_t outside_bytes) {
    char name[64], from[4096];
    int64_t index = cli_int_at(device, "index");
    int status = CLI_OK;
    snprintf(name, sizeof name, "%" PRId64 ".%" PRId64, cli_int_at(seen, "pid"), index);
    cli_lines events;
    if (!launch_path(l, from, sizeof from, name) || !cli_lines_open(&events, from)) return CLI_OK;
    FILE *out = fopen(path, "wb");
    char *facts = facts_text(seen, index, device_bytes, outside_bytes);
    if (!out || !events_copy(&events, out, facts, device)) status = CLI_NO_FILE;
    if (out && fclose(out) != 0) status = CLI_NO_FILE;
    if (status != CLI_OK) cli_complain(NULL, "%s: %s", path, strerror(errno));
    cli_lines_close(&events);
    free(facts);
    return status;
}

int recording_write(const launch *l, const cJSON *processes, const char *path, int64_t device_bytes,
                    int64_t outside_bytes) {
    const cJSON *seen, *device;
    int count = 0, status = CLI_OK;
    cJSON_ArrayForEach(seen, processes) count += cJSON_GetArraySize(cli_at(seen, "devices"));
    if (count > 1) unlink(path); /* it was only created as a test */
    cJSON_ArrayForEach(seen, processes) cJSON_ArrayForEach(device, cli_at(seen, "devices")) {
        cli_buffer to = {0};
        name_of(&to, path, cli_int_at(seen, "rank"), cli_int_at(device, "index"), count == 1);
        int written = one_write(l, seen, device, to.at, device_bytes, outside_bytes);
        if (written != CLI_OK) status = written;
        cli_buffer_free(&to);
    }
    return status;
}

void recording_play(const launch *l, const observed_process *worst, cJSON *answer, int64_t device_bytes,
                    int64_t outside_bytes) {
    static const char *const copied[] = {"timeline", "options", "advice"};
    char path[4096], *paths[] = {path};
    cli_answer played;
    if (!cli_at(worst->device, "at_peak") || !launch_path(l, path, sizeof path, "worst.tide")) return;
    if (one_write(l, worst->seen, worst->device, path, device_bytes, outside_bytes) != CLI_OK) return;
    const cli_arguments arguments = {.paths = paths, .path_count = 1, .is_json = true};
    if (cli_replay_ask(&played, &arguments) != CLI_OK) return;
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (cli_at(played.json, copied[i]))
            cJSON_AddItemToObject(answer, copied[i], cJSON_Duplicate(cli_at(played.json, copied[i]), true));
    /* Of a program that ended out of memory only the beginning is known. */
    if (cli_true_at(cli_at(answer, "verdict"), "fits"))
        cJSON_AddNumberToObject(answer, "smallest_device_bytes",
                                (double)cli_int_at(cli_at(played.json, "verdict"), "smallest_device_bytes"));
    cli_answer_free(&played);
}
