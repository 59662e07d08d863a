/* SPDX-License-Identifier: Apache-2.0 */
/* Summing up the lines of agents. */
#define _GNU_SOURCE
#include "agent_read.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- live allocations by address ---- */

typedef struct allocation {
    uint64_t address; /* 0: none, or gone */
    int64_t bytes;
    short device, owner;
    bool is_used;
} allocation;

typedef struct addresses {
    allocation *at;
    size_t capacity, count; /* a power of two; count: used places */
} addresses;

static size_t place_of(const addresses *a, uint64_t address) {
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15u >> 20) & (a->capacity - 1);
    while (a->at[i].is_used && a->at[i].address != address) i = (i + 1) & (a->capacity - 1);
    return i;
}

static void addresses_add(addresses *a, allocation made) {
    if (a->count * 2 >= a->capacity) {
        addresses larger = {.capacity = a->capacity ? a->capacity * 2 : 1024};
        larger.at = calloc(larger.capacity, sizeof *larger.at);
        if (!larger.at) return;
        for (size_t i = 0; i < a->capacity; i++)
            if (a->at[i].is_used && a->at[i].bytes) {
                larger.at[place_of(&larger, a->at[i].address)] = a->at[i];
                larger.count++;
            }
        free(a->at);
        *a = larger;
    }
    allocation *here = &a->at[place_of(a, made.address)];
    a->count += !here->is_used;
    *here = made;
}

/* ---- lines ---- */

typedef struct reader {
    agent_process *process;
    addresses live;
} reader;

static int owner_find(agent_device *d, const char *name) {
    for (int i = 0; i < d->owner_count; i++)
        if (strcmp(d->owners[i].name, name) == 0) return i;
    if (d->owner_count == AGENT_OWNERS) return AGENT_OWNERS - 1;
    snprintf(d->owners[d->owner_count].name, sizeof d->owners->name, "%.63s", name);
    return d->owner_count++;
}

static void used_see(agent_device *d, int64_t used, int64_t allocated) {
    d->calls++;
    if (used <= 0) return;
    if (!d->first) d->first = used - allocated;
    if (used < d->used_peak) return;
    d->used_peak = used;
    d->modules = d->modules_now;
    for (int i = 0; i < d->owner_count; i++) d->owners[i].at_peak = d->owners[i].live;
}

static agent_device *device_at(reader *r, long index) {
    if (index < 0 || index >= AGENT_DEVICES) return NULL;
    r->process->devices[index].is_used = true;
    return &r->process->devices[index];
}

static void line_read(reader *r, char *line) {
    agent_process *p = r->process;
    char name[128], who[128];
    int at = 0, device;
    uint64_t time, address;
    int64_t used, before, total, bytes;
    if (sscanf(line, "I %d %d %n", &p->version, &p->subscribed, &at) >= 2 && at) {
        snprintf(p->path, sizeof p->path, "%s", line + at);
        return;
    }
    char kind = line[0];
    agent_device *d = sscanf(line + 1, " %d", &device) == 1 ? device_at(r, device) : NULL;
    if (!d) return;
    if (kind == 'D') {
        sscanf(line, "D %d %63s", &device, d->uuid);
    } else if (kind == 'A' && sscanf(line + 1, " %d %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNu64 " %127s %127s",
                                     &device, &time, &used, &bytes, &address, who, name) == 7) {
        int owner = owner_find(d, who);
        addresses_add(&r->live, (allocation){address, bytes, (short)device, (short)owner, true});
        agent_owner *o = &d->owners[owner];
        o->live += bytes;
        if (o->live > o->peak) o->peak = o->live;
        used_see(d, used, bytes);
    } else if (kind == 'F' &&
               sscanf(line + 1, " %d %" SCNu64 " %" SCNd64 " %" SCNu64, &device, &time, &used, &address) == 4) {
        allocation *gone = r->live.capacity ? &r->live.at[place_of(&r->live, address)] : NULL;
        if (gone && gone->is_used && gone->bytes) {
            p->devices[gone->device].owners[gone->owner].live -= gone->bytes;
            gone->bytes = 0;
        }
        used_see(d, used, 0);
    } else if (kind == 'P' &&
               sscanf(line + 1, " %d %" SCNu64 " %" SCNd64 " %" SCNd64, &device, &time, &used, &bytes) == 4) {
        d->managed += bytes;
    } else if (kind == 'X') {
        d->failures++;
    } else if (strchr("KMG", kind) && sscanf(line + 1, " %d %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &device,
                                             &time, &used, &before, &total) == 5) {
        if (total) d->total = total;
        if (kind == 'M' && used > before && before > 0) d->modules_now += used - before;
        used_see(d, used, 0);
    }
}

static bool process_read(const launch *l, const char *name, agent_process *out) {
    char path[4096];
    reader r = {.process = out};
    *out = (agent_process){.pid = strtoll(name, NULL, 10), .subscribed = -1, .has_record = true};
    if (!launch_path(l, path, sizeof path, name)) return false;
    cli_lines lines;
    if (!cli_lines_open(&lines, path)) return false;
    while (cli_next_line(&lines))
        if (lines.line.at) line_read(&r, lines.line.at);
    cli_lines_close(&lines);
    free(r.live.at);
    return true;
}

agent_process *agent_read(const launch *l, size_t *count) {
    agent_process *list = NULL;
    DIR *folder = opendir(l->folder);
    *count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".agent") != 0) continue;
        list = cli_grow(list, *count, sizeof *list);
        if (process_read(l, entry->d_name, &list[*count])) ++*count;
    }
    if (folder) closedir(folder);
    return list;
}
