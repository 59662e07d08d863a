/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic that says when it overflows: each function returns false and leaves *out alone then. */
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
    if ((uint64_t)(a | b) >> 31 == 0) { /* WebAssembly would look for the overflow in a product of 128 bits */
        *out = a * b;
        return true;
    }
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

#endif
