/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of JSON that were recorded, and the digests in them. */
#ifndef TEST_RECORDED_ROWS_H
#define TEST_RECORDED_ROWS_H

#include "base/json_read.h"

/* Calls `check` for each line of FOLDER/NAME, in memory of its own. False, and says why: a line is no JSON, or the file
 * cannot be read. */
bool each_recorded_row(const char *folder, const char *name, void (*check)(const tide_json *row, tide_arena *arena));

/* FNV-1a, 64 bits, from this on. */
#define DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t digest_more(uint64_t hash, const char *text);

#endif
