/* Decimal text to the nearest double, in little code: the C library's strtod computes with numbers
 * of 128 bits, which WebAssembly does not have and which would be a tenth of the module.
 *
 * The text is a whole number times a power of ten, so that the double is a quotient of two whole
 * numbers: 64 bits of it and whether anything is left decide the rounding. */
#ifndef TIDE_DECIMAL_H
#define TIDE_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    DECIMAL_LIMBS = 136,  /* 4352 bits: 10^1130 shifted by 64, and a number of 801 digits */
    DECIMAL_DIGITS = 800, /* 767 decide between neighbours; of what follows only whether it is 0 */
    DECIMAL_EXPONENT = 100000
};

/* A whole number, the lowest limb first. */
typedef struct decimal_whole {
    uint32_t limbs[DECIMAL_LIMBS];
} decimal_whole;

static void decimal_multiply(decimal_whole *x, uint32_t by, uint32_t plus) {
    uint64_t carry = plus;
    for (int i = 0; i < DECIMAL_LIMBS; i++) {
        carry += (uint64_t)x->limbs[i] * by;
        x->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static int decimal_bits(const decimal_whole *x) {
    for (int i = DECIMAL_LIMBS; i-- > 0;)
        if (x->limbs[i]) return i * 32 + 32 - __builtin_clz(x->limbs[i]);
    return 0;
}

static void decimal_double(decimal_whole *x, int times) {
    for (; times >= 31; times -= 31) decimal_multiply(x, 1u << 31, 0);
    decimal_multiply(x, 1u << times, 0);
}

static void decimal_halve(decimal_whole *x) {
    for (int i = 0; i + 1 < DECIMAL_LIMBS; i++) x->limbs[i] = x->limbs[i] >> 1 | x->limbs[i + 1] << 31;
    x->limbs[DECIMAL_LIMBS - 1] >>= 1;
}

/* x -= y where x is not less than y; false, and nothing done, where it is. */
static bool decimal_subtract(decimal_whole *x, const decimal_whole *y) {
    for (int i = DECIMAL_LIMBS; i-- > 0;) {
        if (x->limbs[i] > y->limbs[i]) break;
        if (x->limbs[i] < y->limbs[i]) return false;
    }
    int64_t borrow = 0;
    for (int i = 0; i < DECIMAL_LIMBS; i++) {
        borrow += (int64_t)x->limbs[i] - y->limbs[i];
        x->limbs[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return true;
}

/* The bits of the double nearest to q * 2^(top - 63), a little more if there is a rest; the highest
 * bit of q is 1. Halfway goes to the even one. */
static uint64_t decimal_round(uint64_t q, int top, bool has_rest) {
    if (top > 1023) return (uint64_t)0x7ff << 52;
    int drop = top >= -1022 ? 11 : 11 - 1022 - top;
    if (drop > 64) return 0;
    uint64_t kept = drop == 64 ? 0 : q >> drop, half = (uint64_t)1 << (drop - 1), below = q & (half | (half - 1));
    if (below > half || (below == half && (has_rest || (kept & 1)))) kept++;
    /* A carry out of the fraction goes on into the exponent. */
    return top >= -1022 ? ((uint64_t)(top + 1022) << 52) + kept : kept;
}

/* number * 10^exponent, number not 0. */
static uint64_t decimal_quotient(decimal_whole *number, int exponent) {
    decimal_whole divisor = {{1}};
    for (; exponent > 0; exponent--) decimal_multiply(number, 10, 0);
    for (; exponent < 0; exponent++) decimal_multiply(&divisor, 10, 0);
    /* After this shift the quotient has 63 or 64 bits. */
    int shift = 63 - (decimal_bits(number) - decimal_bits(&divisor));
    if (shift > 0)
        decimal_double(number, shift);
    else
        decimal_double(&divisor, -shift);
    decimal_double(&divisor, 63);
    uint64_t q = 0;
    for (int i = 0; i < 64; i++) {
        q = q << 1 | (decimal_subtract(number, &divisor) ? 1 : 0);
        decimal_halve(&divisor);
    }
    bool has_rest = decimal_bits(number) > 0;
    if (!(q >> 63)) q <<= 1, shift++;
    return decimal_round(q, 63 - shift, has_rest);
}

/* Up to 15 digits and 10^22 are doubles, and one operation with them is rounded once. */
static double decimal_short(uint64_t number, int exponent) {
    double power = 1, value = (double)number;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) power *= 10;
    return exponent < 0 ? value / power : value * power;
}

/* The digits from the first that is not 0, `digits` of them, with a point somewhere; what follows
 * is one more digit that is not 0, if there is anything. */
static double decimal_long(const char *at, int digits, int exponent, bool has_rest) {
    decimal_whole number = {{0}};
    uint64_t bits = 0;
    double result;
    if (digits + exponent > 310) {
        bits = (uint64_t)0x7ff << 52;
    } else if (digits + exponent > -326) {
        for (int i = 0; i < digits; at++) {
            if (*at == '.') continue;
            decimal_multiply(&number, 10, (uint32_t)(*at - '0'));
            i++;
        }
        if (has_rest) decimal_multiply(&number, 10, 1), exponent--;
        bits = decimal_quotient(&number, exponent);
    }
    memcpy(&result, &bits, sizeof result);
    return result;
}

static bool decimal_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* As strtod in the "C" locale, for what JSON and the description language write: an optional sign,
 * digits with an optional point, an optional exponent. */
static double decimal_read(const char *text, char **end) {
    const char *at = text, *first = text;
    int digits = 0, exponent = 0, power = 0; /* digits: from the first that is not 0 */
    bool is_negative = *at == '-', after_point = false, is_any = false, has_rest = false;
    uint64_t number = 0; /* of the first 15 digits */
    double value = 0;
    if (*at == '-' || *at == '+') at++;
    for (;; at++) {
        if (*at == '.' && !after_point) {
            after_point = true;
            continue;
        }
        if (!decimal_is_digit(*at)) break;
        is_any = true;
        if (after_point && exponent > -DECIMAL_EXPONENT) exponent--;
        if (digits == 0 && *at == '0') continue;
        if (digits == 0) first = at;
        if (digits < DECIMAL_DIGITS) {
            if (digits < 15) number = number * 10 + (uint64_t)(*at - '0');
            digits++;
        } else {
            if (exponent < DECIMAL_EXPONENT) exponent++;
            if (*at != '0') has_rest = true;
        }
    }
    if (!is_any) at = text;
    if (is_any && (*at == 'e' || *at == 'E')) {
        const char *sign = at + 1, *from = sign + (*sign == '-' || *sign == '+');
        for (at = decimal_is_digit(*from) ? from : at; decimal_is_digit(*at); at++)
            if (power < DECIMAL_EXPONENT) power = power * 10 + (*at - '0');
        exponent += *sign == '-' ? -power : power;
    }
    if (end) *end = (char *)(uintptr_t)at;
    if (digits > 0 && digits <= 15 && exponent >= -22 && exponent <= 22)
        value = decimal_short(number, exponent);
    else if (digits > 0)
        value = decimal_long(first, digits, exponent, has_rest);
    return is_negative && is_any ? -value : value;
}

#endif
