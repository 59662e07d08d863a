/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml for phantom GPUs: what PyTorch's allocator, pynvml and `tidemark check` ask.
 *
 * PHANTOM_NVML makes it a machine of another kind: "silent" (the driver does not answer), "empty"
 * (no GPU), "old" (a driver for CUDA 11.4), "mig" (cut into slices), "shared" (another process
 * holds 3 GiB), "hidden" (processes are not told). */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_kind(const char *kind) {
    const char *is = getenv("PHANTOM_NVML");
    return is && strcmp(is, kind) == 0;
}

enum { NOT_SUPPORTED = 3 };

/* A function of the phantom, which is in every process that this library is in. */
#define ASK(type, name) (*(type *)&(void *){dlsym(RTLD_DEFAULT, name)})

typedef int counts(int *);
typedef int attributes(int *, int, int);
typedef bool names(char *, size_t);
typedef int uses(int, unsigned long long *, unsigned long long *);

API(int, nvmlInit_v2, void) {
    return is_kind("silent") ? 9 : OK;
} /* driver not loaded */
API(int, nvmlInit, void) {
    return OK;
}
API(int, nvmlInitWithFlags, unsigned flags) {
    return OK;
}
API(int, nvmlShutdown, void) {
    return OK;
}
API(const char *, nvmlErrorString, int error) {
    return error == 9 ? "Driver Not Loaded" : error ? "Not Supported" : "Success";
}
API(int, nvmlSystemGetCudaDriverVersion_v2, int *version) {
    *version = is_kind("old") ? 11040 : 13020;
    return OK;
}
API(int, nvmlSystemGetCudaDriverVersion, int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}
API(int, nvmlSystemGetDriverVersion, char *out, unsigned size) {
    snprintf(out, size, "595.0 (phantom)");
    return OK;
}

API(int, nvmlDeviceGetCount_v2, unsigned *out) {
    counts *count = ASK(counts *, "cudaGetDeviceCount");
    int devices = 0;
    if (count) count(&devices);
    *out = is_kind("empty") ? 0 : (unsigned)devices;
    return OK;
}
API(int, nvmlDeviceGetHandleByIndex_v2, unsigned index, void **out) {
    *out = (void *)(uintptr_t)(index + 1);
    return OK;
}
API(int, nvmlDeviceGetHandleByPciBusId_v2, const char *id, void **out) {
    unsigned bus = 1;
    sscanf(id, "%*x:%x", &bus);
    *out = (void *)(uintptr_t)bus;
    return OK;
}
API(int, nvmlDeviceGetIndex, void *device, unsigned *out) {
    *out = (unsigned)(uintptr_t)device - 1;
    return OK;
}
API(int, nvmlDeviceGetHandleByUUID, const char *uuid, void **out) {
    unsigned device = 1;
    sscanf(uuid, "GPU-%2x", &device);
    *out = (void *)(uintptr_t)device;
    return OK;
}
API(int, nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor) {
    attributes *attribute = ASK(attributes *, "cudaDeviceGetAttribute");
    int index = (int)(uintptr_t)device - 1;
    if (!attribute || attribute(major, 75, index) || attribute(minor, 76, index)) return NOT_SUPPORTED;
    return OK;
}
API(int, nvmlDeviceGetP2PStatus, void *device, void *peer, int capability, int *status) {
    *status = 0; /* NVML_P2P_STATUS_OK */
    return OK;
}
API(int, nvmlDeviceGetName, void *device, char *out, unsigned size) {
    names *name = ASK(names *, "phantom_name");
    if (!name || !name(out, size)) snprintf(out, size, "Phantom");
    return OK;
}
API(int, nvmlDeviceGetUUID, void *device, char *out, unsigned size) {
    snprintf(out, size, "GPU-%02lx000000-0000-0000-0000-000000000000", (unsigned long)(uintptr_t)device);
    return OK;
}

typedef struct memory {
    unsigned long long total, free, used;
} memory;

API(int, nvmlDeviceGetMemoryInfo, void *device, memory *out) {
    uses *usage = ASK(uses *, "phantom_usage");
    if (!usage || usage((int)(uintptr_t)device - 1, &out->total, &out->used)) return NOT_SUPPORTED;
    out->free = out->total - out->used;
    return OK;
}
typedef struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
} process;

API(int, nvmlDeviceGetComputeRunningProcesses_v3, void *device, unsigned *count, process *out) {
    if (is_kind("hidden")) return NOT_SUPPORTED;
    *count = is_kind("shared");
    if (*count) out[0] = (process){1, 3ull << 30, {0, 0}};
    return OK;
}
API(int, nvmlDeviceGetComputeRunningProcesses, void *device, unsigned *count, void *out) {
    *count = 0; /* the first version, whose entries are shorter */
    return is_kind("hidden") ? NOT_SUPPORTED : OK;
}
API(int, nvmlDeviceGetMigMode, void *device, unsigned *now, unsigned *pending) {
    *now = *pending = is_kind("mig");
    return OK;
}
API(int, nvmlDeviceGetNvLinkRemoteDeviceType, void *device, unsigned link, int *type) {
    return NOT_SUPPORTED;
}
API(int, nvmlDeviceGetNvLinkRemotePciInfo_v2, void *device, unsigned link, void *info) {
    return NOT_SUPPORTED;
}
API(int, nvmlDeviceGetGpuFabricInfoV, void *device, void *info) {
    return NOT_SUPPORTED;
}
