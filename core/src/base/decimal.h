/* SPDX-License-Identifier: Apache-2.0 */
/* Decimals with 12 digits after the point, without floating point. */
#ifndef TIDE_BASE_DECIMAL_H
#define TIDE_BASE_DECIMAL_H

#include "base/text.h"

/* A decimal in units of 10^-12. */
typedef enum tide_decimal { TIDE_DECIMAL_OK, TIDE_DECIMAL_NONE, TIDE_DECIMAL_FINE, TIDE_DECIMAL_LARGE } tide_decimal;
#define TIDE_PICO INT64_C(1000000000000)
tide_decimal tide_decimal_read(int64_t *pico, tide_text text);
const char *tide_decimal_text(tide_arena *arena, int64_t pico);

#endif
