/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL. A communicator may have more ranks than there are processes: each rank answers with its own data (only for
 * small payloads, as everywhere), which satisfies checks that all ranks agree. */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

typedef struct communicator {
    int ranks, rank;
} communicator;

typedef struct unique_id {
    char bytes[128];
} unique_id;

/* The number of ranks in the next split, which only the caller knows. */
static int split_ranks;
API(void, phantom_split_ranks, int ranks) {
    split_ranks = ranks;
}

static int join(communicator **out, int ranks, int rank) {
    if (!(*out = malloc(sizeof **out))) return 2; /* ncclSystemError */
    **out = (communicator){ranks, rank};
    return OK;
}

API(int, ncclGetVersion, int *version) {
    *version = 23007;
    return OK;
}
API(int, ncclGetUniqueId, unique_id *out) {
    memset(out, 7, sizeof *out);
    return OK;
}
API(const char *, ncclGetErrorString, int error) {
    return error ? "phantom error" : "no error";
}
API(const char *, ncclGetLastError, void *c) {
    return "";
}
API(int, ncclCommInitRank, communicator **out, int ranks, unique_id id, int rank) {
    return join(out, ranks, rank);
}
API(int, ncclCommInitRankConfig, communicator **out, int ranks, unique_id id, int rank, void *config) {
    return join(out, ranks, rank);
}
API(int, ncclCommInitRankScalable, communicator **out, int ranks, int rank, int ids, unique_id *id, void *config) {
    return join(out, ranks, rank);
}
API(int, ncclCommSplit, communicator *from, int color, int key, communicator **out, void *config) {
    if (color < 0) {
        *out = NULL;
        return OK;
    }
    return join(out, split_ranks > 0 ? split_ranks : from->ranks, key);
}
API(int, ncclCommCount, communicator *c, int *ranks) {
    *ranks = c->ranks;
    return OK;
}
API(int, ncclCommUserRank, communicator *c, int *rank) {
    *rank = c->rank;
    return OK;
}
API(int, ncclCommCuDevice, communicator *c, int *device) {
    *device = current_device;
    return OK;
}
API(int, ncclCommGetAsyncError, communicator *c, int *error) {
    *error = 0;
    return OK;
}

/* ncclDataType_t */
static size_t size_of(int type) {
    static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int)sizeof sizes ? sizes[type] : 1;
}

static int answer(void *to, const void *from, size_t size) {
    if (to && from && to != from && size <= COPY_LIMIT) memmove(to, from, size);
    return OK;
}

API(int, ncclAllReduce, const void *from, void *to, size_t n, int type, int op, communicator *c, void *stream) {
    return answer(to, from, n * size_of(type));
}
API(int, ncclReduce, const void *from, void *to, size_t n, int type, int op, int root, communicator *c, void *stream) {
    return c->rank == root ? answer(to, from, n * size_of(type)) : OK;
}
API(int, ncclBroadcast, const void *from, void *to, size_t n, int type, int root, communicator *c, void *stream) {
    return answer(to, from, n * size_of(type));
}
API(int, ncclAllGather, const void *from, void *to, size_t n, int type, communicator *c, void *stream) {
    size_t bytes = n * size_of(type);
    if (bytes <= COPY_LIMIT / (size_t)c->ranks)
        for (int i = 0; i < c->ranks; i++) answer((char *)to + (size_t)i * bytes, from, bytes);
    return OK;
}
API(int, ncclReduceScatter, const void *from, void *to, size_t n, int type, int op, communicator *c, void *stream) {
    size_t bytes = n * size_of(type);
    return answer(to, (const char *)from + (size_t)c->rank * bytes, bytes);
}
API(int, ncclMemAlloc, void **out, size_t size) {
    return device_malloc(out, size) ? 1 : 0;
}
API(int, ncclMemFree, void *at) {
    return device_free(at) ? 1 : 0;
}
