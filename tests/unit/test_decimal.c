/* Failures point to web/wasm/decimal.h: its doubles must be those of the C library, bit for bit. */
#include "../../web/wasm/decimal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int passed, failed;
static bool is_right = true;

/* Ends a group of texts. */
static void group(const char *name) {
    if (is_right)
        passed++;
    else
        failed++, printf("FAIL %s\n", name);
    is_right = true;
}

static void same(const char *text) {
    char *end_is, *end_expected;
    double is = decimal_read(text, &end_is), expected = strtod(text, &end_expected);
    if (memcmp(&is, &expected, sizeof is) == 0 && end_is == end_expected) return;
    is_right = false;
    printf("FAIL \"%.60s\": %.17g, %td characters; expected %.17g, %td\n", text, is, end_is - text, expected,
           end_expected - text);
}

/* xorshift64 */
static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double any_double(void) {
    uint64_t bits;
    double value;
    do {
        bits = next();
        memcpy(&value, &bits, sizeof value);
    } while ((bits >> 52 & 0x7ff) == 0x7ff);
    return value;
}

/* Halfway between neighbours, exactly, and a digit more or less. */
static void test_halfway(void) {
    char text[1200];
    for (int i = 0; i < 300; i++) {
        uint64_t bits = (uint64_t)(i % 2 ? 1 + next() % 40 : next() % 2046) << 52 | (next() >> 12);
        if (i % 5 == 0) bits &= ((uint64_t)1 << 52) - 1; /* below the normal ones */
        double low, high;
        memcpy(&low, &bits, sizeof low);
        bits++;
        memcpy(&high, &bits, sizeof high);
        long double middle = ((long double)low + (long double)high) / 2;
        int length = snprintf(text, sizeof text - 2, "%.1100Le", middle);
        if (length <= 0 || length >= (int)sizeof text - 2) abort();
        char *e = strchr(text, 'e'), tail[16], last[1200];
        snprintf(tail, sizeof tail, "%s", e);
        for (const char *more = "09"; *more; more++) {
            snprintf(last, sizeof last, "%.*s%c%s", (int)(e - text) - 300, text, *more, tail);
            same(last);
        }
        same(text);
        e[-1] = '1';
        same(text);
    }
}

int main(void) {
    static const char *const texts[] = {
        "0",
        "-0",
        "1",
        "-1",
        "0.1",
        "1e5",
        "1E+5",
        "1e-05",
        "10000.0",
        "500000",
        "1.",
        ".5",
        "-.5e1",
        "",
        "-",
        "+",
        ".",
        "e5",
        "1e",
        "1e+",
        "1e-x",
        "12abc",
        "1.2.3",
        "00012",
        "0.000",
        "0e99999",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "9007199254740995",
        "1e22",
        "1e23",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e309",
        "1e400",
        "1e99999999999",
        "-1e99999999999",
        "2.2250738585072014e-308",
        "2.2250738585072011e-308",
        "4.9406564584124654e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1e-324",
        "1e-400",
        "1e-99999999999",
        "0.000001e6",
        "123456789012345678901234567890",
        "179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017"
        "977"
        "587207096330286416692887910946555547851940402630657488671505820681908902000708383676273854"
        "845"
        "817711531764475730270069855571366959622842914819860834936475292719074168444365510704342711"
        "559"
        "699508093042880177904174497792",
    };
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) same(texts[i]);
    group("edges");
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "%.*g", 1 + (int)(next() % 20), any_double());
        same(text);
        snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64 "e%d", next() >> next() % 64, next() >> next() % 64,
                 (int)(next() % 60) - 30);
        same(text);
    }
    group("any doubles");
    test_halfway();
    group("halfway between neighbours");
    char *zeros = malloc(4000);
    if (!zeros) abort();
    memset(zeros, '0', 3999);
    zeros[3999] = 0;
    zeros[0] = '1'; /* 10^3998 */
    same(zeros);
    zeros[1] = '.', zeros[3998] = '1';
    same(zeros);
    zeros[0] = '0', zeros[300] = '7';
    same(zeros);
    group("long texts");
    free(zeros);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
