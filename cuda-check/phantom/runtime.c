/* SPDX-License-Identifier: Apache-2.0 */
/* libcudart: memory, devices, streams, events, kernels. */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

API(int, cudaMalloc, void **out, size_t size) {
    return device_malloc(out, size);
}
API(int, cudaMallocAsync, void **out, size_t size, void *stream) {
    return device_malloc(out, size);
}
API(int, cudaMallocFromPoolAsync, void **out, size_t size, void *pool, void *stream) {
    return device_malloc(out, size);
}
API(int, cudaFree, void *at) {
    return device_free(at);
}
API(int, cudaFreeAsync, void *at, void *stream) {
    return device_free(at);
}

/* Managed memory migrates when it is accessed: it is host memory and never counted. */
API(int, cudaMallocManaged, void **out, size_t size, unsigned flags) {
    note("phantom-managed", "managed memory is not counted on the device");
    return cudaMallocHost(out, size);
}

API(int, cudaMemGetInfo, size_t *free_bytes, size_t *total) {
    device_memory(current_device, free_bytes, total);
    return OK;
}

API(int, cudaMemcpy, void *to, const void *from, size_t size, int kind) {
    copy(to, from, size);
    return OK;
}
API(int, cudaMemcpyAsync, void *to, const void *from, size_t size, int kind, void *stream) {
    copy(to, from, size);
    return OK;
}
API(int, cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device, size_t size, void *stream) {
    copy(to, from, size);
    return OK;
}
API(int, cudaMemset, void *at, int value, size_t size) {
    if (size <= COPY_LIMIT) memset(at, value, size);
    return OK;
}
API(int, cudaMemsetAsync, void *at, int value, size_t size, void *stream) {
    return cudaMemset(at, value, size);
}

/* struct cudaPointerAttributes; CUDA 13 has reserved words after these. */
typedef struct pointer_attributes {
    int type, device;
    const void *device_pointer, *host_pointer;
} pointer_attributes;

API(int, cudaPointerGetAttributes, pointer_attributes *out, const void *at) {
    enum { UNREGISTERED, HOST, DEVICE };
    int device = device_of(at);
    bool is_host = device < 0 && is_pinned(at);
    *out = (pointer_attributes){
        .type = device >= 0 ? DEVICE
                : is_host   ? HOST
                            : UNREGISTERED,
        .device = device >= 0 ? device
                  : is_host   ? current_device
                              : -2,
        .device_pointer = device >= 0 || is_host ? at : NULL,
        .host_pointer = device >= 0 ? NULL : at,
    };
    return OK;
}

API(int, cudaGetSymbolAddress, void **out, const void *symbol) {
    static char area[4096];
    *out = area;
    return OK;
}

/* ---- devices ---- */

API(int, cudaGetDeviceCount, int *count) {
    *count = device_count();
    return *count ? OK : 100; /* cudaErrorNoDevice */
}
API(int, cudaGetDevice, int *device) {
    *device = current_device;
    return OK;
}
API(int, cudaSetDevice, int device) {
    return device_use(device);
}
API(int, cudaRuntimeGetVersion, int *version) {
    *version = runtime_major() * 1000;
    return OK;
}
API(int, cudaDriverGetVersion, int *version) {
    *version = 13020;
    return OK;
}

typedef struct property {
    short at12, at13;
    bool is_wide; /* a size_t, else an int */
    long long value;
} property;

enum { PROPERTIES_12 = 1032, PROPERTIES_13 = 1008 }; /* bytes of struct cudaDeviceProp */

static void properties_fill(char *out, bool is13, int device) {
    int threads = card()->threads_per_sm;
    const property fields[] = {
#define PROPERTY(field, at12, at13, is_wide, value) {at12, at13, is_wide, value},
#include "properties.def"
#undef PROPERTY
    };
    memset(out, 0, is13 ? PROPERTIES_13 : PROPERTIES_12);
    card_name(out, 256);
    out[256] = (char)(device + 1); /* uuid */
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const property *f = &fields[i];
        char *at = out + (is13 ? f->at13 : f->at12);
        int narrow = (int)f->value;
        if (f->is_wide)
            memcpy(at, &f->value, 8);
        else
            memcpy(at, &narrow, 4);
    }
}

API(int, cudaGetDeviceProperties, void *out, int device) { /* CUDA 13 */
    if (device < 0 || device >= device_count()) return ERROR_INVALID_DEVICE;
    properties_fill(out, true, device);
    return OK;
}
API(int, cudaGetDeviceProperties_v2, void *out, int device) { /* CUDA 12 */
    if (device < 0 || device >= device_count()) return ERROR_INVALID_DEVICE;
    properties_fill(out, false, device);
    return OK;
}

/* enum cudaDeviceAttr, with the numbers of CUdevice_attribute. Features that are not listed are present. */
API(int, cudaDeviceGetAttribute, int *out, int attribute, int device) {
    if (device < 0 || device >= device_count()) return ERROR_INVALID_DEVICE;
    const phantom_card *is = card();
    const struct {
        int attribute, value;
    } known[] = {
        {1, 1024},                              /* MaxThreadsPerBlock */
        {2, 1024},                              /* MaxBlockDimX */
        {3, 1024},                              /* MaxBlockDimY */
        {4, 64},                                /* MaxBlockDimZ */
        {5, 2147483647},                        /* MaxGridDimX */
        {6, 65535},                             /* MaxGridDimY */
        {7, 65535},                             /* MaxGridDimZ */
        {8, 48 << 10},                          /* MaxSharedMemoryPerBlock */
        {10, 32},                               /* WarpSize */
        {12, 65536},                            /* MaxRegistersPerBlock */
        {13, 1980000},                          /* ClockRate, kHz */
        {16, is->sms},                          /* MultiProcessorCount */
        {18, 0},                                /* Integrated */
        {36, 2619000},                          /* MemoryClockRate, kHz */
        {37, 5120},                             /* GlobalMemoryBusWidth, bits */
        {38, 50 << 20},                         /* L2CacheSize */
        {39, is->threads_per_sm},               /* MaxThreadsPerMultiProcessor */
        {75, is->capability / 10},              /* ComputeCapabilityMajor */
        {76, is->capability % 10},              /* ComputeCapabilityMinor */
        {81, shared_memory_per_sm()},           /* MaxSharedMemoryPerMultiprocessor */
        {82, 65536},                            /* MaxRegistersPerMultiprocessor */
        {84, 0},                                /* IsMultiGpuBoard */
        {85, 0},                                /* MultiGpuBoardGroupID */
        {97, shared_memory_per_block()},        /* MaxSharedMemoryPerBlockOptin */
        {106, is->threads_per_sm / 64},         /* MaxBlocksPerMultiprocessor */
        {111, is->capability >= 80 ? 1024 : 0}, /* ReservedSharedMemoryPerBlock */
    };
    *out = 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) *out = known[i].value;
    return OK;
}

API(int, cudaDeviceGetPCIBusId, char *out, int size, int device) {
    snprintf(out, (size_t)size, "0000:%02x:00.0", device + 1);
    return OK;
}
API(int, cudaDeviceCanAccessPeer, int *can, int device, int peer) {
    *can = 1;
    return OK;
}
API(int, cudaDeviceGetStreamPriorityRange, int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return OK;
}
API(int, cudaDeviceGetDefaultMemPool, void **pool, int device) {
    static int pools[MAX_DEVICES];
    *pool = &pools[device];
    return OK;
}

API(const char *, cudaGetErrorString, int error) {
    return error == ERROR_OUT_OF_MEMORY    ? "out of memory"
           : error == ERROR_NOT_SUPPORTED  ? "operation not supported on a phantom GPU"
           : error == ERROR_INVALID_DEVICE ? "invalid device ordinal"
           : error == 100                  ? "no CUDA-capable device is detected"
           : error                         ? "phantom error"
                                           : "no error";
}
API(const char *, cudaGetErrorName, int error) {
    return error == ERROR_OUT_OF_MEMORY   ? "cudaErrorMemoryAllocation"
           : error == ERROR_NOT_SUPPORTED ? "cudaErrorNotSupported"
           : error                        ? "cudaErrorUnknown"
                                          : "cudaSuccess";
}

/* ---- streams; capture.c has events and graphs ---- */

static int new_handle(void **out) {
    *out = handle();
    return *out ? OK : ERROR_OUT_OF_MEMORY;
}

API(int, cudaStreamCreate, void **out) {
    return new_handle(out);
}
API(int, cudaStreamCreateWithFlags, void **out, unsigned flags) {
    return new_handle(out);
}
API(int, cudaStreamCreateWithPriority, void **out, unsigned flags, int priority) {
    return new_handle(out);
}
API(int, cudaStreamGetPriority, void *stream, int *priority) {
    *priority = 0;
    return OK;
}
API(int, cudaStreamAddCallback, void *stream, void (*call)(void *, int, void *), void *data, unsigned flags) {
    call(stream, OK, data);
    return OK;
}
API(int, cudaLaunchHostFunc, void *stream, void (*call)(void *), void *data) {
    call(data);
    return OK;
}

/* ---- kernels ---- */

/* struct cudaFuncAttributes */
typedef struct function_attributes {
    size_t shared_bytes, const_bytes, local_bytes;
    int max_threads_per_block, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared_bytes, rest[20];
} function_attributes;

/* The newest code that PyTorch contains and the GPU can run (TORCH_CUDA_ARCH_LIST of its wheels for CUDA 12 and 13):
 * CUB chooses its tile sizes, and so its temporary memory, by it. */
static int code_version(void) {
    static const int built[] = {120, 100, 90, 86, 80, 75, 70, 60, 50};
    for (size_t i = 0; i < sizeof built / sizeof *built; i++)
        if (built[i] <= card()->capability) return built[i];
    return card()->capability;
}

API(int, cudaFuncGetAttributes, function_attributes *out, const void *function) {
    *out = (function_attributes){
        .max_threads_per_block = 1024,
        .registers = 32,
        .ptx_version = code_version(),
        .binary_version = code_version(),
        .max_dynamic_shared_bytes = shared_memory_per_block(),
    };
    return OK;
}
API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *out, const void *function, int threads, size_t shared) {
    *out = threads > 0 && threads <= 1024 ? card()->threads_per_sm / threads : 1;
    return OK;
}
API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *out, const void *function, int threads,
    size_t shared, unsigned flags) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, function, threads, shared);
}
API(void **, __cudaRegisterFatBinary, void *image) {
    return handle();
}
API(int, cudaLibraryGetKernel, void **out, void *library, const char *name) {
    return new_handle(out);
}
API(int, __cudaGetKernel, const void **out, const void *function) {
    *out = function;
    return OK;
}

/* ---- the driver by name ---- */

API(int, phantom_nothing, void) {
    return OK;
}

API(int, cudaGetDriverEntryPointByVersion, const char *name, void **out, unsigned version, unsigned long long flags,
    int *found) {
    *out = dlsym(RTLD_DEFAULT, name);
    if (!*out) *out = dlsym(RTLD_DEFAULT, "phantom_nothing");
    if (found) *found = 0;
    return OK;
}
API(int, cudaGetDriverEntryPoint, const char *name, void **out, unsigned long long flags, int *found) {
    return cudaGetDriverEntryPointByVersion(name, out, 0, flags, found);
}
