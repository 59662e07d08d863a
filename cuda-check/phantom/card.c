/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU that the phantom stands for, from TIDEMARK_CARD="BYTES CONTEXT CAPABILITY SMS THREADS", TIDEMARK_CARD_NAME
 * and TIDEMARK_GPUS; notes are written to TIDEMARK_RUN/notes. */
#define _GNU_SOURCE
#include "phantom.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The default, an H100 SXM5. */
static phantom_card the_card = {85017755648, 670040064, 90, 132, 2048};
static int devices = 1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The number of entries in CUDA_VISIBLE_DEVICES, at most the number of devices. */
static int visible(int count) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return count;
    int entries = list[0] ? 1 : 0;
    for (; *list; list++) entries += *list == ',';
    return entries < count ? entries : count;
}

static bool card_parse(const char *text) {
    phantom_card read;
    if (!text || sscanf(text, "%zu %zu %d %d %d", &read.bytes, &read.context, &read.capability, &read.sms,
                        &read.threads_per_sm) != 5)
        return false;
    the_card = read;
    return true;
}

static void devices_set(int count) {
    devices = count < 1 ? 1 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

static char name[256];

static void card_read(void) {
    const char *gpus = getenv("TIDEMARK_GPUS"), *called = getenv("TIDEMARK_CARD_NAME");
    card_parse(getenv("TIDEMARK_CARD"));
    if (gpus) devices_set(atoi(gpus));
    devices = visible(devices);
    snprintf(name, sizeof name, "%s", called ? called : "");
}

/* Another GPU, for a process that was forked from one that has asked about the first and used none.
 * card: as TIDEMARK_CARD.  named: NULL for the name by its capability.  0, or an error. */
API(int, phantom_be, const char *card, int gpus, const char *named) {
    pthread_once(&once, card_read);
    if (!card_parse(card)) return ERROR_INVALID_VALUE;
    devices_set(gpus);
    snprintf(name, sizeof name, "%s", named ? named : "");
    return OK;
}

const phantom_card *card(void) {
    pthread_once(&once, card_read);
    return &the_card;
}

/* The name that was given, if one was. */
API(bool, phantom_name, char *out, size_t size) {
    pthread_once(&once, card_read);
    if (name[0]) snprintf(out, size, "%s", name);
    return name[0] != 0;
}

void card_name(char *out, size_t size) {
    if (!phantom_name(out, size)) snprintf(out, size, "Phantom sm_%d", card()->capability);
}

int device_count(void) {
    pthread_once(&once, card_read);
    return devices;
}

/* CUDA C++ Programming Guide, "Technical specifications per compute capability": shared memory per
 * multiprocessor; a block may have 1 KiB less from 8.0 on. */
int shared_memory_per_sm(void) {
    static const struct {
        int capability, kib;
    } known[] = {{70, 96},  {75, 64},   {80, 164},  {86, 100},  {87, 164},  {89, 100},
                 {90, 228}, {100, 228}, {103, 228}, {110, 228}, {120, 100}, {121, 100}};
    int kib = 64;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].capability <= card()->capability) kib = known[i].kib;
    return kib << 10;
}

int shared_memory_per_block(void) {
    return shared_memory_per_sm() - (card()->capability >= 80 ? 1024 : 0);
}

static int major = 13;

int runtime_major(void) {
    return major;
}

API(void, phantom_runtime, int is) {
    major = is;
}

API(void, phantom_note, const char *kind, const char *text) {
    note(kind, text);
}

void note(const char *kind, const char *text) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *said[512];
    static size_t count;
    const char *run = getenv("TIDEMARK_RUN");
    char line[1024], path[4096];
    int length = snprintf(line, sizeof line, "%s %s\n", kind, text);
    if (!run || length < 0 || (size_t)length >= sizeof line) return;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < count && strcmp(said[i], line) != 0) i++;
    if (i == count && count < sizeof said / sizeof *said && (said[count] = strdup(line))) {
        count++;
        snprintf(path, sizeof path, "%s/notes", run);
        int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (file >= 0) {
            if (write(file, line, (size_t)length) != length) count--; /* the disk is full: again */
            close(file);
        }
    }
    pthread_mutex_unlock(&lock);
}
