/* SPDX-License-Identifier: Apache-2.0 */
/* How flash attention splits its keys: cuda/flash_attn/flash_api.cpp. */
#include "tensor/ops/ops.h"

#include "base/units.h"

/* num_splits_heuristic with twice the number of SMs; 1 unless so few blocks would leave the device idle. */
int64_t tide_flash_splits(tide_machine *m, int64_t heads, int64_t queries, int64_t keys, int64_t width) {
    int64_t key_block = width <= 64 ? 256 : width <= 128 ? 128 : 64;
    int64_t key_blocks = TIDE_CEIL_DIV(keys, key_block), same_keys = key_blocks * key_block - keys;
    if (same_keys < m->same_keys) m->same_keys = same_keys;
    int64_t blocks = heads * ((queries + 63) / 64), sms = 2 * (int64_t)m->device.sms;
    if (10 * blocks >= 8 * sms) return 1;
    int64_t most = key_blocks < sms ? key_blocks : sms, best = 0;
    most = most < 128 ? most : 128;
    int64_t efficiency[129] = {0}; /* parts in 2^20 */
    for (int64_t n = 1; n <= most; n++) {
        bool is_eligible = n == 1 || TIDE_CEIL_DIV(key_blocks, n) != TIDE_CEIL_DIV(key_blocks, n - 1);
        if (!is_eligible) continue;
        int64_t waves = TIDE_CEIL_DIV(blocks * n, sms);
        efficiency[n] = (blocks * n << 20) / (waves * sms);
        if (efficiency[n] > best) best = efficiency[n];
    }
    for (int64_t n = 1; n <= most; n++)
        if (efficiency[n] && 100 * efficiency[n] >= 85 * best) return n;
    return 1;
}
