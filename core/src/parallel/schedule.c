/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline schedules, by the rules of the frameworks. */
#include "parallel/schedule.h"

void tide_schedule_table(tide_schedule_entry *table, uint32_t microbatches, uint32_t chunks, uint32_t group) {
    uint32_t n = 0;
    for (uint32_t first = 0; first < microbatches; first += group) {
        uint32_t end = first + group < microbatches ? first + group : microbatches;
        for (uint32_t chunk = 0; chunk < chunks; chunk++)
            for (uint32_t i = first; i < end; i++) table[n++] = (tide_schedule_entry){i, chunk};
    }
}

uint32_t tide_schedule_warmup(uint32_t pp, uint32_t pp_rank, uint32_t microbatches, uint32_t chunks, uint32_t group,
                              bool is_interleaved) {
    uint64_t after = pp - pp_rank - 1, total = (uint64_t)microbatches * chunks,
             warmup = is_interleaved ? 2 * after + (uint64_t)(chunks - 1) * group : after;
    return (uint32_t)(warmup < total ? warmup : total);
}
