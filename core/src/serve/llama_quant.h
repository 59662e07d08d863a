/* SPDX-License-Identifier: Apache-2.0 */
/* The types that llama-quantize chooses. Private to serve/. */
#ifndef TIDE_SERVE_LLAMA_QUANT_H
#define TIDE_SERVE_LLAMA_QUANT_H

#include "serve/llama.h"

/* What the choice depends on, including counters: quantize_state_impl. */
typedef struct tide_llama_mix {
    const char *ftype; /* "Q4_K_M" */
    bool has_imatrix, is_tied, is_70b;
    int64_t group, experts, layers, values; /* query heads per key head; number of value tensors */
    int64_t seen_values, seen_downs, seen_ups, seen_gates;
} tide_llama_mix;

/* The type of a tensor; called in the order of layers. NULL: there is no such ftype. `dims`: dimensions; `matrices`:
 * the third. */
const tide_ggml_type *tide_llama_type_of(tide_llama_mix *mix, tide_text name, int64_t layer, int64_t columns, int dims,
                                         int64_t matrices);

#endif
