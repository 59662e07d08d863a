/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: a range of addresses for each device, in which blocks are handed out at the lowest
 * address that fits.  The books of one run are shared by its processes (TIDEMARK_RUN/devices), so
 * that ranks on one GPU share its bytes. */
#define _GNU_SOURCE
#include "phantom.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Addresses of all devices, of which each has a part; pages cost nothing until they are written.  They lie below those
 * of programs and libraries.  A device's part is far larger than its memory: expandable segments reserve 9/8 of it for
 * each stream and pool (CUDACachingAllocator.cpp, ExpandableSegment). */
#define SPAN_FROM ((uintptr_t)0x100000000000)
#define SPAN_OF_ALL ((size_t)64 << 40)
#define SMALL_ALIGN ((size_t)512)

typedef struct block {
    char *at;
    size_t size;
    struct block *next;
} block;

typedef struct usage { /* of one device, by all processes of the run */
    _Atomic size_t in_use, peak;
} usage;

static struct device {
    char *base;
    block *used;     /* by address */
    size_t reserved; /* virtual addresses given out, from the end of the span */
    bool has_context;
} devices[MAX_DEVICES];

static size_t span; /* bytes of addresses of one device */
static usage own[MAX_DEVICES], *shared = own;
static pid_t owner; /* a fork's end is not this process's */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
_Thread_local int current_device;

void *handle(void) {
    return calloc(1, 4096);
}

static void share_books(void) {
    const char *run = getenv("TIDEMARK_RUN");
    char path[4096];
    if (!run || snprintf(path, sizeof path, "%s/devices", run) >= (int)sizeof path) return;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (ftruncate(file, sizeof own) == 0) {
        void *at = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) shared = at;
    }
    close(file);
}

static void book_open(void) {
    owner = getpid();
    share_books();
    span = SPAN_OF_ALL;
    while (span * (size_t)device_count() > SPAN_OF_ALL) span /= 2;
    for (int i = 0; i < device_count(); i++) {
        /* A fixed place, so that runs repeat; anywhere, if something is there. */
        char *wanted = (char *)SPAN_FROM + (size_t)i * span;
        devices[i].base =
            mmap(wanted, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (devices[i].base == MAP_FAILED) {
            fputs("tidemark: no address space for a phantom GPU; lift `ulimit -v`\n", stderr);
            _exit(3);
        }
        madvise(devices[i].base, span, MADV_DONTDUMP);
    }
}

static bool take(int device, size_t size) {
    size_t limit = card()->bytes, before = atomic_load(&shared[device].in_use), after;
    do {
        if (size > limit || before > limit - size) return false;
        after = before + size;
    } while (!atomic_compare_exchange_weak(&shared[device].in_use, &before, after));
    size_t peak = atomic_load(&shared[device].peak);
    while (after > peak && !atomic_compare_exchange_weak(&shared[device].peak, &peak, after)) {
    }
    return true;
}

static void give(int device, size_t size) {
    atomic_fetch_sub(&shared[device].in_use, size);
}

/* The first use of a device makes its context; with the lock not held, so that an observer may ask.
 */
static bool context_take(int device) {
    struct {
        void *context;
        int device;
    } parameters = {NULL, device};
    announce_open();
    pthread_mutex_lock(&lock);
    bool is_new = !devices[device].has_context;
    if (is_new) devices[device].has_context = take(device, card()->context);
    bool has_context = devices[device].has_context;
    pthread_mutex_unlock(&lock);
    if (is_new && has_context) announce(386, "cuDevicePrimaryCtxRetain", &parameters, OK);
    return has_context;
}

static void contexts_leave(void) {
    for (int i = 0; i < device_count(); i++)
        if (devices[i].has_context) give(i, card()->context);
}

int device_use(int device) {
    if (device < 0 || device >= device_count()) {
        char text[96];
        snprintf(text, sizeof text, "GPU %d was asked for, of %d; --gpus gives more", device, device_count());
        note("phantom-device", text);
        return ERROR_INVALID_DEVICE;
    }
    current_device = device;
    return OK;
}

int device_malloc(void **out, size_t size) {
    pthread_once(&once, book_open);
    if (!out) return ERROR_INVALID_VALUE;
    *out = NULL;
    if (size == 0) return OK;
    if (size > span / 2) return ERROR_OUT_OF_MEMORY;
    struct device *d = &devices[current_device];
    size_t align = size >= MIB ? PAGE : SMALL_ALIGN, bytes = (size + align - 1) / align * align;
    int status = ERROR_OUT_OF_MEMORY;
    bool has_context = context_take(current_device);
    pthread_mutex_lock(&lock);
    if (has_context && take(current_device, bytes)) {
        uintptr_t at = (uintptr_t)d->base + PAGE;
        block **link = &d->used, *made = malloc(sizeof *made);
        for (; *link; link = &(*link)->next) {
            uintptr_t next = (uintptr_t)(*link)->at;
            if (next > at && next - at >= bytes) break;
            at = (next + (*link)->size + align - 1) / align * align;
        }
        if (made) {
            *made = (block){(char *)at, bytes, *link};
            *link = made;
            *out = made->at;
            status = OK;
        }
    }
    pthread_mutex_unlock(&lock);
    struct {
        void **made;
        size_t bytes;
    } parameters = {out, size};
    announce(243, "cuMemAlloc_v2", &parameters, status);
    return status;
}

int device_of(const void *at) {
    pthread_once(&once, book_open);
    for (int i = 0; i < device_count(); i++)
        if ((const char *)at >= devices[i].base && (const char *)at < devices[i].base + span) return i;
    return -1;
}

/* Unlinks the block at an address; NULL: there is none. */
static block *unlink_at(block **list, const void *at) {
    for (block **link = list; *link; link = &(*link)->next)
        if ((*link)->at == at) {
            block *found = *link;
            *link = found->next;
            return found;
        }
    return NULL;
}

int device_free(void *at) {
    if (!at) return OK;
    int device = device_of(at);
    if (device < 0) return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    block *found = unlink_at(&devices[device].used, at);
    if (found) {
        give(device, found->size);
        madvise(found->at, found->size, MADV_DONTNEED);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    if (found) announce(245, "cuMemFree_v2", &at, OK);
    return found ? OK : ERROR_INVALID_VALUE;
}

void device_memory(int device, size_t *free_bytes, size_t *total) {
    pthread_once(&once, book_open);
    context_take(device);
    size_t used = atomic_load(&shared[device].in_use);
    *total = card()->bytes;
    *free_bytes = used < *total ? *total - used : 0;
}

/* For the stand-in of NVML, which must not make a context. */
API(int, phantom_usage, int device, unsigned long long *total, unsigned long long *used) {
    pthread_once(&once, book_open);
    if (device < 0 || device >= device_count()) return ERROR_INVALID_DEVICE;
    *total = card()->bytes;
    *used = atomic_load(&shared[device].in_use);
    return OK;
}

/* A process that ends gives its memory back, however much of it is still taken. */
__attribute__((destructor)) static void book_close(void) {
    if (shared == own || owner != getpid()) return;
    contexts_leave();
    for (int i = 0; i < device_count(); i++)
        for (block *b = devices[i].used; b; b = b->next) give(i, b->size);
}

/* ---- virtual memory, as expandable segments use it ---- */

typedef struct physical {
    size_t size;
    int device;
} physical;

API(int, cuMemGetAllocationGranularity, size_t *bytes, const void *prop, int option) {
    *bytes = PAGE;
    return OK;
}

API(int, cuMemAddressReserve, uintptr_t *at, size_t size, size_t align, uintptr_t wanted, unsigned long long flags) {
    pthread_once(&once, book_open);
    size_t taken = (size + PAGE - 1) / PAGE * PAGE;
    struct device *d = &devices[current_device];
    pthread_mutex_lock(&lock);
    bool fits = taken < span / 2;
    /* Addresses come round again: nothing is kept behind them. */
    if (fits && taken > span / 2 - d->reserved) d->reserved = 0;
    if (fits) *at = (uintptr_t)d->base + span - (d->reserved += taken);
    pthread_mutex_unlock(&lock);
    return fits ? OK : ERROR_OUT_OF_MEMORY;
}

/* CUmemAllocationProp: type, handle types, then the location's type and number. */
API(int, cuMemCreate, unsigned long long *made, size_t size, const int *prop, unsigned long long flags) {
    pthread_once(&once, book_open);
    physical *p = malloc(sizeof *p);
    if (!p) return ERROR_OUT_OF_MEMORY;
    *p = (physical){size, prop ? prop[3] : current_device};
    bool fits = p->device >= 0 && p->device < device_count();
    fits = fits && context_take(p->device) && take(p->device, size);
    struct {
        unsigned long long *made;
        size_t bytes;
    } parameters = {made, size};
    if (fits)
        *made = (uintptr_t)p;
    else
        free(p);
    announce(549, "cuMemCreate", &parameters, fits ? OK : ERROR_OUT_OF_MEMORY);
    return fits ? OK : ERROR_OUT_OF_MEMORY;
}

API(int, cuMemRelease, unsigned long long made) {
    physical *p = (physical *)(uintptr_t)made;
    give(p->device, p->size);
    free(p);
    announce(550, "cuMemRelease", &made, OK);
    return OK;
}

API(int, cuMemMap, uintptr_t at, size_t size, size_t offset, unsigned long long made, unsigned long long flags) {
    return OK;
}
API(int, cuMemUnmap, uintptr_t at, size_t size) {
    madvise((void *)at, size, MADV_DONTNEED);
    return OK;
}
API(int, cuMemSetAccess, uintptr_t at, size_t size, const void *access, size_t count) {
    return OK;
}
API(int, cuMemAddressFree, uintptr_t at, size_t size) {
    return OK;
}

/* ---- page-locked host memory ---- */

static block *pinned;

static int pin(void *at, size_t size) {
    block *made = malloc(sizeof *made);
    if (!made) return ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *made = (block){at, size, pinned};
    pinned = made;
    pthread_mutex_unlock(&lock);
    return OK;
}

static bool unpin(const void *at) {
    pthread_mutex_lock(&lock);
    block *found = unlink_at(&pinned, at);
    pthread_mutex_unlock(&lock);
    free(found);
    return found != NULL;
}

bool is_pinned(const void *at) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (block *b = pinned; b && !found; b = b->next)
        found = (const char *)at >= b->at && (const char *)at < b->at + b->size;
    pthread_mutex_unlock(&lock);
    return found;
}

API(int, cudaHostAlloc, void **out, size_t size, unsigned flags) {
    if (posix_memalign(out, 4096, size ? size : 1)) return ERROR_OUT_OF_MEMORY;
    return pin(*out, size ? size : 1);
}
API(int, cudaMallocHost, void **out, size_t size) {
    return cudaHostAlloc(out, size, 0);
}
API(int, cudaFreeHost, void *at) {
    if (unpin(at)) free(at);
    return OK;
}
API(int, cudaHostGetDevicePointer, void **out, void *at, unsigned flags) { /* one address space */
    if (!is_pinned(at)) return ERROR_INVALID_VALUE;
    *out = at;
    return OK;
}
API(int, cudaHostRegister, void *at, size_t size, unsigned flags) {
    return pin(at, size);
}
API(int, cudaHostUnregister, void *at) {
    unpin(at);
    return OK;
}

/* ---- copies ---- */

/* Asked for what a small read from the device finds: a value, or -1 for what is there.  It also
 * hears of larger reads, whose answer is not used. */
typedef long long reader(size_t size);
static reader *reads;

API(void, phantom_on_read, reader *function) {
    reads = function;
}

void copy(void *to, const void *from, size_t size) {
    bool to_device = device_of(to) >= 0, from_device = device_of(from) >= 0;
    if (from_device && !to_device && reads) {
        long long answer = reads(size);
        if (answer >= 0 && size <= sizeof answer) {
            memcpy(to, &answer, size); /* little-endian: the low bytes */
            return;
        }
    }
    if (size <= COPY_LIMIT || (!to_device && !from_device))
        memmove(to, from, size);
    else if (!to_device)
        memset(to, 0, size);
}
