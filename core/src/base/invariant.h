/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions that hold unless the code is wrong: checked in debug and sanitizer builds, which define TIDE_CHECKS, and
 * known to clang's analyser. Input cannot violate them: bad input is a diagnostic. */
#ifndef TIDE_BASE_INVARIANT_H
#define TIDE_BASE_INVARIANT_H

#if defined(TIDE_CHECKS)
#include <stdio.h>
#include <stdlib.h>

/* A function, so that the condition stays an expression. */
static inline void tide_invariant(int holds, const char *what, const char *file, int line) {
    if (holds) return;
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, what);
    abort();
}
#define TIDE_INVARIANT(condition) tide_invariant((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#elif defined(__clang_analyzer__)
#define TIDE_INVARIANT(condition) ((condition) ? (void)0 : __builtin_unreachable())
#else
#define TIDE_INVARIANT(condition) ((void)0)
#endif

#endif
