/* SPDX-License-Identifier: Apache-2.0 */
/* tidemark's own recording format, documented in FORMAT.md. */
#ifndef TIDE_TRACE_FORMAT_H
#define TIDE_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define TIDE_RECORDING_MAGIC "TIDEREC1"

enum { TIDE_RECORDING_MAGIC_BYTES = 8, TIDE_BLOCK_HEADER = 8, TIDE_BLOCK_LIMIT = 32 << 10 };

/* X(letter, number of varints after it; if the first is a length, a text follows) */
#define TIDE_RECORDS(X)                                                                                                \
    X('H', 1) /* length: facts, a JSON object */                                                                       \
    X('F', 2) /* length, parent: a frame */                                                                            \
    X('a', 4) /* address, bytes, stream, stack */                                                                      \
    X('f', 1) /* address */                                                                                            \
    X('p', 1) /* address: freed, but waits for other streams */                                                        \
    X('c', 1) /* address: the wait is over */                                                                          \
    X('o', 4) /* free, bytes, stream, stack */                                                                         \
    X('S', 3) /* address, bytes, stream */                                                                             \
    X('s', 3)                                                                                                          \
    X('M', 3)                                                                                                          \
    X('U', 3)                                                                                                          \
    X('e', 0) /* empty_cache */                                                                                        \
    X('t', 1) /* microseconds, minus those of the last 't' in the block */                                             \
    X('m', 2) /* step, phase */                                                                                        \
    X('x', 1) /* bytes outside */                                                                                      \
    X('q', 6) /* allocated, reserved, their peaks, retries, ooms */                                                    \
    X('E', 0) /* the end */

/* CRC-32 as in zlib, PNG and gzip. */
uint32_t tide_crc32(const unsigned char *bytes, size_t length);

#endif
