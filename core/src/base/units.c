/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting sizes. */
#include "base/units.h"

#include <string.h>

#include <inttypes.h>

#include "base/text.h"

const char *tide_gib_digits(tide_arena *arena, uint64_t bytes) {
    uint64_t tenths = (bytes * 10 + (UINT64_C(1) << 29)) >> 30;
    return tide_format(arena, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

const char *tide_mib(tide_arena *arena, uint64_t bytes) {
    return tide_format(arena, "%" PRIu64 " MiB", (bytes + (UINT64_C(1) << 19)) >> 20);
}

const char *tide_gib(tide_arena *arena, uint64_t bytes) {
    if (bytes < UINT64_C(1) << 26) return tide_mib(arena, bytes);
    return tide_format(arena, "%s GiB", tide_gib_digits(arena, bytes));
}

const char *tide_count_text(tide_arena *arena, int64_t n) {
    const char *text = tide_format(arena, "%" PRId64, n % 1000);
    for (int64_t left = n; left >= 1000;) {
        text = tide_format(arena, "%03d%s", (int)(left % 1000), strchr(text, ',') ? strchr(text, ',') : "");
        left /= 1000;
        text = tide_format(arena, "%" PRId64 ",%s", left % 1000, text);
    }
    return text;
}
