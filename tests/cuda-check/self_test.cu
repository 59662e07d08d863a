/* SPDX-License-Identifier: Apache-2.0 */
// Takes known amounts of device memory in the ways there are, for `tidemark check` to find: 64 MiB plainly, 48 MiB in
// stream order, 20 MiB as pages that are mapped. A kernel writes them; on a phantom GPU, which computes nothing, that is said.
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

static const size_t mib = 1 << 20;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int status = (int)(call);                                                                  \
        if (status) {                                                                              \
            std::printf("%s: error %d\n", #call, status);                                          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

__global__ void fill(unsigned *at, size_t count, unsigned value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) at[i] = value;
}

template <typename F> static int driver_find(F &function, const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    int status = (int)cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    function = (F)found;
    return status ? status : found ? 0 : 1;
}

int main() {
    unsigned *plain, *ordered, *mapped, value = 0;
    cudaStream_t stream;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMalloc(&plain, 64 * mib));
    MUST(cudaMallocAsync(&ordered, 48 * mib, stream));
    MUST(cudaStreamSynchronize(stream));

    CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    MUST(driver_find(granularity, "cuMemGetAllocationGranularity"));
    MUST(driver_find(reserve, "cuMemAddressReserve"));
    MUST(driver_find(create, "cuMemCreate"));
    MUST(driver_find(map, "cuMemMap"));
    MUST(driver_find(allow, "cuMemSetAccess"));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle pages;
    CUdeviceptr at;
    size_t grain;
    MUST(granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    MUST(20 * mib % grain);
    MUST(reserve(&at, 20 * mib, 0, 0, 0));
    MUST(create(&pages, 20 * mib, &prop, 0));
    MUST(map(at, 20 * mib, 0, pages, 0));
    MUST(allow(at, 20 * mib, &access, 1));
    mapped = (unsigned *)at;

    fill<<<132, 256, 0, stream>>>(plain, 64 * mib / 4, 7);
    fill<<<132, 256, 0, stream>>>(ordered, 48 * mib / 4, 7);
    fill<<<132, 256, 0, stream>>>(mapped, 20 * mib / 4, 7);
    MUST(cudaGetLastError());
    MUST(cudaMemcpyAsync(&value, mapped + 5 * mib - 1, sizeof value, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaFreeAsync(ordered, stream));
    std::printf("132 MiB taken; %s\n", value == 7 ? "the kernel wrote them" : "no kernel ran");
    return 0;
}
