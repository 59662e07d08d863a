/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda: what PyTorch, Triton and extensions ask of the driver itself. */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

PHANTOM_EXPORT int cudaDeviceGetAttribute(int *out, int attribute, int device);
PHANTOM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function, int threads,
                                                                 size_t shared);

static int context;

API(int, cuInit, unsigned flags) {
    return OK;
}
API(int, cuDriverGetVersion, int *version) {
    *version = 13020;
    return OK;
}
API(int, cuDeviceGet, int *device, int index) {
    *device = index;
    return index >= 0 && index < device_count() ? OK : ERROR_INVALID_DEVICE;
}
API(int, cuDeviceGetCount, int *count) {
    *count = device_count();
    return OK;
}
API(int, cuDeviceGetName, char *out, int size, int device) {
    card_name(out, (size_t)size);
    return OK;
}
API(int, cuDeviceTotalMem_v2, size_t *bytes, int device) {
    *bytes = card()->bytes;
    return OK;
}
API(int, cuDeviceGetAttribute, int *out, int attribute, int device) {
    return cudaDeviceGetAttribute(out, attribute, device);
}
API(int, cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    if (active) *active = 1;
    return OK;
}
API(int, cuDevicePrimaryCtxRetain, void **out, int device) {
    size_t free_bytes, total;
    device_memory(device, &free_bytes, &total); /* takes the context's bytes */
    *out = &context;
    return OK;
}
API(int, cuDeviceGetUuid_v2, unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[0] = (unsigned char)(device + 1);
    return OK;
}
API(int, cuCtxGetCurrent, void **out) {
    *out = &context;
    return OK;
}
API(int, cuCtxGetDevice, int *device) {
    *device = current_device;
    return OK;
}
API(int, cuMemGetInfo_v2, size_t *free_bytes, size_t *total) {
    device_memory(current_device, free_bytes, total);
    return OK;
}
API(int, cuMemAlloc_v2, void **out, size_t size) {
    return device_malloc(out, size);
}
API(int, cuMemFree_v2, void *at) {
    return device_free(at);
}
API(int, cuMemcpyDtoH_v2, void *to, void *from, size_t size) {
    copy(to, from, size);
    return OK;
}
API(int, cuMemcpyHtoD_v2, void *to, const void *from, size_t size) {
    copy(to, from, size);
    return OK;
}
API(int, cuGetErrorString, int error, const char **out) {
    *out = error ? "phantom error" : "no error";
    return OK;
}
API(int, cuGetErrorName, int error, const char **out) {
    *out = error ? "CUDA_ERROR_UNKNOWN" : "CUDA_SUCCESS";
    return OK;
}

/* CU_POINTER_ATTRIBUTE_... : 1 context, 2 memory type, 3 device pointer, 4 host pointer, 9 ordinal
 */
API(int, cuPointerGetAttribute, void *out, int attribute, const void *at) {
    int device = device_of(at);
    if (device < 0 && !is_pinned(at)) return ERROR_INVALID_VALUE;
    switch (attribute) {
    case 1:
        memcpy(out, &(void *){&context}, sizeof(void *));
        break;
    case 2:
        *(unsigned *)out = device >= 0 ? 2 : 1;
        break;
    case 3:
    case 4:
        memcpy(out, &at, sizeof at);
        break;
    case 9:
        *(int *)out = device >= 0 ? device : current_device;
        break;
    default:
        *(int *)out = 0;
    }
    return OK;
}

/* ---- modules: loaded, never run ---- */

static int module_make(void **out) {
    note("phantom-compiled", "kernels compiled at run time (torch.compile, Triton) are not timed: where "
                             "tuning chooses among them, a GPU may choose others");
    announce_begin(19, "cuModuleLoadData");
    *out = handle();
    announce(19, "cuModuleLoadData", NULL, OK);
    return *out ? OK : ERROR_OUT_OF_MEMORY;
}
API(int, cuModuleLoad, void **out, const char *path) {
    return module_make(out);
}
API(int, cuModuleLoadData, void **out, const void *image) {
    return module_make(out);
}
API(int, cuModuleLoadDataEx, void **out, const void *image, unsigned n, int *options, void **values) {
    return module_make(out);
}
API(int, cuModuleGetFunction, void **out, void *module, const char *name) {
    return module_make(out);
}
API(int, cuLibraryLoadData, void **out, const void *code) {
    return module_make(out);
}
API(int, cuLibraryGetKernel, void **out, void *library, const char *name) {
    return module_make(out);
}
API(int, cuKernelGetFunction, void **out, void *kernel) {
    *out = kernel;
    return OK;
}

/* CUfunction_attribute: 0 threads per block, 1 shared, 2 const, 3 local bytes, 4 registers. */
API(int, cuFuncGetAttribute, int *out, int attribute, void *function) {
    *out = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;
    return OK;
}
API(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *out, void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, function, threads, shared);
}
API(int, cuOccupancyMaxActiveClusters, int *out, void *function, const void *config) {
    *out = 1;
    return OK;
}

/* Looked up in the driver's library by name, by Triton and others. */
#define SUCCEEDS(name)                                                                                                 \
    API(int, name, void) {                                                                                             \
        return OK;                                                                                                     \
    }
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent_v2)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuCtxSetLimit)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuDevicePrimaryCtxRelease_v2)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventSynchronize)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuFuncSetCacheConfig)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuMemcpyDtoDAsync_v2)
SUCCEEDS(cuMemsetD32Async)
SUCCEEDS(cuMemsetD8Async)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuStreamWaitEvent)
SUCCEEDS(cuTensorMapEncodeTiled)
#undef SUCCEEDS

/* ---- by name ---- */

API(int, cuGetProcAddress_v2, const char *name, void **out, int version, uint64_t flags, int *status) {
    static const char *const suffixes[] = {"_v4", "_v3", "_v2", ""};
    char full[256];
    *out = NULL;
    for (size_t i = 0; i < 4 && !*out; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        *out = dlsym(RTLD_DEFAULT, full);
    }
    if (status) *status = *out ? 0 : 1;
    return *out ? OK : ERROR_NOT_FOUND;
}
API(int, cuGetProcAddress, const char *name, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

/* Only NVIDIA's own runtime asks for these tables: one that is linked into a library and so does
 * not come by the calls above. */
API(int, cuGetExportTable, const void **out, const void *id) {
    Dl_info caller;
    const char *file = "a library", *base;
    if (dladdr(__builtin_return_address(0), &caller) && caller.dli_fname) file = caller.dli_fname;
    base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    /* The shared runtime comes here only where its functions were not completed: see stubs.c. */
    note(strncmp(base, "libcudart.so", 12) == 0 ? "phantom-no-hook" : "phantom-static-runtime", file);
    *out = NULL;
    return ERROR_NOT_SUPPORTED;
}
