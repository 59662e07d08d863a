/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of observed processes as one answer in the form of an estimate. */
#define _GNU_SOURCE
#include "launch.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_rank(const void *a, const void *b) {
    const cJSON *one = *(cJSON *const *)a, *two = *(cJSON *const *)b;
    int64_t ranks[] = {cli_int_at(one, "rank"), cli_int_at(two, "rank")};
    int64_t pids[] = {cli_int_at(one, "pid"), cli_int_at(two, "pid")};
    if (ranks[0] != ranks[1]) return ranks[0] < ranks[1] ? -1 : 1;
    return pids[0] < pids[1] ? -1 : pids[0] > pids[1];
}

static cJSON *file_read(const launch *l, const char *name) {
    char path[4096];
    cli_buffer text = {0};
    cJSON *json = NULL;
    if (launch_path(l, path, sizeof path, name) && cli_read_file(&text, path))
        json = cJSON_ParseWithLength(text.at, text.length);
    cli_buffer_free(&text);
    return json;
}

cJSON *observed_read(const launch *l) {
    cJSON *sorted = cJSON_CreateArray(), **found = NULL;
    size_t count = 0;
    DIR *folder = opendir(l->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".json") != 0) continue;
        found = cli_grow(found, count, sizeof *found);
        if ((found[count] = file_read(l, entry->d_name))) count++;
    }
    if (folder) closedir(folder);
    if (count) qsort(found, count, sizeof *found, by_rank);
    for (size_t i = 0; i < count; i++) cJSON_AddItemToArray(sorted, found[i]);
    free(found);
    return sorted;
}

cJSON *observed_notes(const launch *l) {
    cJSON *notes = cJSON_CreateArray();
    char path[4096];
    if (!launch_path(l, path, sizeof path, "notes")) return notes;
    cli_lines lines;
    if (!cli_lines_open(&lines, path)) return notes;
    while (cli_next_line(&lines)) {
        char *space = lines.line.at ? strchr(lines.line.at, ' ') : NULL;
        if (!space) continue;
        *space = 0;
        bool is_known = false; /* each process reports it once */
        const cJSON *other;
        cJSON_ArrayForEach(other, notes) is_known |= strcmp(cli_text_at(other, "kind"), lines.line.at) == 0 &&
                                                     strcmp(cli_text_at(other, "text"), space + 1) == 0;
        if (is_known) continue;
        cJSON *note = cJSON_CreateObject();
        cJSON_AddStringToObject(note, "kind", lines.line.at);
        cJSON_AddStringToObject(note, "text", space + 1);
        cJSON_AddItemToArray(notes, note);
    }
    cli_lines_close(&lines);
    return notes;
}

observed_process observed_of(const cJSON *seen) {
    observed_process p = {.seen = seen};
    const cJSON *device;
    cJSON_ArrayForEach(device, cli_at(seen, "devices")) {
        int64_t reserved = cli_int_at(device, "reserved_peak");
        if (p.device && reserved <= p.reserved) continue;
        p.device = device;
        p.reserved = reserved;
        p.allocated = cli_int_at(device, "allocated_peak");
    }
    return p;
}

bool observed_worst(observed_process *out, const cJSON *processes) {
    const cJSON *seen;
    *out = (observed_process){0};
    cJSON_ArrayForEach(seen, processes) {
        observed_process p = observed_of(seen);
        if (p.device && (!out->device || p.reserved > out->reserved)) *out = p;
    }
    return out->device != NULL;
}

/* ---- the answer ---- */

/* Factors in the order of an estimate; everything else is "other". */
static const char *const factors[] = {"parameters", "gradients", "optimizer", "activations",
                                      "temporary",  "other",     "rounding"};

enum { FACTORS = sizeof factors / sizeof *factors };

static void add_bytes(cJSON *object, const char *name, int64_t bytes) {
    cJSON_AddNumberToObject(object, name, (double)bytes);
}

static void add_named(cJSON *list, const char *name, int64_t bytes) {
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", name);
    add_bytes(item, "bytes", bytes);
    cJSON_AddItemToArray(list, item);
}

static void factors_add(cJSON *answer, const cJSON *groups) {
    cJSON *list = cJSON_AddArrayToObject(answer, "factors");
    for (int i = 0; i < FACTORS; i++) {
        int64_t bytes = 0;
        const cJSON *group;
        cJSON_ArrayForEach(group, groups) if (strcmp(cli_text_at(group, "factor"), factors[i]) == 0) bytes +=
            cli_int_at(group, "bytes");
        if (bytes) add_named(list, factors[i], bytes);
    }
}

/* Selects the values of one device. */
static void steps_add(cJSON *answer, const cJSON *seen, int64_t device) {
    cJSON *list = cJSON_AddArrayToObject(answer, "steps");
    const cJSON *step, *value;
    cJSON_ArrayForEach(step, cli_at(seen, "steps")) {
        cJSON *out = cJSON_CreateObject();
        cJSON_ArrayForEach(value, step) add_bytes(out, value->string, cli_int(cJSON_GetArrayItem(value, (int)device)));
        cJSON_AddItemToArray(list, out);
    }
}

/* Without a history, the peak is in the phase with the largest one. */
static void peak_add(cJSON *answer, const observed_process *p) {
    static const char *const phases[] = {"load", "forward", "backward", "optimizer"};
    cJSON *peak = cJSON_AddObjectToObject(answer, "peak");
    const cJSON *step;
    int64_t device = cli_int_at(p->device, "index"), most = 0, at = 0, number = 0;
    const char *phase = "load";
    cJSON_ArrayForEach(step, cli_at(p->seen, "steps")) {
        number++;
        for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
            char key[32];
            snprintf(key, sizeof key, "peak_%s", phases[i]);
            int64_t bytes = cli_int(cJSON_GetArrayItem(cli_at(step, key), (int)device));
            if (bytes <= most) continue;
            most = bytes;
            at = number;
            phase = phases[i];
        }
    }
    int64_t load = cli_int(cJSON_GetArrayItem(cli_at(cli_at(p->seen, "load"), "allocated_peak"), (int)device));
    if (load > most) at = 0, phase = "load";
    add_bytes(peak, "allocated", p->allocated);
    add_bytes(peak, "reserved", p->reserved);
    add_bytes(peak, "step", at);
    cJSON_AddStringToObject(peak, "phase", phase);
    const char *from = cli_text_at(p->device, "peak_from");
    cJSON_AddStringToObject(peak, "module", strcmp(from, phase) == 0 ? "" : from); /* there is no line for "backward" */
    add_bytes(peak, "rank", cli_int_at(p->seen, "rank"));
    add_bytes(peak, "device_index", device);
}

static void ranks_add(cJSON *answer, const cJSON *processes) {
    static const char *const copied[] = {"rank", "world", "pid", "torch", "allocator", "ended", "error"};
    static const char *const counted[] = {"index",    "allocated_peak", "reserved_peak", "allocated",
                                          "reserved", "retries",        "ooms",          "segments"};
    cJSON *list = cJSON_AddArrayToObject(answer, "processes");
    const cJSON *seen, *device;
    cJSON_ArrayForEach(seen, processes) {
        cJSON *out = cJSON_CreateObject(), *devices = cJSON_CreateArray();
        for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
            if (cli_at(seen, copied[i]))
                cJSON_AddItemToObject(out, copied[i], cJSON_Duplicate(cli_at(seen, copied[i]), true));
        cJSON_ArrayForEach(device, cli_at(seen, "devices")) {
            cJSON *one = cJSON_CreateObject();
            for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
                add_bytes(one, counted[i], cli_int_at(device, counted[i]));
            cJSON_AddItemToArray(devices, one);
        }
        cJSON_AddItemToObject(out, "devices", devices);
        cJSON_AddNumberToObject(out, "steps", cJSON_GetArraySize(cli_at(seen, "steps")));
        cJSON_AddItemToObject(out, "ooms", cJSON_Duplicate(cli_at(seen, "ooms"), true));
        cJSON_AddItemToArray(list, out);
    }
}

/* Reports why a part of the answer is missing. */
static void look_for_faults(cJSON *answer, const cJSON *processes) {
    static const char lost[] = "the allocator's history was lost: the program records its own, or "
                               "took more than 4,000,000 steps of "
                               "it; peaks stand, what lived at them and --out are missing";
    cJSON *notes = cJSON_GetObjectItem(answer, "notes");
    const cJSON *seen, *device;
    if (!notes) notes = cJSON_AddArrayToObject(answer, "notes");
    cJSON_ArrayForEach(seen, processes) {
        const char *fault = cli_text_at(seen, "fault"), *last = fault;
        for (const char *at = fault; *at; at++)
            if (*at == '\n' && at[1]) last = at + 1;
        bool is_lost = false;
        cJSON_ArrayForEach(device, cli_at(seen, "devices")) is_lost |= cli_at(device, "history") != NULL;
        if (!fault[0] && !is_lost) continue;
        cJSON *note = cJSON_CreateObject();
        cJSON_AddStringToObject(note, "kind", fault[0] ? "hook-failed" : "history-lost");
        cJSON_AddStringToObject(note, "text", fault[0] ? last : lost);
        cJSON_AddItemToArray(notes, note);
        return;
    }
}

void observed_answer(cJSON *answer, const observed_process *worst, const cJSON *processes) {
    const cJSON *groups = cli_at(worst->device, "at_peak");
    peak_add(answer, worst);
    if (groups) {
        factors_add(answer, groups);
        cJSON_AddItemToObject(answer, "tensors", cJSON_Duplicate(groups, true));
    }
    cJSON *outside = cJSON_AddArrayToObject(answer, "outside");
    add_named(outside, "fragmentation", worst->reserved - worst->allocated);
    steps_add(answer, worst->seen, cli_int_at(worst->device, "index"));
    ranks_add(answer, processes);
    cJSON_AddItemToObject(answer, "reads", cJSON_Duplicate(cli_at(worst->seen, "reads"), true));
    cJSON_AddItemToObject(answer, "assumed", cJSON_Duplicate(cli_at(worst->seen, "assumed"), true));
    look_for_faults(answer, processes);
}
