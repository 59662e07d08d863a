/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a description without running it. */
#ifndef TIDE_TRAIN_LINT_H
#define TIDE_TRAIN_LINT_H

#include "base/diagnostics.h"
#include "base/json_write.h"

/* Writes {"errors": N, "found": [{"severity", "place", "line", "column", "message", "remedy"}]}: what of the text is no
 * JSON, no description, no statement of the language, or a name that means nothing. */
void tide_write_lint(tide_writer *writer, tide_arena *arena, tide_text text);

#endif
