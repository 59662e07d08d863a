/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture for CUDA graphs. A stream is captured from BeginCapture on, others join by waiting for an event
 * recorded in a captured one, and all leave at EndCapture. PyTorch's allocator asks which streams these are, because a
 * graph's tensors come from a pool of its own. A graph contains nothing, and launching it does nothing. */
#include "phantom.h"

#include <pthread.h>
#include <stdlib.h>

enum { CAPTURED_LIMIT = 256, NOT_CAPTURING = 0, CAPTURING = 1 };

static struct {
    void *streams[CAPTURED_LIMIT];
    int count;
    unsigned long long id; /* of the latest capture */
} captured;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct event {
    unsigned long long capture; /* the capture in which it was recorded; 0: none */
} event;

static bool is_captured(const void *stream) {
    for (int i = 0; i < captured.count; i++)
        if (captured.streams[i] == stream) return true;
    return false;
}

static void join(void *stream) {
    if (!is_captured(stream) && captured.count < CAPTURED_LIMIT) captured.streams[captured.count++] = stream;
}

static int make(void **out) {
    *out = handle();
    return *out ? OK : ERROR_OUT_OF_MEMORY;
}

/* ---- streams ---- */

static int begin(void *stream) {
    note("phantom-graph",
         "CUDA graphs were captured; the driver's own memory for them is not counted, and their replay "
         "computes nothing");
    pthread_mutex_lock(&lock);
    captured.id++;
    captured.count = 0;
    join(stream);
    pthread_mutex_unlock(&lock);
    return OK;
}

API(int, cudaStreamBeginCapture, void *stream, int mode) {
    return begin(stream);
}
API(int, cudaStreamBeginCaptureToGraph, void *stream, void *graph) {
    return begin(stream);
}

API(int, cudaStreamEndCapture, void *stream, void **graph) {
    pthread_mutex_lock(&lock);
    captured.count = 0;
    pthread_mutex_unlock(&lock);
    return graph ? make(graph) : OK;
}

/* cudaStreamCaptureStatus and CUstreamCaptureStatus agree. */
static int status_of(const void *stream, unsigned long long *id) {
    pthread_mutex_lock(&lock);
    bool is = is_captured(stream);
    if (id) *id = is ? captured.id : 0;
    pthread_mutex_unlock(&lock);
    return is ? CAPTURING : NOT_CAPTURING;
}

API(int, cudaStreamIsCapturing, void *stream, int *status) {
    *status = status_of(stream, NULL);
    return OK;
}
API(int, cuStreamIsCapturing, void *stream, int *status) {
    *status = status_of(stream, NULL);
    return OK;
}

static int describe(void *stream, int *status, unsigned long long *id, void **graph, size_t *dependencies) {
    static char the_graph[4096];
    int is = status_of(stream, id);
    if (status) *status = is;
    if (graph) *graph = is == CAPTURING ? the_graph : NULL;
    if (dependencies) *dependencies = 0;
    return OK;
}

/* In CUDA 13 the plain name has the arguments of CUDA 12's third version. */
API(int, cudaStreamGetCaptureInfo, void *stream, int *status, unsigned long long *id, void **graph, void *nodes,
    void *edges, size_t *count) {
    return describe(stream, status, id, graph, runtime_major() >= 13 ? count : NULL);
}
API(int, cudaStreamGetCaptureInfo_v2, void *stream, int *status, unsigned long long *id, void **graph, void *nodes,
    size_t *count) {
    return describe(stream, status, id, graph, count);
}
API(int, cudaStreamGetCaptureInfo_v3, void *stream, int *status, unsigned long long *id, void **graph, void *nodes,
    void *edges, size_t *count) {
    return describe(stream, status, id, graph, count);
}

/* ---- events: complete at once, unless a test holds them ---- */

static bool are_held;

/* For tests of the allocator: until events are released, memory used by other streams is not free. */
API(void, phantom_hold_events, int held) {
    are_held = held;
}

API(int, cudaEventCreate, void **out) {
    *out = calloc(1, sizeof(event));
    return *out ? OK : ERROR_OUT_OF_MEMORY;
}
API(int, cudaEventCreateWithFlags, void **out, unsigned flags) {
    return cudaEventCreate(out);
}
API(int, cudaEventDestroy, void *at) {
    free(at);
    return OK;
}
API(int, cudaEventRecord, event *at, void *stream) {
    if (at) status_of(stream, &at->capture);
    return OK;
}
API(int, cudaEventRecordWithFlags, event *at, void *stream, unsigned flags) {
    return cudaEventRecord(at, stream);
}
API(int, cudaStreamWaitEvent, void *stream, const event *at, unsigned flags) {
    pthread_mutex_lock(&lock);
    if (at && captured.count && at->capture == captured.id) join(stream);
    pthread_mutex_unlock(&lock);
    return OK;
}
API(int, cudaEventQuery, void *at) {
    return are_held ? ERROR_NOT_READY : OK;
}
API(int, cudaEventElapsedTime, float *ms, void *from, void *to) {
    *ms = 0.001f;
    return OK;
}
API(int, cudaEventElapsedTime_v2, float *ms, void *from, void *to) {
    return cudaEventElapsedTime(ms, from, to);
}

/* ---- graphs ---- */

API(int, cudaGraphInstantiate, void **out, void *graph, unsigned long long flags) {
    return make(out);
}
API(int, cudaGraphInstantiateWithFlags, void **out, void *graph, unsigned long long flags) {
    return make(out);
}
/* PyTorch warns of a graph without nodes. */
API(int, cudaGraphGetNodes, void *graph, void *nodes, size_t *count) {
    if (count) *count = nodes ? 0 : 1;
    return OK;
}
API(int, cudaGraphDestroy, void *graph) {
    free(graph);
    return OK;
}
API(int, cudaGraphExecDestroy, void *graph) {
    free(graph);
    return OK;
}
