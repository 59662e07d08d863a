/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda-check/ declares for itself against NVIDIA's headers: compiles where they agree.
 *
 *     cc -fsyntax-only -I CUDA -I CUPTI -I CRT tests/cuda-check/layouts.c       (of CUDA 12 and of
 * CUDA 13) */
#include <stdbool.h>
#include <stddef.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#define SAME(a, b) _Static_assert((size_t)(a) == (size_t)(b), #a " is " #b)

#if CUDART_VERSION >= 13000
SAME(sizeof(struct cudaDeviceProp), 1008);
#define PROPERTY(field, at12, at13, is_wide, value)                                                                    \
    SAME(offsetof(struct cudaDeviceProp, field), at13);                                                                \
    SAME(sizeof(((struct cudaDeviceProp *)0)->field), is_wide ? 8 : 4);
#else
SAME(sizeof(struct cudaDeviceProp), 1032);
#define PROPERTY(field, at12, at13, is_wide, value)                                                                    \
    SAME(offsetof(struct cudaDeviceProp, field), at12);                                                                \
    SAME(sizeof(((struct cudaDeviceProp *)0)->field), is_wide ? 8 : 4);
#endif
#include "../../cuda-check/phantom/properties.def"
SAME(offsetof(struct cudaDeviceProp, uuid), 256);

SAME(offsetof(struct cudaPointerAttributes, devicePointer), 8);
SAME(offsetof(struct cudaPointerAttributes, hostPointer), 16);
SAME(offsetof(struct cudaFuncAttributes, maxThreadsPerBlock), 24);
SAME(offsetof(struct cudaFuncAttributes, maxDynamicSharedSizeBytes), 44);
SAME(sizeof(struct cudaFuncAttributes), 144);
SAME(offsetof(CUmemAllocationProp, location.id), 12);

SAME(cudaStreamCaptureStatusNone, 0);
SAME(cudaStreamCaptureStatusActive, 1);
SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1);
SAME(cudaDevAttrMaxThreadsPerBlock, 1);
SAME(cudaDevAttrMaxBlockDimX, 2);
SAME(cudaDevAttrMaxBlockDimY, 3);
SAME(cudaDevAttrMaxBlockDimZ, 4);
SAME(cudaDevAttrMaxGridDimX, 5);
SAME(cudaDevAttrMaxGridDimY, 6);
SAME(cudaDevAttrMaxGridDimZ, 7);
SAME(cudaDevAttrMaxSharedMemoryPerBlock, 8);
SAME(cudaDevAttrWarpSize, 10);
SAME(cudaDevAttrMaxRegistersPerBlock, 12);
SAME(cudaDevAttrClockRate, 13);
SAME(cudaDevAttrMultiProcessorCount, 16);
SAME(cudaDevAttrIntegrated, 18);
SAME(cudaDevAttrMemoryClockRate, 36);
SAME(cudaDevAttrGlobalMemoryBusWidth, 37);
SAME(cudaDevAttrL2CacheSize, 38);
SAME(cudaDevAttrMaxThreadsPerMultiProcessor, 39);
SAME(cudaDevAttrComputeCapabilityMajor, 75);
SAME(cudaDevAttrComputeCapabilityMinor, 76);
SAME(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81);
SAME(cudaDevAttrMaxRegistersPerMultiprocessor, 82);
SAME(cudaDevAttrIsMultiGpuBoard, 84);
SAME(cudaDevAttrMultiGpuBoardGroupID, 85);
SAME(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97);
SAME(cudaDevAttrMaxBlocksPerMultiprocessor, 106);
SAME(cudaDevAttrReservedSharedMemoryPerBlock, 111);
SAME(CU_POINTER_ATTRIBUTE_CONTEXT, 1);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9);
SAME(cudaErrorMemoryAllocation, 2);
SAME(cudaErrorNotSupported, 801);
SAME(CUDA_ERROR_STUB_LIBRARY, 34);

/* What the agent uses of CUPTI. */
#include "../../cuda-check/cupti.h"
SAME(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DOMAIN_DRIVER);
SAME(CUPTI_API_ENTER, CUPTI_SITE_ENTER);
SAME(CUPTI_API_EXIT, CUPTI_SITE_EXIT);
SAME(CUPTI_ERROR_NOT_INITIALIZED, CUPTI_NOT_INITIALIZED);
SAME(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI_MULTIPLE_SUBSCRIBERS);
SAME(sizeof(CUpti_CallbackData), sizeof(cupti_callback_data));
SAME(offsetof(CUpti_CallbackData, functionParams), offsetof(cupti_callback_data, parameters));
SAME(offsetof(CUpti_CallbackData, functionReturnValue), offsetof(cupti_callback_data, result));
SAME(offsetof(CUpti_CallbackData, context), offsetof(cupti_callback_data, context));
#define CALL(name, id, kind) SAME(CUPTI_DRIVER_TRACE_CBID_##name, id);
#if CUDART_VERSION >= 13000
CUPTI_CALLS(CALL)
#else /* cuCtxCreate_v4 came later */
SAME(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, 243);
SAME(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, 245);
SAME(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, 549);
SAME(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, 550);
SAME(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain, 386);
SAME(CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadData, 678);
#endif
SAME(offsetof(cuDevicePrimaryCtxRetain_params, dev), 8);
SAME(offsetof(cuMemAlloc_v2_params, bytesize), 8);
SAME(offsetof(cuMemCreate_params, size), 8);
SAME(offsetof(cuMemAllocAsync_params, bytesize), 8);
SAME(offsetof(cuMemAllocFromPoolAsync_params, bytesize), 8);
SAME(offsetof(cuMemAllocManaged_params, bytesize), 8);
SAME(offsetof(cuMemAllocPitch_v2_params, pPitch), 8);
SAME(offsetof(cuMemAllocPitch_v2_params, Height), 24);
