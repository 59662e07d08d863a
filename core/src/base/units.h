/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: of arrays, rounded up, and as people read them. */
#ifndef TIDE_UNITS_H
#define TIDE_UNITS_H

#include <stdint.h>

#include "base/arena.h"

#define TIDE_COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ATen/ceil_div.h, for any integers that are not negative; the second argument is read more than once. */
#define TIDE_CEIL_DIV(n, by) (((n) + (by)-1) / (by))
#define TIDE_ROUND_UP(n, to) (TIDE_CEIL_DIV(n, to) * (to))

/* The same for sums that may not fit. */
static inline int64_t tide_ceil_div(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* "61.8 GiB", or below 64 MiB "12 MiB"; from integers alone. */
const char *tide_gib(tide_arena *arena, uint64_t bytes);

/* GiB with one digit, without the unit: "69.3". */
const char *tide_gib_digits(tide_arena *arena, uint64_t bytes);

/* "131,072". */
const char *tide_count_text(tide_arena *arena, int64_t count);

/* "512 MiB". */
const char *tide_mib(tide_arena *arena, uint64_t bytes);

#endif
