/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of arrays, and rounding up. */
#ifndef TIDE_BASE_ROUNDING_H
#define TIDE_BASE_ROUNDING_H

#include <stdint.h>

#define TIDE_COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ATen/ceil_div.h, for any integers that are not negative; the second argument is read more than once. */
#define TIDE_CEIL_DIV(n, by) (((n) + (by)-1) / (by))
#define TIDE_ROUND_UP(n, to) (TIDE_CEIL_DIV(n, to) * (to))

/* The same for sums that may not fit. */
static inline int64_t tide_ceil_div(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

#endif
