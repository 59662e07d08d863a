/* SPDX-License-Identifier: Apache-2.0 */
/* See harness.h. */
#include "harness.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int passed, failed;
static bool test_ok;
static const char *test_name;

void begin(const char *name) {
    test_name = name;
    test_ok = true;
}

void complain(int line, const char *format, ...) {
    va_list arguments;
    if (test_ok) printf("FAIL %s\n", test_name);
    test_ok = false;
    va_start(arguments, format);
    printf("     line %d: ", line);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

void end(void) {
    if (test_ok)
        passed++;
    else
        failed++;
}

void equal_at(int line, const char *what, uint64_t have, uint64_t want) {
    if (have != want) complain(line, "%s is %" PRIu64 ", want %" PRIu64, what, have, want);
}

int report_tests(void) {
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
