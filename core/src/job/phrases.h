/* SPDX-License-Identifier: Apache-2.0 */
/* A job in words, "mistral 7b qlora on a 4090": read as a model of the catalogue and settings. Private to job/ and
 * api/. */
#ifndef TIDE_PHRASES_H
#define TIDE_PHRASES_H

#include "base/diagnostics.h"
#include "base/text.h"

/* The words of a request where those that are phrases are taken apart, and what they are read as is said. */
tide_text *tide_phrases_read(tide_arena *arena, const tide_text *words, uint32_t *count, tide_diagnostics *diags);

#endif
