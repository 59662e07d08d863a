/* SPDX-License-Identifier: Apache-2.0 */
/* What freed tensors, for groups of equal allocations. */
#ifndef TIDE_REPORT_FREEING_H
#define TIDE_REPORT_FREEING_H

#include "report/allocations.h"

enum { TIDE_FREEING_KINDS = 8 };

/* The first kinds found, with an example and the number of allocations for each. */
typedef struct tide_freeings {
    uint32_t examples[TIDE_FREEING_KINDS], counts[TIDE_FREEING_KINDS], kinds, others;
} tide_freeings;

void tide_freeings_add(tide_freeings *f, const tide_run *run, uint32_t allocation);

/* "freed": an array of {"by", "op", "module", "line", "count"}, most allocations first. `by` is one of
 * tide_freed_by_names, or "other" for further kinds; there is no op for assignments and returns, and nothing else for
 * what is alive at the end of the run. Modules are patterns ("layers.*.mlp") if there are several. */
void tide_write_freed(tide_writer *w, const tide_run *run, tide_freeings *f);

#endif
