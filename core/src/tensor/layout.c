/* SPDX-License-Identifier: Apache-2.0 */
/* Properties that follow from shapes, strides and dtypes alone. */
#include "tensor/tensor.h"

#include <stdio.h>

#include "base/checked.h"

const char *const tide_dtype_names[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) text,
#include "tensor/dtype.def"
#undef TIDE_DTYPE
};

static const uint8_t dtype_bytes[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) (bytes),
#include "tensor/dtype.def"
#undef TIDE_DTYPE
};

int64_t tide_dtype_bytes(tide_dtype dtype) {
    return dtype_bytes[dtype];
}

bool tide_dtype_is_float(tide_dtype dtype) {
    return dtype >= TIDE_FP16;
}

bool tide_dtype_named(tide_text name, tide_dtype *dtype) {
    static const char *const of_torch[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) torch,
#include "tensor/dtype.def"
#undef TIDE_DTYPE
    };
    for (int i = 0; i < TIDE_DTYPE_COUNT; i++) {
        *dtype = (tide_dtype)i;
        if (tide_text_is(name, tide_dtype_names[i]) || tide_text_is(name, of_torch[i])) return true;
    }
    return false;
}

/* Saturates: a view may have more elements than 63 bits can count, which is an error once it is stored. */
static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return tide_mul_i64(&product, a, b) ? product : INT64_MAX;
}

int64_t tide_count_of(const tide_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->dims; i++) count = times(count, shape->dim[i].size);
    return count;
}

int64_t tide_bytes(const tide_tensor *t) {
    return times(t->layout->count, dtype_bytes[t->dtype]);
}

void tide_contiguous_strides(const tide_shape *shape, int64_t *stride) {
    int64_t next = 1;
    for (int i = shape->dims; i-- > 0;) {
        stride[i] = next;
        next = times(next, shape->dim[i].size > 1 ? shape->dim[i].size : 1);
    }
}

static bool is_contiguous(const tide_layout *l) {
    int64_t next = 1;
    for (int i = l->shape.dims; i-- > 0;) {
        if (l->shape.dim[i].size == 1) continue;
        if (l->stride[i] != next) return false;
        next = times(next, l->shape.dim[i].size);
    }
    return true;
}

/* c10/core/TensorImpl: is_non_overlapping_and_dense. */
static bool is_dense(const tide_layout *l) {
    int order[TIDE_MAX_DIMS], n = 0; /* dimensions larger than 1, by stride */
    for (int i = 0; i < l->shape.dims; i++) {
        if (l->shape.dim[i].size < 2) continue;
        int at = n++;
        for (; at > 0 && l->stride[order[at - 1]] > l->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t next = 1;
    for (int k = 0; k < n; k++) {
        if (l->stride[order[k]] != next) return false;
        next = times(next, l->shape.dim[order[k]].size);
    }
    return true;
}

static uint32_t layout_hash(const tide_shape *shape, const int64_t *stride) {
    uint64_t hash = (uint64_t)shape->dims;
    for (int i = 0; i < shape->dims; i++)
        hash = (hash ^
                ((uint64_t)shape->dim[i].size + ((uint64_t)shape->dim[i].name << 40) + ((uint64_t)stride[i] << 20))) *
               UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(hash >> 32);
}

static bool layout_is(const tide_layout *l, const tide_shape *shape, const int64_t *stride) {
    if (l->shape.dims != shape->dims) return false;
    for (int i = 0; i < shape->dims; i++)
        if (l->shape.dim[i].size != shape->dim[i].size || l->stride[i] != stride[i] ||
            l->shape.dim[i].name != shape->dim[i].name)
            return false;
    return true;
}

static uint32_t layout_slot(const tide_machine *m, const tide_shape *shape, const int64_t *stride) {
    uint32_t mask = m->layout_slot_count - 1, at = layout_hash(shape, stride) & mask;
    while (m->layout_slots[at] && !layout_is(m->layout_slots[at], shape, stride)) at = (at + 1) & mask;
    return at;
}

tide_layout *tide_layout_of(tide_machine *m, const tide_shape *shape, const int64_t *stride) {
    int64_t canonical[TIDE_MAX_DIMS];
    if (!stride) tide_contiguous_strides(shape, canonical);
    const int64_t *wanted = stride ? stride : canonical;
    uint32_t slot = layout_slot(m, shape, wanted);
    if (m->layout_slots[slot]) return m->layout_slots[slot];
    tide_layout *made = TIDE_NEW(m->arena, tide_layout, 1);
    made->shape.dims = shape->dims;
    for (int i = 0; i < shape->dims; i++) {
        made->shape.dim[i] = shape->dim[i];
        made->stride[i] = wanted[i];
    }
    made->count = tide_count_of(shape);
    made->is_contiguous = is_contiguous(made);
    made->is_dense = made->is_contiguous || is_dense(made);
    tide_contiguous_strides(shape, canonical);
    made->is_canonical = memcmp(canonical, made->stride, sizeof *canonical * (size_t)shape->dims) == 0;
    m->layout_slots[slot] = made;
    if (++m->layout_count * 2 > m->layout_slot_count) {
        tide_layout **old = m->layout_slots;
        uint32_t count = m->layout_slot_count;
        m->layout_slot_count *= 2;
        m->layout_slots = TIDE_NEW(m->arena, tide_layout *, m->layout_slot_count);
        for (uint32_t i = 0; i < count; i++)
            if (old[i]) m->layout_slots[layout_slot(m, &old[i]->shape, old[i]->stride)] = old[i];
    }
    return made;
}

bool tide_same_shape(const tide_shape *a, const tide_shape *b) {
    if (a == b) return true;
    if (a->dims != b->dims) return false;
    for (int i = 0; i < a->dims; i++)
        if (a->dim[i].size != b->dim[i].size) return false;
    return true;
}

const char *tide_shape_text(tide_machine *m, const tide_shape *shape) {
    char text[256];
    size_t length = 0;
    text[length++] = '[';
    for (int i = 0; i < shape->dims; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? ", " : "",
                                   (long long)shape->dim[i].size);
    text[length++] = ']';
    return tide_text_copy(m->arena, (tide_text){text, length});
}

tide_shape tide_shape1(tide_dim a) {
    tide_shape shape = {.dims = 1};
    shape.dim[0] = a;
    return shape;
}

tide_dim tide_dim_of(const tide_tensor *t, int dim) {
    return t->shape->dim[dim];
}

int tide_wrap_dim(tide_machine *m, int64_t dim, int dims) {
    int64_t limit = dims ? dims : 1;
    if (dim < -limit || dim >= limit) {
        tide_fail(m, TIDE_ERR_SHAPE, "dimension %lld of a tensor with %d", (long long)dim, dims);
        return 0;
    }
    return (int)(dim < 0 ? dim + limit : dim);
}

bool tide_broadcast(tide_machine *m, tide_shape *out, const tide_shape *a, const tide_shape *b) {
    tide_shape made = a->dims >= b->dims ? *a : *b;
    const tide_shape *shorter = a->dims >= b->dims ? b : a;
    for (int i = 0; i < shorter->dims; i++) {
        int at = made.dims - shorter->dims + i;
        if (made.dim[at].size == 1) {
            made.dim[at] = shorter->dim[i];
        } else if (shorter->dim[i].size != 1 && shorter->dim[i].size != made.dim[at].size) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", m->op, tide_shape_text(m, a),
                      tide_shape_text(m, b));
            return false;
        } else if (!made.dim[at].name) {
            made.dim[at].name = shorter->dim[i].name;
        }
    }
    *out = made;
    return true;
}

/* c10/core/ScalarType promoteTypes and ATen/native/TypeProperties result_type, for two tensors. */
static tide_dtype promote_types(tide_dtype a, tide_dtype b) {
    if (a == b) return a;
    if ((a == TIDE_FP16 && b == TIDE_BF16) || (a == TIDE_BF16 && b == TIDE_FP16)) return TIDE_FP32;
    if ((a == TIDE_UINT8 && b == TIDE_INT8) || (a == TIDE_INT8 && b == TIDE_UINT8)) return TIDE_INT32;
    return a > b ? a : b;
}

tide_dtype tide_promote(const tide_tensor *a, const tide_tensor *b) {
    bool a_counts = a->shape->dims > 0, b_counts = b->shape->dims > 0;
    int a_class = tide_dtype_is_float(a->dtype) ? 2 : a->dtype != TIDE_BOOL;
    int b_class = tide_dtype_is_float(b->dtype) ? 2 : b->dtype != TIDE_BOOL;
    if (a_counts && !b_counts && a_class >= b_class) return a->dtype;
    if (b_counts && !a_counts && b_class >= a_class) return b->dtype;
    return promote_types(a->dtype, b->dtype);
}

/* ---- strides of elementwise results: aten/src/ATen/TensorIterator.cpp ---- */

/* The stride of an input in dimension `dim` of the broadcast shape, 0 where it is broadcast. */
static int64_t broadcast_stride(const tide_tensor *t, const tide_shape *shape, int dim) {
    int at = dim - (shape->dims - t->shape->dims);
    if (at < 0 || (t->shape->dim[at].size == 1 && shape->dim[dim].size != 1)) return 0;
    return t->stride[at];
}

/* -1: dim0 is inner and stays; 1: they swap; 0: undecided (reorder_dimensions: should_swap). */
static int compare_dims(const tide_shape *shape, tide_tensor *const *inputs, int count, int dim0, int dim1) {
    for (int i = 0; i < count; i++) {
        int64_t s0 = broadcast_stride(inputs[i], shape, dim0);
        int64_t s1 = broadcast_stride(inputs[i], shape, dim1);
        if (s0 == 0 || s1 == 0) continue;
        if (s0 < s1) return -1;
        if (s0 > s1) return 1;
        if (shape->dim[dim0].size > shape->dim[dim1].size) return 1;
    }
    return 0;
}

tide_layout *tide_elementwise_layout(tide_machine *m, const tide_shape *shape, tide_tensor *const *inputs, int count) {
    bool all_same = true, all_contiguous = true;
    for (int i = 0; i < count; i++) {
        if (!tide_same_shape(inputs[i]->shape, shape))
            all_same = false;
        else if (!tide_is_contiguous(inputs[i]))
            all_contiguous = false;
    }
    if (all_same && all_contiguous) return tide_layout_of(m, shape, NULL);
    if (all_same && count > 0) { /* compute_fast_setup_type: equal dense strides are kept */
        bool equal = tide_is_dense(inputs[0]);
        for (int i = 1; equal && i < count; i++)
            for (int d = 0; equal && d < shape->dims; d++) equal = inputs[i]->stride[d] == inputs[0]->stride[d];
        if (equal) return tide_layout_of(m, shape, inputs[0]->stride);
    }
    int64_t stride[TIDE_MAX_DIMS];
    int order[TIDE_MAX_DIMS]; /* innermost first */
    for (int i = 0; i < shape->dims; i++) order[i] = shape->dims - 1 - i;
    for (int i = 1; i < shape->dims; i++) {
        int dim1 = i;
        for (int dim0 = i - 1; dim0 >= 0; dim0--) {
            int comparison = compare_dims(shape, inputs, count, order[dim0], order[dim1]);
            if (comparison > 0) {
                int swapped = order[dim0];
                order[dim0] = order[dim1];
                order[dim1] = swapped;
                dim1 = dim0;
            } else if (comparison < 0) {
                break;
            }
        }
    }
    int64_t next = 1;
    for (int i = 0; i < shape->dims; i++) {
        stride[order[i]] = next;
        next = times(next, shape->dim[order[i]].size > 1 ? shape->dim[order[i]].size : 1);
    }
    return tide_layout_of(m, shape, stride);
}
