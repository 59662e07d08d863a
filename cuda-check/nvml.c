/* SPDX-License-Identifier: Apache-2.0 */
/* NVML without its header: newest functions first, older ones if the driver lacks them. */
#define _GNU_SOURCE
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct memory_v1 {
    unsigned long long total, free, used; /* used includes what the driver reserved */
} memory_v1;

typedef struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

typedef struct process_info { /* of the functions _v2 and _v3 */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process_info;

_Static_assert(sizeof(memory_v2) == 40 && sizeof(process_info) == 24, "layouts of nvml.h");

/* Functions by name; NULL: the driver does not have it. */
#define FUNCTION(n, type, name) (*(type *)&(void *){dlsym((n)->library, name)})

typedef int takes_nothing(void);
typedef const char *takes_error(int);
typedef int gives_count(unsigned *);
typedef int gives_handle(unsigned, void **);
typedef int gives_text(void *, char *, unsigned);
typedef int gives_version_text(char *, unsigned);
typedef int gives_int(int *);
typedef int gives_memory_v1(void *, memory_v1 *);
typedef int gives_memory_v2(void *, memory_v2 *);
typedef int gives_mig(void *, unsigned *, unsigned *);
typedef int gives_processes(void *, unsigned *, process_info *);

static void memory_read(const nvml *n, nvml_device *d) {
    gives_memory_v2 *newer = FUNCTION(n, gives_memory_v2 *, "nvmlDeviceGetMemoryInfo_v2");
    gives_memory_v1 *older = FUNCTION(n, gives_memory_v1 *, "nvmlDeviceGetMemoryInfo");
    memory_v2 m = {.version = (unsigned)sizeof m | 2u << 24};
    memory_v1 m1;
    d->is_readable = true;
    if (newer && newer(d->handle, &m) == 0) {
        d->total = (int64_t)m.total;
        d->reserved = (int64_t)m.reserved;
        d->used = (int64_t)m.used;
    } else if (older && older(d->handle, &m1) == 0) {
        d->total = (int64_t)m1.total;
        d->used = (int64_t)m1.used;
    } else {
        d->is_readable = false;
    }
}

static void device_open(nvml *n, nvml_device *d, unsigned index) {
    gives_handle *handle = FUNCTION(n, gives_handle *, "nvmlDeviceGetHandleByIndex_v2");
    gives_text *name = FUNCTION(n, gives_text *, "nvmlDeviceGetName"),
               *uuid = FUNCTION(n, gives_text *, "nvmlDeviceGetUUID");
    gives_mig *mig = FUNCTION(n, gives_mig *, "nvmlDeviceGetMigMode");
    unsigned now = 0, later = 0;
    if (!handle || handle(index, &d->handle) != 0) return;
    if (name) name(d->handle, d->name, sizeof d->name);
    if (uuid) uuid(d->handle, d->uuid, sizeof d->uuid);
    d->is_mig = mig && mig(d->handle, &now, &later) == 0 && now == 1;
    memory_read(n, d);
}

nvml_status nvml_open(nvml *n, const char **why) {
    *n = (nvml){0};
    *why = "";
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!n->library) return NVML_NO_LIBRARY;
    takes_nothing *init = FUNCTION(n, takes_nothing *, "nvmlInit_v2");
    takes_error *text = FUNCTION(n, takes_error *, "nvmlErrorString");
    gives_count *count = FUNCTION(n, gives_count *, "nvmlDeviceGetCount_v2");
    int status = init ? init() : -1;
    if (status != 0) {
        if (text && status > 0) *why = text(status);
        return NVML_NOT_STARTED;
    }
    gives_version_text *driver = FUNCTION(n, gives_version_text *, "nvmlSystemGetDriverVersion");
    gives_int *cuda = FUNCTION(n, gives_int *, "nvmlSystemGetCudaDriverVersion_v2");
    unsigned devices = 0;
    if (driver) driver(n->driver, sizeof n->driver);
    if (cuda) cuda(&n->cuda);
    if (!count || count(&devices) != 0 || devices == 0) return NVML_NO_DEVICE;
    n->count = devices < NVML_DEVICES ? (int)devices : NVML_DEVICES;
    for (int i = 0; i < n->count; i++) device_open(n, &n->devices[i], (unsigned)i);
    return NVML_OK;
}

void nvml_close(nvml *n) {
    if (!n->library) return;
    takes_nothing *shut = FUNCTION(n, takes_nothing *, "nvmlShutdown");
    if (shut) shut();
    dlclose(n->library);
    n->library = NULL;
}

void nvml_poll(nvml *n) {
    for (int i = 0; i < n->count; i++) {
        nvml_device *d = &n->devices[i];
        memory_read(n, d);
        if (d->is_readable && d->used > d->peak) d->peak = d->used;
    }
}

void nvml_set_base(nvml *n) {
    nvml_poll(n);
    for (int i = 0; i < n->count; i++) n->devices[i].base = n->devices[i].peak = n->devices[i].used;
}

int nvml_processes(const nvml *n, const nvml_device *device, nvml_process out[NVML_PROCESSES]) {
    static const char *const names[] = {"nvmlDeviceGetComputeRunningProcesses_v3",
                                        "nvmlDeviceGetComputeRunningProcesses_v2"};
    process_info infos[NVML_PROCESSES];
    for (size_t k = 0; k < 2; k++) {
        gives_processes *list = FUNCTION(n, gives_processes *, names[k]);
        unsigned count = NVML_PROCESSES;
        if (!list || list(device->handle, &count, infos) != 0) continue;
        for (unsigned i = 0; i < count; i++)
            out[i] = (nvml_process){infos[i].pid, infos[i].bytes == ~0ull ? -1 : (int64_t)infos[i].bytes};
        return (int)count;
    }
    return -1;
}

nvml_device *nvml_find(nvml *n, const char *uuid) {
    for (int i = 0; i < n->count; i++)
        if (uuid[0] && strcmp(n->devices[i].uuid, uuid) == 0) return &n->devices[i];
    return NULL;
}
