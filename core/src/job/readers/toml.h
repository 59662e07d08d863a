/* SPDX-License-Identifier: Apache-2.0 */
/* Parses TOML 1.0 to the same tree as JSON. Private to readers. */
#ifndef TIDE_JOB_READERS_TOML_H
#define TIDE_JOB_READERS_TOML_H

#include "base/json_read.h"

enum { TIDE_TOML_LIMIT = 1 << 16 };

/* An object; NULL after an error at `place`. Dates and times become strings; infinities and NaN are refused, as are
 * arrays of tables. */
tide_json *tide_toml_parse(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);

#endif
