/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks of a pipeline may need the most memory.
 *
 * Note [Ranks of a pipeline]: the first rank has the embedding, the last the loss. A rank in between has at most as
 * many micro-batches in flight as the one before it, stage by stage, so it needs no more unless it has more layers of
 * some kind. If a rank's stages are placed in a V, those on the way back have more and more in flight: no rank stands
 * for another. */
#include "parallel/parallel.h"

static bool is_in_a_v(const tide_stages *s) {
    return s->chunks > 1 && s->of_rank[1] != s->ranks;
}

static bool covers(const tide_stages *s, uint32_t rank, uint32_t other) {
    for (uint32_t chunk = 0; chunk < s->chunks; chunk++) {
        const uint32_t *of_rank = &s->layers[s->of_rank[rank * s->chunks + chunk] * s->kinds],
                       *of_other = &s->layers[s->of_rank[other * s->chunks + chunk] * s->kinds];
        for (uint32_t kind = 0; kind < s->kinds; kind++)
            if (of_other[kind] > of_rank[kind]) return false;
    }
    return true;
}

uint32_t tide_ranks_of_stages(const tide_wrapper *w, int64_t *ranks) {
    const tide_stages *s = &w->stages;
    uint32_t count = 0;
    if (s->ranks < 2) return 0;
    for (uint32_t rank = 1; rank + 1 < s->ranks && count + 1 < TIDE_OTHER_RANKS; rank++) {
        bool is_covered = false;
        for (uint32_t i = 0; i < count && !is_covered; i++)
            is_covered = !is_in_a_v(s) && covers(s, (uint32_t)(ranks[i] / s->apart), rank);
        if (!is_covered) ranks[count++] = rank * s->apart;
    }
    ranks[count++] = (s->ranks - 1) * s->apart;
    return count;
}
