/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a server whose engine allocates its buffers directly. Private to report/. */
#ifndef TIDE_REPORT_SERVING_BUFFERS_H
#define TIDE_REPORT_SERVING_BUFFERS_H

#include "base/json_write.h"
#include "report/serving_start.h"

/* How much of the GPU it takes, and how many requests it serves at once. */
const char *tide_buffers_sentence(const tide_serving *serving, tide_arena *arena);

/* "outcome", "weights", "tokens", and "buffers", each with a lower and an upper bound. */
void tide_write_buffers(tide_writer *writer, const tide_serving *serving);

#endif
