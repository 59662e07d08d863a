/* SPDX-License-Identifier: Apache-2.0 */
/* The phantom: a CUDA runtime with no GPU behind it.
 *
 * Preloaded into an unchanged process it answers the CUDA runtime, driver, cuBLAS, cuDNN and NCCL
 * calls that PyTorch makes.  Memory calls keep exact books against a GPU of a stated size; kernels
 * and library calls succeed and compute nothing.  What lies above the runtime (dispatcher,
 * autograd, caching allocator) is the real thing.
 *
 *     card.c       the GPU and the environment
 *     device_memory.c  device memory: blocks, virtual memory, pinned host memory
 *     runtime.c    libcudart
 *     capture.c    stream capture: events and graphs
 *     driver.c     libcuda
 *     libraries.c  cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER
 *     nccl.c       NCCL
 *     announce.c   who listens to the driver's calls: what CUPTI does on a GPU
 *     known.c      functions that need no answer but success, by name in stubs.def
 *     stubs.c      everything else: functions made on the spot for what a library asks for
 *     nvml.c       libnvidia-ml, a library of its own
 *     cupti.c      libcupti, likewise
 *
 * No CUDA header is needed: types that matter are declared here, and their layouts do not differ
 * between CUDA 12 and 13 unless it is said. */
#ifndef PHANTOM_H
#define PHANTOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Signatures are NVIDIA's: not every parameter is of use. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define PHANTOM_EXPORT __attribute__((visibility("default")))

/* An exported function: its declaration and the head of its definition. */
#define API(type, name, ...)                                                                                           \
    PHANTOM_EXPORT type name(__VA_ARGS__);                                                                             \
    PHANTOM_EXPORT type name(__VA_ARGS__)

enum { MAX_DEVICES = 64 };
enum { OK = 0 };

/* cudaError and CUresult agree on these. */
enum {
    ERROR_INVALID_VALUE = 1,
    ERROR_OUT_OF_MEMORY = 2,
    ERROR_INVALID_DEVICE = 101,
    ERROR_NOT_FOUND = 500,
    ERROR_NOT_READY = 600,
    ERROR_NOT_SUPPORTED = 801
};

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB) /* what the driver hands out at least */

/* Copies up to here are really made; larger ones read as zero. */
#define COPY_LIMIT MIB

/* ---- card.c ---- */

typedef struct phantom_card {
    size_t bytes;   /* as the driver reports it */
    size_t context; /* taken by each process on each device that it uses */
    int capability; /* times ten */
    int sms, threads_per_sm;
} phantom_card;

const phantom_card *card(void);
void card_name(char *out, size_t size);
int device_count(void);
int shared_memory_per_sm(void);    /* bytes */
int shared_memory_per_block(void); /* bytes, opted in */

/* The major version of the runtime that the process was built for: 12 or 13. */
int runtime_major(void);
PHANTOM_EXPORT void phantom_runtime(int major);

/* A line for the report, said once: "kind text". */
void note(const char *kind, const char *text);

/* ---- announce.c ---- */

/* A driver call has come to its end, by its number for CUPTI; parameters as CUPTI gives them. */
void announce(unsigned call, const char *name, const void *parameters, int result);
/* The same, with its beginning, for calls that an observer reads the memory before. */
void announce_begin(unsigned call, const char *name);
/* Loads what CUDA_INJECTION64_PATH names, once. */
void announce_open(void);

/* ---- device_memory.c ---- */

extern _Thread_local int current_device;

void *handle(void); /* something that is not NULL, zeroed, never used */
int device_malloc(void **out, size_t size);
int device_free(void *at);
int device_of(const void *at); /* -1: not on a device */
int device_use(int device);    /* makes it current, and takes its context */
void device_memory(int device, size_t *free_bytes, size_t *total);
bool is_pinned(const void *at);
void copy(void *to, const void *from, size_t size);
PHANTOM_EXPORT int cudaMallocHost(void **out, size_t size);

#endif
