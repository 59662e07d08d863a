/* SPDX-License-Identifier: Apache-2.0 */
/* How the parameters of a model are cut over tensor parallel ranks: what "tp_plan" of its description and of the
 * library says, for PyTorch's parallelize_module() and for transformers' styles. Private to parallel/. */
#ifndef TIDE_PARALLEL_CUTS_H
#define TIDE_PARALLEL_CUTS_H

#include "parallel/parallel.h"

/* All that is said for a scope, what goes before first: by the name of a module, or its parent's (or the parent's
 * class) and its own. */
const tide_json *tide_cuts_of(tide_model *model, uint32_t scope);

typedef struct tide_cut {
    tide_text how;  /* "column", "row", "vocabulary", "sequence", ...; empty: whole */
    const char *of; /* the size that says of how many such parts there are: "column of heads"; NULL: as many as rows */
} tide_cut;

tide_cut tide_cut_of(const tide_model *model, const tide_json *cuts, uint32_t instance);

/* The same in transformers' styles, and of its experts where they lie on ranks of their own. */
typedef struct tide_styles {
    const tide_json *tp, *ep;
} tide_styles;
tide_styles tide_styles_of_cuts(tide_model *model, uint32_t scope);

#endif
