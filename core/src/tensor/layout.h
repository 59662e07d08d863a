/* SPDX-License-Identifier: Apache-2.0 */
/* Dtypes, shapes and layouts. */
#ifndef TIDE_TENSOR_LAYOUT_H
#define TIDE_TENSOR_LAYOUT_H

#include <stdbool.h>

#include "allocator/allocator.h"

typedef enum tide_dtype {
#define TIDE_DTYPE(name, text, torch, bytes) TIDE_##name,
#include "tensor/dtype.def"
#undef TIDE_DTYPE
    TIDE_DTYPE_COUNT
} tide_dtype;

extern const char *const tide_dtype_names[TIDE_DTYPE_COUNT];
int64_t tide_dtype_bytes(tide_dtype dtype);
bool tide_dtype_is_float(tide_dtype dtype);
bool tide_dtype_named(tide_text name, tide_dtype *dtype); /* "bf16" or "bfloat16" */

enum { TIDE_MAX_DIMS = 8 };

/* Names of dimensions are indices into machine->symbols. */
typedef struct tide_shape {
    tide_dim dim[TIDE_MAX_DIMS];
    int dims;
} tide_shape;

/* A shape with strides and what follows from them. Layouts are unique within a machine, so that equal ones are the same
 * pointer. */
typedef struct tide_layout {
    tide_shape shape;
    int64_t stride[TIDE_MAX_DIMS]; /* elements */
    int64_t count;                 /* of elements; INT64_MAX if they are more than that */
    bool is_contiguous;
    bool is_canonical; /* contiguous, with the strides that torch.empty gives to dimensions of size 1 */
    bool is_dense;     /* non-overlapping and dense */
    uint32_t listed;   /* index of its dimensions in the timeline plus 1; 0: not yet there */
} tide_layout;

#endif
