/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting sizes. */
#ifndef TIDE_BASE_UNITS_H
#define TIDE_BASE_UNITS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/rounding.h"

/* "61.8 GiB", or "12 MiB" below 64 MiB; computed with integers only. */
const char *tide_gib(tide_arena *arena, uint64_t bytes);

/* GiB with one decimal, without the unit: "69.3". */
const char *tide_gib_digits(tide_arena *arena, uint64_t bytes);

/* "131,072". */
const char *tide_count_text(tide_arena *arena, int64_t count);

/* "512 MiB". */
const char *tide_mib(tide_arena *arena, uint64_t bytes);

#endif
