/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of samples as text. Private to job/: job.h has what follows from them. */
#ifndef TIDE_JOB_LENGTHS_H
#define TIDE_JOB_LENGTHS_H

#include "job/job.h"

enum { TIDE_LENGTHS_MOST = 65536, TIDE_QUANTILES_MOST = 256, TIDE_LENGTH_MOST = 10000000 };

/* NULL, or the rule that is violated. Empty text: none are set. */
const char *tide_lengths_read(tide_arena *arena, tide_text text, tide_lengths *lengths);
/* As text with the same meaning. */
const char *tide_lengths_text(tide_arena *arena, const tide_lengths *lengths);

#endif
