/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites of several checks a test share: a test is what stands between begin and end. */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <inttypes.h>
#include <stdint.h>

void begin(const char *name);
/* The test has failed, and why; printed under its name. */
void complain(int line, const char *format, ...);
void end(void);
/* Prints the last line of a suite; returns its exit code. */
int report_tests(void);

void equal_at(int line, const char *what, uint64_t have, uint64_t want);

#define CHECK(condition) ((condition) ? (void)0 : complain(__LINE__, "%s", #condition))
#define EQUAL(have, want) equal_at(__LINE__, #have, (have), (want))

#endif
