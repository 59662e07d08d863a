/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing decimals exactly. */
#include "base/decimal.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

/* Digits with a point and an exponent; TIDE_DECIMAL_FINE if that needs more than 12 decimals. */
tide_decimal tide_decimal_read(int64_t *pico, tide_text text) {
    size_t i = 0;
    bool is_negative = false, has_point = false, has_digit = false;
    int64_t mantissa = 0, exponent = 12, stated = 0;
    if (i < text.length && (text.at[i] == '-' || text.at[i] == '+')) is_negative = text.at[i++] == '-';
    for (; i < text.length; i++) {
        char c = text.at[i];
        if (c == '.' && !has_point) {
            has_point = true;
        } else if (c >= '0' && c <= '9') {
            has_digit = true;
            if (mantissa > (INT64_MAX - 9) / 10) {
                if (c != '0' || !has_point) return has_point ? TIDE_DECIMAL_FINE : TIDE_DECIMAL_LARGE;
                continue;
            }
            mantissa = mantissa * 10 + (c - '0');
            if (has_point) exponent--;
        } else {
            break;
        }
    }
    if (!has_digit) return TIDE_DECIMAL_NONE;
    if (i < text.length) {
        if (text.at[i] != 'e' && text.at[i] != 'E') return TIDE_DECIMAL_NONE;
        if (!tide_text_to_i64(&stated, (tide_text){text.at + i + 1, text.length - i - 1})) return TIDE_DECIMAL_NONE;
        if (stated > 100) stated = 100;
        if (stated < -100) stated = -100;
    }
    exponent += stated;
    for (; exponent > 0 && mantissa; exponent--)
        if (!tide_mul_i64(&mantissa, mantissa, 10)) return TIDE_DECIMAL_LARGE;
    for (; exponent < 0 && mantissa; exponent++) {
        if (mantissa % 10) return TIDE_DECIMAL_FINE;
        mantissa /= 10;
    }
    *pico = is_negative ? -mantissa : mantissa;
    return TIDE_DECIMAL_OK;
}

const char *tide_decimal_text(tide_arena *arena, int64_t pico) {
    const char *sign = pico < 0 ? "-" : "";
    uint64_t size = pico < 0 ? 0 - (uint64_t)pico : (uint64_t)pico;
    char *text =
        tide_format(arena, "%s%" PRIu64 ".%012" PRIu64, sign, size / (uint64_t)TIDE_PICO, size % (uint64_t)TIDE_PICO);
    size_t length = strlen(text);
    while (text[length - 1] == '0') text[--length] = 0;
    if (text[length - 1] == '.') text[--length] = 0;
    return text;
}
