/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic: on overflow a function returns false and leaves *out unchanged. */
#ifndef TIDE_BASE_CHECKED_H
#define TIDE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool tide_add_i64(int64_t *out, int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool tide_sub_i64(int64_t *out, int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_sub_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool tide_mul_i64(int64_t *out, int64_t a, int64_t b) {
    int64_t r;
    if ((uint64_t)(a | b) >> 31 == 0) { /* WebAssembly would need a 128-bit product to check */
        *out = a * b;
        return true;
    }
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

#endif
