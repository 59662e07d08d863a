/* SPDX-License-Identifier: Apache-2.0 */
/* Block records of the caching allocator, and the sets of free blocks. Private to allocator/. */
#ifndef TIDE_ALLOCATOR_CACHING_BLOCKS_H
#define TIDE_ALLOCATOR_CACHING_BLOCKS_H

#include "allocator/caching_allocator.h"

/* Every block size is a multiple of this many bytes (kMinBlockSize). */
#define CACHING_MIN_BLOCK ((uint64_t)512)

/* CACHING_HOT: on the path of every malloc and free, inlined whatever the compiler estimates. CACHING_FETCH: into the
 * processor's cache, for what is read soon. */
#if defined(__GNUC__)
#define CACHING_HOT static inline __attribute__((always_inline))
#define CACHING_FETCH(record) __builtin_prefetch(record)
#else
#define CACHING_HOT static inline
#define CACHING_FETCH(record) ((void)(record))
#endif

enum {
    BLOCK_ALLOCATED = 1,
    BLOCK_UNMAPPED = 2, /* address space without memory, expandable ranges only */
    BLOCK_SMALL = 4,
    BLOCK_EXPANDABLE = 8,
    BLOCK_USED = 16 /* the record is a block, not a spare */
};

/* A part of one segment. Records are numbered from 1; 0 means none. One cache line. */
typedef struct caching_block {
    uint64_t address, size, requested;
    uint32_t free_since;  /* the pool's lookup count when the block became free (gc_count_base),
                             modulo 2^32 */
    uint32_t born;        /* number of the segment in order of creation; 0 where addresses decide alone */
    uint32_t prev, next;  /* neighbours by address in the segment */
    uint32_t left, right; /* in a free set or unmapped set; spare records are chained by left */
    uint32_t segment;
    uint32_t uses;   /* record_stream: first caching_use, while allocated */
    uint32_t events; /* outstanding events, after the free */
    uint16_t stream;
    uint8_t flags, unused;
} caching_block;

/* Free blocks of one pool and stream, ordered by (size, age of the segment, address). A bin covers a narrow range of
 * sizes (one size below 64 KiB, 1/64 of an octave above) and is a treap, which almost always has one or two nodes. */
enum { FREE_WORDS = 47, FREE_BINS = FREE_WORDS * 64 };
typedef struct free_set {
    uint64_t summary; /* bit w: words[w] is not 0 */
    uint64_t words[FREE_WORDS];
    uint32_t bins[FREE_BINS];
} free_set;

/* ---- treaps over block records ---- */

/* Note [Ties]
 * Among free blocks of one size PyTorch takes the one in the oldest segment, then the lowest
 * address: order (stream, size, counter, address), the counter given at cudaMalloc and at a new
 * expandable range (pytorch/pytorch#183591, 2026). Releases before it, 2.4 among them, take the
 * lowest address. Unmapped sets are by address. */
static inline bool tree_before(const caching_block *x, const caching_block *y, bool by_size) {
    if (by_size && x->size != y->size) return x->size < y->size;
    if (by_size && x->born != y->born) return x->born < y->born;
    return x->address < y->address;
}

static inline uint32_t tree_priority(uint32_t n) {
    n *= UINT32_C(0x9e3779b1);
    return n ^ n >> 15;
}

static inline void tree_insert(caching_block *b, uint32_t *link, uint32_t n, bool by_size) {
    while (*link && tree_priority(*link) >= tree_priority(n))
        link = tree_before(&b[n], &b[*link], by_size) ? &b[*link].left : &b[*link].right;
    uint32_t rest = *link, *below = &b[n].left, *above = &b[n].right;
    *link = n;
    while (rest) {
        if (tree_before(&b[rest], &b[n], by_size)) {
            *below = rest;
            below = &b[rest].right;
            rest = *below;
        } else {
            *above = rest;
            above = &b[rest].left;
            rest = *above;
        }
    }
    *below = *above = 0;
}

static inline void tree_remove(caching_block *b, uint32_t *link, uint32_t n, bool by_size) {
    while (*link != n) link = tree_before(&b[n], &b[*link], by_size) ? &b[*link].left : &b[*link].right;
    uint32_t x = b[n].left, y = b[n].right;
    while (x && y) {
        if (tree_priority(x) >= tree_priority(y)) {
            *link = x;
            link = &b[x].right;
            x = *link;
        } else {
            *link = y;
            link = &b[y].left;
            y = *link;
        }
    }
    *link = x ? x : y;
}

static inline uint32_t tree_first(const caching_block *b, uint32_t root) {
    while (root && b[root].left) root = b[root].left;
    return root;
}

static inline uint32_t tree_last(const caching_block *b, uint32_t root) {
    while (root && b[root].right) root = b[root].right;
    return root;
}

/* The first node after n, or the last before it. */
static inline uint32_t tree_after(const caching_block *b, uint32_t root, uint32_t n, bool by_size) {
    uint32_t found = 0;
    while (root) {
        bool is_after = tree_before(&b[n], &b[root], by_size);
        if (is_after) found = root;
        root = is_after ? b[root].left : b[root].right;
    }
    return found;
}

static inline uint32_t tree_ahead(const caching_block *b, uint32_t root, uint32_t n, bool by_size) {
    uint32_t found = 0;
    while (root) {
        bool is_ahead = tree_before(&b[root], &b[n], by_size);
        if (is_ahead) found = root;
        root = is_ahead ? b[root].right : b[root].left;
    }
    return found;
}

/* ---- free sets ---- */

static inline unsigned free_bin(uint64_t size) {
    uint64_t units = size / CACHING_MIN_BLOCK; /* sizes are below 2^61 */
    if (units < 64) return (unsigned)units;
    unsigned e = 63 - (unsigned)__builtin_clzll(units);
    return ((e - 5) << 6) + (unsigned)((units >> (e - 6)) & 63);
}

static inline void free_insert(free_set *set, caching_block *b, uint32_t n) {
    unsigned bin = free_bin(b[n].size);
    if (!set->bins[bin]) {
        set->bins[bin] = n;
        b[n].left = b[n].right = 0;
        set->words[bin / 64] |= (uint64_t)1 << bin % 64;
        set->summary |= (uint64_t)1 << bin / 64;
    } else {
        tree_insert(b, &set->bins[bin], n, true);
    }
}

static inline bool free_is_alone(const free_set *set, const caching_block *b, uint32_t n, unsigned bin) {
    return set->bins[bin] == n && !b[n].left && !b[n].right;
}

static inline void free_remove(free_set *set, caching_block *b, uint32_t n) {
    unsigned bin = free_bin(b[n].size);
    if (free_is_alone(set, b, n, bin))
        set->bins[bin] = 0;
    else
        tree_remove(b, &set->bins[bin], n, true);
    if (set->bins[bin]) return;
    set->words[bin / 64] &= ~((uint64_t)1 << bin % 64);
    if (!set->words[bin / 64]) set->summary &= ~((uint64_t)1 << bin / 64);
}

/* Changes the address and size of a block in the set; most stay in their bin. */
CACHING_HOT void free_move(free_set *set, caching_block *b, uint32_t n, uint64_t address, uint64_t size) {
    unsigned bin = free_bin(b[n].size);
    bool stays = bin == free_bin(size) && free_is_alone(set, b, n, bin);
    if (!stays) free_remove(set, b, n);
    b[n].address = address;
    b[n].size = size;
    if (!stays) free_insert(set, b, n);
}

/* The first block of the bins from `bin` on. */
static inline uint32_t free_from_bin(const free_set *set, const caching_block *b, unsigned bin) {
    if (bin >= FREE_BINS) return 0;
    unsigned w = bin / 64;
    uint64_t word = set->words[w] & ~(uint64_t)0 << bin % 64;
    if (!word) {
        uint64_t rest = set->summary & ~(uint64_t)0 << w & ~((uint64_t)1 << w);
        if (!rest) return 0;
        w = (unsigned)__builtin_ctzll(rest);
        word = set->words[w];
    }
    return tree_first(b, set->bins[w * 64 + (unsigned)__builtin_ctzll(word)]);
}

/* The smallest block of at least `size`; ties as in Note [Ties]. */
CACHING_HOT uint32_t free_find(const free_set *set, const caching_block *b, uint64_t size) {
    unsigned bin = free_bin(size);
    uint32_t found = 0;
    for (uint32_t n = set->bins[bin]; n;) {
        bool fits = b[n].size >= size;
        if (fits) found = n;
        n = fits ? b[n].left : b[n].right;
    }
    return found ? found : free_from_bin(set, b, bin + 1);
}

static inline uint32_t free_after(const free_set *set, const caching_block *b, uint32_t n) {
    unsigned bin = free_bin(b[n].size);
    uint32_t found = tree_after(b, set->bins[bin], n, true);
    return found ? found : free_from_bin(set, b, bin + 1);
}

static inline uint32_t free_last(const free_set *set, const caching_block *b) {
    if (!set->summary) return 0;
    unsigned w = 63 - (unsigned)__builtin_clzll(set->summary);
    return tree_last(b, set->bins[w * 64 + 63 - (unsigned)__builtin_clzll(set->words[w])]);
}

static inline uint32_t free_ahead(const free_set *set, const caching_block *b, uint32_t n) {
    unsigned bin = free_bin(b[n].size), w = bin / 64;
    uint32_t found = tree_ahead(b, set->bins[bin], n, true);
    if (found) return found;
    uint64_t word = set->words[w] & (((uint64_t)1 << bin % 64) - 1);
    if (!word) {
        uint64_t rest = set->summary & (((uint64_t)1 << w) - 1);
        if (!rest) return 0;
        w = 63 - (unsigned)__builtin_clzll(rest);
        word = set->words[w];
    }
    return tree_last(b, set->bins[w * 64 + 63 - (unsigned)__builtin_clzll(word)]);
}

#endif
