/* SPDX-License-Identifier: Apache-2.0 */
/* What lets go of tensors: of groups of allocations that are alike. */
#ifndef TIDE_REPORT_FREEING_H
#define TIDE_REPORT_FREEING_H

#include "report/allocations.h"

enum { TIDE_FREEING_KINDS = 8 };

/* The first kinds that were met, by an example each, and how many allocations are of each. */
typedef struct tide_freeings {
    uint32_t examples[TIDE_FREEING_KINDS], counts[TIDE_FREEING_KINDS], kinds, others;
} tide_freeings;

void tide_freeings_add(tide_freeings *f, const tide_run *run, uint32_t allocation);

/* "freed": an array, most allocations first, of {"by", "op", "module", "line", "count"}. `by` is one of
 * tide_freed_by_names, or "other" for what is not told apart; there is no op for names and returns, and nothing else
 * for what lives at the end of the run. Modules are patterns ("layers.*.mlp") where there are several. */
void tide_write_freed(tide_writer *w, const tide_run *run, tide_freeings *f);

#endif
