/* SPDX-License-Identifier: Apache-2.0 */
/* Events per second of the caching allocator.
 *
 *     bench_allocator [FILE.jsonl.gz...]
 *
 * Plays a synthetic transformer training step, recorded event streams if files are given, and a mix
 * that is hard on the free sets, five times 0.3 s each, and prints the best of each. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "../../core/src/allocator/caching_allocator.h"

static uint64_t host_bytes, host_peak;

static void *bench_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    if (new_size == 0) {
        free(ptr);
        host_bytes -= old_size;
        return NULL;
    }
    void *moved = realloc(ptr, new_size);
    if (!moved) return NULL;
    host_bytes += new_size - old_size;
    if (host_bytes > host_peak) host_peak = host_bytes;
    return moved;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- programs: allocations into slots and frees of slots ---- */

typedef struct op {
    uint64_t bytes; /* 0: free */
    uint32_t slot, stream;
} op;

typedef struct program {
    op *ops;
    size_t count, capacity;
    uint32_t slots;
} program;

static void emit(program *p, uint64_t bytes, uint32_t slot, uint32_t stream) {
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? p->capacity * 2 : 4096;
        p->ops = realloc(p->ops, p->capacity * sizeof *p->ops);
        if (!p->ops) abort();
    }
    p->ops[p->count++] = (op){bytes, slot, stream};
    if (slot >= p->slots) p->slots = slot + 1;
}

/* What is live at the end is freed, so that a program can be played again and again. */
static void close_program(program *p) {
    unsigned char *live = calloc(p->slots + 1, 1);
    size_t count = p->count;
    for (size_t i = 0; i < count; i++) live[p->ops[i].slot] = p->ops[i].bytes != 0;
    for (uint32_t s = p->slots; s-- > 0;)
        if (live[s]) emit(p, 0, s, 0);
    free(live);
}

/* 32 layers, batch x seq = 4096 tokens, hidden 4096, inner 11008, bf16: activations kept by the
 * forward pass, freed in reverse by the backward pass, with temporaries and a 32 MiB workspace
 * around every matrix product. */
static program training_step(void) {
    program p = {0};
    const uint64_t hidden = UINT64_C(4096) * 4096 * 2, inner = UINT64_C(4096) * 11008 * 2, row = 4096 * 4,
                   ws = 32u << 20;
    uint32_t next = 1; /* slot 0: workspace */
    for (int layer = 0; layer < 32; layer++) {
        const uint64_t kept[] = {hidden, row, hidden, hidden, hidden, hidden, row * 32, hidden,
                                 hidden, row, hidden, inner,  inner,  inner,  hidden};
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            emit(&p, kept[i], next++, 0);
            if (i % 2) {
                emit(&p, ws, 0, 0);
                emit(&p, 0, 0, 0);
            }
            emit(&p, kept[i] * 2, 100000, 0);
            emit(&p, 512, 100001, 0);
            emit(&p, 0, 100000, 0);
            emit(&p, 0, 100001, 0);
        }
    }
    while (next-- > 1) {
        emit(&p, hidden, 100000, 0);
        emit(&p, ws, 0, 0);
        emit(&p, 0, 0, 0);
        emit(&p, inner, 100001, 0);
        emit(&p, 0, next, 0);
        emit(&p, 0, 100000, 0);
        emit(&p, 0, 100001, 0);
    }
    close_program(&p);
    return p;
}

/* 20000 live blocks of random sizes, replaced at random. */
static program random_mix(void) {
    program p = {0};
    uint64_t x = 1;
    unsigned char *live = calloc(20000, 1);
    for (int i = 0; i < 400000; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t slot = (uint32_t)((x >> 33) % 20000);
        uint64_t bytes = 1 + (x >> 20) % (x >> 62 ? 65536 : 3 << 20);
        emit(&p, live[slot] ? 0 : bytes, slot, 0);
        live[slot] = !live[slot];
    }
    free(live);
    close_program(&p);
    return p;
}

/* The allocations and frees of a recorded event stream. */
static program recorded_stream(const char *path) {
    program p = {0};
    static char line[1 << 16];
    static uint64_t addresses[1 << 16];
    uint32_t used = 0;
    gzFile file = gzopen(path, "rb");
    if (!file || !gzgets(file, line, sizeof line)) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    while (gzgets(file, line, sizeof line)) {
        char kind;
        uint64_t address, bytes = 0;
        uint32_t stream = 0, slot = 0;
        if (sscanf(line, "[\"%c\",%" SCNu64 ",%" SCNu64 ",%" SCNu32, &kind, &address, &bytes, &stream) < 2) break;
        if (kind != 'a' && kind != 'f') continue;
        uint64_t key = kind == 'a' ? 0 : address + 1;
        while (slot < used && addresses[slot] != key) slot++;
        if (slot == used) used++;
        if (used == sizeof addresses / sizeof *addresses) abort();
        addresses[slot] = kind == 'a' ? address + 1 : 0;
        emit(&p, kind == 'a' ? bytes : 0, slot, stream);
    }
    gzclose(file);
    close_program(&p);
    return p;
}

static void play_once(tide_caching_allocator *a, const program *p, tide_block *blocks) {
    for (size_t i = 0; i < p->count; i++) {
        const op *o = &p->ops[i];
        tide_caching_status status = o->bytes ? tide_caching_malloc(a, o->bytes, o->stream, &blocks[o->slot])
                                              : tide_caching_free(a, blocks[o->slot]);
        if (status != TIDE_CACHING_OK) abort();
    }
}

static void play(const char *name, program p, const char *text) {
    tide_caching_config config = {.memory = {bench_resize, NULL}, .device_bytes = (uint64_t)4096 << 30};
    tide_caching_allocator *a;
    tide_block *blocks = calloc(p.slots + 1, sizeof *blocks);
    host_bytes = host_peak = 0;
    if (!tide_alloc_conf_parse(&config.conf, TIDE_ALLOC_TORCH_MAIN, text, strlen(text), NULL)) abort();
    if (tide_caching_create(&a, &config) != TIDE_CACHING_OK) abort();
    double best = 0;
    for (int round = 0; round < 5; round++) {
        uint64_t events = 0;
        double start = now_s(), spent;
        do {
            play_once(a, &p, blocks);
            events += p.count;
            spent = now_s() - start;
        } while (spent < 0.3);
        if ((double)events / spent > best) best = (double)events / spent;
    }
    const char *broken = tide_caching_check(a);
    if (broken) {
        fprintf(stderr, "%s: %s\n", name, broken);
        exit(1);
    }
    printf("%-32s %-26s %6.1f M events/s  %7zu events  %" PRIu64 " KiB\n", name, text, best / 1e6, p.count,
           host_peak >> 10);
    tide_caching_destroy(a);
    free(blocks);
}

int main(int argc, char **argv) {
    program step = training_step(), mix = random_mix();
    play("training step", step, "");
    play("training step", step, "expandable_segments:True");
    play("random mix", mix, "");
    play("random mix", mix, "expandable_segments:True");
    for (int i = 1; i < argc; i++) {
        program p = recorded_stream(argv[i]);
        const char *slash = strrchr(argv[i], '/');
        play(slash ? slash + 1 : argv[i], p, "");
        free(p.ops);
    }
    free(step.ops);
    free(mix.ops);
    return 0;
}
