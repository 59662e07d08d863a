/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded by the CUDA driver into every process of `tidemark check` (CUDA_INJECTION64_PATH): logs the driver's memory
 * calls, their callers, and the device memory in use after each.
 *
 * Lines of text are appended to TIDEMARK_RUN/PID.agent, so that none is lost however the process ends:
 *
 *     I VERSION SUBSCRIBED PATH        CUPTI as it was found; a subscription other than 0 ends the file
 *     D INDEX UUID                     a device's name, before its first line
 *     K INDEX TIME USED BEFORE TOTAL NAME   memory in use after and before a call at which the driver may allocate
 *     A INDEX TIME USED BYTES ADDRESS OWNER NAME
 *     F INDEX TIME USED ADDRESS
 *     X INDEX TIME USED BYTES ERROR OWNER NAME    a call that failed
 *
 * TIME in microseconds of the monotonic clock; letters K: context, M: module, G: other growth, P: managed. It links to
 * libc only: a missing dependency would silently prevent it from loading. */
#define _GNU_SOURCE
#include "cupti.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 64, FRAMES = 48, LINE = 512 };

typedef enum kind { ALLOC, PITCH, FREE, CREATE, RELEASE, ASYNC, ASYNC_FREE, MANAGED, CONTEXT, MODULE, MARKER } kind;

static const struct call {
    const char *name;
    uint32_t id;
    kind is;
} calls[] = {
#define CALL(name, id, kind) {#name, id, kind},
    CUPTI_CALLS(CALL)
#undef CALL
};

enum { CALLS = sizeof calls / sizeof *calls };

/* ---- the driver ---- */

static int (*memory_info)(size_t *free_bytes, size_t *total);
static int (*context_device)(int *device);
static int (*device_uuid)(unsigned char uuid[16], int device);

static void *driver_find(void *driver, const char *name) {
    return driver ? dlsym(driver, name) : NULL;
}

static void driver_open(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&memory_info = driver_find(driver, "cuMemGetInfo_v2");
    *(void **)&context_device = driver_find(driver, "cuCtxGetDevice");
    *(void **)&device_uuid = driver_find(driver, "cuDeviceGetUuid_v2");
}

/* ---- the record ---- */

static int file = -1;
static pid_t owner;
static bool is_named[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The child of a fork writes to a file of its own. */
static bool record_open(void) {
    const char *run = getenv("TIDEMARK_RUN");
    char path[4096];
    if (file >= 0 && owner == getpid()) return true;
    if (!run || snprintf(path, sizeof path, "%s/%d.agent", run, (int)getpid()) >= (int)sizeof path) return false;
    memset(is_named, 0, sizeof is_named);
    owner = getpid();
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return file >= 0;
}

static void record(const char *line, int length) {
    if (length > 0 && length < LINE && record_open() && write(file, line, (size_t)length) != length) {
        close(file);
        file = -1;
    }
}

static void name_device(int device) {
    unsigned char u[16] = {0};
    char line[LINE];
    if (device < 0 || device >= DEVICES || is_named[device]) return;
    is_named[device] = true;
    if (device_uuid) device_uuid(u, device);
    int length = snprintf(line, sizeof line, "D %d GPU-", device);
    for (int i = 0; i < 16; i++)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s%02x",
                           i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
    line[length++] = '\n';
    record(line, length);
}

/* ---- who asked ---- */

/* The first library that is not part of CUDA: its file name, without what follows ".so". */
static void caller_find(char *out, size_t size) {
    static const char *const inner[] = {"libcuda.so", "libcupti", "libcudart", "agent.so"};
    void *frames[FRAMES];
    int count = backtrace(frames, FRAMES);
    snprintf(out, size, "?");
    for (int i = 0; i < count; i++) {
        Dl_info info;
        if (!dladdr(frames[i], &info) || !info.dli_fname) continue;
        const char *base = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
        bool is_inner = false;
        for (size_t k = 0; k < sizeof inner / sizeof *inner; k++)
            is_inner |= strncmp(base, inner[k], strlen(inner[k])) == 0;
        if (is_inner) continue;
        const char *end = strstr(base, ".so");
        int length = end ? (int)(end - base) : (int)strlen(base);
        snprintf(out, size, "%.*s", length, base);
        for (char *c = out; *c; c++)
            if (*c == ' ') *c = '_';
        return;
    }
}

/* ---- callbacks ---- */

static unsigned long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
}

/* The requested bytes, and the resulting address or handle. */
static void read_parameters(kind is, const void *parameters, unsigned long long *bytes, unsigned long long *address) {
    const struct {
        const unsigned long long *made;
        size_t a, b, c;
    } *p = parameters;
    *bytes = *address = 0;
    switch (is) {
    case ALLOC:
    case CREATE:
    case ASYNC:
    case MANAGED:
        *bytes = p->a;
        if (p->made) *address = *p->made;
        break;
    case PITCH: /* made, where the pitch is, width, height */
        if (p->a) *bytes = *(const size_t *)p->a * p->c;
        if (p->made) *address = *p->made;
        break;
    case FREE:
    case RELEASE:
    case ASYNC_FREE:
        *address = *(const unsigned long long *)parameters;
        break;
    case CONTEXT:
    case MODULE:
    case MARKER:
        break;
    }
}

static _Thread_local bool is_inside;
static _Thread_local size_t used_before;

static void called(const struct call *call, const cupti_callback_data *data) {
    size_t free_bytes = 0, total = 0;
    int device = 0, result = data->result ? *(const int *)data->result : 0;
    unsigned long long bytes, address;
    char line[LINE], who[128];
    bool is_growth = call->is == CONTEXT || call->is == MODULE || call->is == MARKER;
    /* While a context is created there may be none to ask in. */
    bool is_known = memory_info && memory_info(&free_bytes, &total) == 0;
    size_t used = is_known ? total - free_bytes : 0;
    if (data->site == CUPTI_SITE_ENTER) {
        used_before = used;
        return;
    }
    /* A retained context need not be current: its device is the second parameter. */
    if (call->is == CONTEXT && strcmp(call->name, "cuDevicePrimaryCtxRetain") == 0)
        device = ((const int *)data->parameters)[2];
    else if (context_device)
        context_device(&device);
    read_parameters(call->is, data->parameters, &bytes, &address);
    pthread_mutex_lock(&lock);
    if (record_open()) name_device(device);
    int length = 0;
    if (is_growth)
        length = snprintf(line, sizeof line, "%c %d %llu %zu %zu %zu %s\n",
                          call->is == CONTEXT  ? 'K'
                          : call->is == MODULE ? 'M'
                                               : 'G',
                          device, now_us(), used, used_before ? used_before : used, total, call->name);
    else if (result != 0) {
        caller_find(who, sizeof who);
        length = snprintf(line, sizeof line, "X %d %llu %zu %llu %d %s %s\n", device, now_us(), used, bytes, result,
                          who, call->name);
    } else if (call->is == FREE || call->is == RELEASE || call->is == ASYNC_FREE)
        length = snprintf(line, sizeof line, "F %d %llu %zu %llu\n", device, now_us(), used, address);
    else {
        caller_find(who, sizeof who);
        length = snprintf(line, sizeof line, "%c %d %llu %zu %llu %llu %s %s\n", call->is == MANAGED ? 'P' : 'A',
                          device, now_us(), used, bytes, address, who, call->name);
    }
    record(line, length);
    pthread_mutex_unlock(&lock);
}

static void on_call(void *user, int domain, uint32_t id, const cupti_callback_data *data) {
    (void)user;
    if (domain != CUPTI_DOMAIN_DRIVER || is_inside) return;
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].id != id) continue;
        bool is_growth = calls[i].is == CONTEXT || calls[i].is == MODULE || calls[i].is == MARKER;
        if (data->site == CUPTI_SITE_ENTER && !is_growth) return;
        is_inside = true;
        called(&calls[i], data);
        is_inside = false;
        return;
    }
}

/* ---- CUPTI ---- */

/* A copy that the program has loaded is preferred: two in one process conflict. */
static void *cupti_open(const char **how) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"};
    const char *path = getenv("TIDEMARK_CUPTI");
    void *library = NULL;
    if (path && path[0]) library = dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    *how = library ? "loaded" : "found";
    for (size_t i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW);
    return library;
}

EXPORT int InitializeInjection(void);
EXPORT int InitializeInjection(void) {
    const char *how;
    char line[LINE];
    void *subscriber = NULL, *frame;
    uint32_t version = 0;
    int (*subscribe)(void **, cupti_callback *, void *) = NULL, status = -1;
    int (*enable)(uint32_t, void *, int, uint32_t) = NULL;
    int (*get_version)(uint32_t *) = NULL;
    if (!getenv("TIDEMARK_RUN") || !record_open()) return 1;
    driver_open();
    void *cupti = cupti_open(&how);
    if (cupti) {
        *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe");
        *(void **)&enable = dlsym(cupti, "cuptiEnableCallback");
        *(void **)&get_version = dlsym(cupti, "cuptiGetVersion");
    }
    if (get_version) get_version(&version);
    backtrace(&frame, 1); /* loads now what it needs */
    if (subscribe && enable) status = subscribe(&subscriber, on_call, NULL);
    for (int i = 0; status == CUPTI_OK && i < CALLS; i++) enable(1, subscriber, CUPTI_DOMAIN_DRIVER, calls[i].id);
    Dl_info info = {0};
    void *at = NULL;
    memcpy(&at, &subscribe, sizeof at);
    if (at) dladdr(at, &info);
    record(line,
           snprintf(line, sizeof line, "I %u %d %.300s\n", version, status, info.dli_fname ? info.dli_fname : "none"));
    return 1;
}
