/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a description without running it. */
#ifndef TIDE_TRAIN_LINT_H
#define TIDE_TRAIN_LINT_H

#include "base/diagnostics.h"
#include "base/json_write.h"

/* Writes {"errors": N, "found": [{"severity", "place", "line", "column", "message", "remedy"}]}: text that is not JSON,
 * not a description or not a statement of the language, and undefined names. */
void tide_write_lint(tide_writer *writer, tide_arena *arena, tide_text text);

#endif
