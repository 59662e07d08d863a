/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: which inputs are cast, and the weight cache (aten/src/ATen/autocast_mode.cpp: cached_cast). */
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

void tide_autocast_begin(tide_machine *m, tide_dtype dtype) {
    m->state.autocast_enabled = true;
    m->state.autocast_dtype = dtype;
}

void tide_autocast_end(tide_machine *m) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "autocast.__exit__");
    m->state.autocast_enabled = false;
    m->state.autocast_dtype = TIDE_AUTOCAST_DTYPE;
    for (uint32_t i = 0; i < m->cast_count; i++) {
        m->casts[i].from->cast = NULL;
        tide_release(m, m->casts[i].to);
        tide_release(m, m->casts[i].from);
    }
    m->cast_count = 0;
    tide_freeing_ends(m, before);
}

tide_tensor *tide_autocast_lower(tide_machine *m, tide_tensor *t) {
    if (!t) return NULL;
    if (!tide_dtype_is_float(t->dtype) || t->dtype == TIDE_FP64 || t->dtype == m->state.autocast_dtype)
        return tide_retain(t);
    if (t->cast) return tide_retain(t->cast);
    tide_tensor *cast = tide_to(m, t, m->state.autocast_dtype);
    /* Only weights are cached: fp32 leaves that require gradients and are not views. */
    if (t->dtype == TIDE_FP32 && t->requires_grad && t->is_leaf && !t->is_view) {
        TIDE_ROOM(m->arena, m->casts, m->cast_count, m->cast_capacity);
        m->casts[m->cast_count++] = (tide_cast){tide_retain(t), tide_retain(cast)};
        t->cast = cast;
    }
    return cast;
}

tide_tensor *tide_autocast_fp32(tide_machine *m, tide_tensor *t) {
    if (!t) return NULL;
    if (t->dtype != TIDE_FP16 && t->dtype != TIDE_BF16) return tide_retain(t);
    return tide_to(m, t, TIDE_FP32);
}
