/* SPDX-License-Identifier: Apache-2.0 */
/* How the parameters of a model are sharded over tensor parallel ranks, from "tp_plan" of its description and of the
 * library, for PyTorch's parallelize_module() and for transformers' styles. Private to parallel/. */
#ifndef TIDE_PARALLEL_CUTS_H
#define TIDE_PARALLEL_CUTS_H

#include "parallel/parallel.h"

/* All entries for a scope, in order of precedence: by the name of a module, or the name (or class) of its parent and
 * its own. */
const tide_json *tide_cuts_of(tide_model *model, uint32_t scope);

typedef struct tide_cut {
    tide_text how;  /* "column", "row", "vocabulary", "sequence", ...; empty: not sharded */
    const char *of; /* the size with the number of units: "column of heads"; NULL: as many as rows */
} tide_cut;

tide_cut tide_cut_of(const tide_model *model, const tide_json *cuts, uint32_t instance);

/* Of a module's own parameters, (experts, rows, columns), by their names in the plan: 2 for "row", else 1. */
int tide_cut_dim(tide_model *model, const tide_parameter_row *row);

/* The same in transformers' styles, and for its experts under expert parallelism. */
typedef struct tide_styles {
    const tide_json *tp, *ep;
} tide_styles;
tide_styles tide_styles_of_cuts(tide_model *model, uint32_t scope);

#endif
