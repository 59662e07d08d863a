/* SPDX-License-Identifier: Apache-2.0 */
/* Array sizes, rounding up, and greatest common divisors. */
#ifndef TIDE_BASE_ROUNDING_H
#define TIDE_BASE_ROUNDING_H

#include <stdint.h>

#define TIDE_COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ATen/ceil_div.h, for any non-negative integers; evaluates the second argument twice. */
#define TIDE_CEIL_DIV(n, by) (((n) + (by)-1) / (by))
#define TIDE_ROUND_UP(n, to) (TIDE_CEIL_DIV(n, to) * (to))

/* The same without overflow. */
static inline int64_t tide_ceil_div(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* The greatest common divisor of two non-negative integers; 1 for 0 and 0, so that it can divide. */
static inline int64_t tide_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a ? a : 1;
}

#endif
