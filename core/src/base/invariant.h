/* SPDX-License-Identifier: Apache-2.0 */
/* What holds wherever the code is right: checked in debug and sanitizer builds, which define TIDE_CHECKS; known to
 * clang's analyser, nothing elsewhere. Input never breaks one: what input can do is a diagnostic. */
#ifndef TIDE_BASE_INVARIANT_H
#define TIDE_BASE_INVARIANT_H

#if defined(TIDE_CHECKS)
#include <stdio.h>
#include <stdlib.h>

/* A function, so that a condition is written as an expression. */
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
