/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUPTI that the agent uses, declared here: layouts and numbers are append-only from CUDA 11 to 13.
 * tests/cuda-check/layouts.c checks them against the headers. */
#ifndef TIDE_CUPTI_H
#define TIDE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum { CUPTI_DOMAIN_DRIVER = 1, CUPTI_SITE_ENTER = 0, CUPTI_SITE_EXIT = 1 };

/* CUptiResult */
enum {
    CUPTI_OK = 0,
    CUPTI_NOT_INITIALIZED = 15,      /* newer than the driver supports */
    CUPTI_MULTIPLE_SUBSCRIBERS = 39, /* already in use by another tool */
    CUPTI_UNKNOWN = 999
};

typedef struct cupti_callback_data {
    int site;
    const char *function;
    const void *parameters;
    void *result; /* CUresult, at the exit */
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation_id;
} cupti_callback_data;

typedef void cupti_callback(void *user, int domain, uint32_t id, const cupti_callback_data *data);

/* X(name, CUPTI_DRIVER_TRACE_CBID_name, kind): a plain allocation, physical memory, a pool's, a free, or a call at
 * which the driver itself may allocate. */
#define CUPTI_CALLS(X)                                                                                                 \
    X(cuMemAlloc_v2, 243, ALLOC)                                                                                       \
    X(cuMemAllocPitch_v2, 244, PITCH)                                                                                  \
    X(cuMemFree_v2, 245, FREE)                                                                                         \
    X(cuMemCreate, 549, CREATE)                                                                                        \
    X(cuMemRelease, 550, RELEASE)                                                                                      \
    X(cuMemAllocAsync, 598, ASYNC)                                                                                     \
    X(cuMemAllocAsync_ptsz, 599, ASYNC)                                                                                \
    X(cuMemAllocFromPoolAsync, 611, ASYNC)                                                                             \
    X(cuMemAllocFromPoolAsync_ptsz, 612, ASYNC)                                                                        \
    X(cuMemFreeAsync, 600, ASYNC_FREE)                                                                                 \
    X(cuMemFreeAsync_ptsz, 601, ASYNC_FREE)                                                                            \
    X(cuMemPoolTrimTo, 602, MARKER)                                                                                    \
    X(cuMemAllocManaged, 371, MANAGED)                                                                                 \
    X(cuArrayCreate_v2, 272, MARKER)                                                                                   \
    X(cuArray3DCreate_v2, 274, MARKER)                                                                                 \
    X(cuDevicePrimaryCtxRetain, 386, CONTEXT)                                                                          \
    X(cuCtxCreate_v2, 235, CONTEXT)                                                                                    \
    X(cuCtxCreate_v4, 757, CONTEXT)                                                                                    \
    X(cuCtxSetLimit, 136, MARKER)                                                                                      \
    X(cuLibraryLoadData, 678, MODULE)                                                                                  \
    X(cuModuleLoadData, 19, MODULE)                                                                                    \
    X(cuModuleLoadDataEx, 20, MODULE)                                                                                  \
    X(cuGraphInstantiateWithFlags, 643, MARKER)

#endif
