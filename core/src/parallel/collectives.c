/* What several strategies send, and in which pieces. */
#include "parallel.h"

#include <string.h>

static const tide_strategy *const strategies[] = {&tide_ddp};

const tide_strategy *tide_strategy_find(const char *kind) {
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (strcmp(strategies[i]->kind, kind) == 0) return strategies[i];
    return NULL;
}

tide_tensor *tide_flat_of(tide_machine *m, const char *op, int64_t count, tide_dtype dtype, tide_factor factor) {
    tide_factor outside = m->factor;
    m->factor = factor;
    m->op = op;
    tide_tensor *made = tide_flat(m, count, dtype);
    m->factor = outside;
    return made;
}

uint32_t tide_cut_buckets(tide_machine *m, tide_tensor *const *tensors, uint32_t count, const int64_t *limits, uint32_t limit_count,
                          bool is_sorted, uint32_t *bucket_of) {
    struct {
        int64_t bytes;
        uint32_t limit, bucket;
        bool is_open;
    } open[TIDE_DTYPE_COUNT];
    memset(open, 0, sizeof open);
    uint32_t provisional = 0, closed = 0;
    uint32_t *rank = TIDE_NEW(m->arena, uint32_t, count + 1); /* of provisional buckets: when they close */
    for (uint32_t i = 0; i < count; i++) {
        unsigned d = tensors[i]->dtype;
        if (!open[d].is_open) {
            open[d].is_open = true;
            open[d].bytes = 0;
            open[d].bucket = provisional++;
        }
        bucket_of[i] = open[d].bucket;
        open[d].bytes += tide_bytes(tensors[i]);
        if (open[d].bytes < limits[open[d].limit]) continue;
        rank[open[d].bucket] = closed++;
        open[d].is_open = false;
        if (open[d].limit + 1 < limit_count) open[d].limit++;
    }
    for (unsigned d = 0; d < TIDE_DTYPE_COUNT; d++)
        if (open[d].is_open) rank[open[d].bucket] = closed++;
    for (uint32_t i = 0; i < count && !is_sorted; i++) bucket_of[i] = rank[bucket_of[i]];
    return provisional;
}

void tide_broadcast_coalesced(tide_machine *m, const char *op, tide_tensor *const *tensors, uint32_t count) {
    enum { IN_FLIGHT = 2 };
    static const int64_t limit = INT64_C(250) << 20; /* torch/nn/parallel/distributed.py: broadcast_bucket_size */
    uint32_t *bucket_of = TIDE_NEW(m->arena, uint32_t, count + 1);
    uint32_t buckets = tide_cut_buckets(m, tensors, count, &limit, 1, true, bucket_of);
    tide_tensor *sent[IN_FLIGHT] = {NULL};
    for (uint32_t b = 0; b < buckets; b++) {
        int64_t elements = 0, members = 0;
        tide_dtype dtype = TIDE_FP32;
        for (uint32_t i = 0; i < count; i++) {
            if (bucket_of[i] != b) continue;
            elements += tide_count(tensors[i]);
            dtype = (tide_dtype)tensors[i]->dtype;
            members++;
        }
        sent[1] = members > 1 ? tide_flat_of(m, op, elements, dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
        tide_release_at(m, &sent[0]);
        sent[0] = sent[1];
    }
    tide_release(m, sent[0]);
}
