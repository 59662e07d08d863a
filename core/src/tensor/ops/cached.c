/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are created once per process: torch.empty() under functools.lru_cache, and buffers that only grow. */
#include <string.h>

#include "tensor/ops/ops.h"

/* A cached tensor, identified by name, dtype and, except for buffers, shape. */
struct tide_cached {
    tide_text name;
    tide_tensor *tensor; /* owned */
    struct tide_cached *next;
};

static bool factor_named(tide_text name, tide_factor *factor) {
    for (unsigned i = 0; i < TIDE_FACTOR_COUNT; i++)
        if (tide_text_is(name, tide_factor_names[i])) {
            *factor = (tide_factor)i;
            return true;
        }
    return false;
}

static struct tide_cached *find_cached(const tide_machine *m, tide_text name, tide_dtype dtype,
                                       const tide_shape *shape) {
    struct tide_cached *c = m->cached;
    while (c && !(c->tensor->dtype == dtype && tide_text_equal(c->name, name) &&
                  (!shape || tide_same_shape(c->tensor->shape, shape))))
        c = c->next;
    return c;
}

/* Created by the first call; of_another: copied from a tensor of the same size, which is released. It outlives the
 * call, which therefore cannot be memoised. */
static tide_tensor *make(tide_machine *m, const tide_value *a, const tide_shape *shape, tide_dtype dtype) {
    tide_factor outside = m->state.factor;
    bool is_known = a[3].kind == TIDE_VALUE_TEXT && factor_named(a[3].text, &m->state.factor);
    if (!is_known) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s wants the name of a factor", m->op);
    tide_tensor *before = a[4].kind == TIDE_VALUE_BOOL && a[4].truth ? tide_empty(m, shape, dtype) : NULL;
    tide_tensor *made = tide_empty(m, shape, dtype);
    tide_release(m, before);
    m->state.factor = outside;
    return made;
}

static bool read_cached(tide_machine *m, const tide_value *a, tide_shape *shape, tide_dtype *dtype) {
    *shape = (tide_shape){.dims = 0};
    *dtype = a[2].kind == TIDE_VALUE_DTYPE ? a[2].dtype : TIDE_FP32;
    if (a[0].kind != TIDE_VALUE_TEXT) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s wants a name", m->op);
    return !m->has_failed && tide_arg_shape(m, a[1], shape);
}

static struct tide_cached *add_cached(tide_machine *m, tide_text name, tide_tensor *tensor) {
    struct tide_cached *c = TIDE_NEW(m->arena, struct tide_cached, 1);
    *c = (struct tide_cached){name, tensor, m->cached};
    return m->cached = c;
}

static tide_value op_cached_empty(tide_machine *m, tide_value *a) {
    tide_shape shape;
    tide_dtype dtype;
    if (!read_cached(m, a, &shape, &dtype)) return tide_none();
    struct tide_cached *c = find_cached(m, a[0].text, dtype, &shape);
    if (!c) c = add_cached(m, a[0].text, make(m, a, &shape, dtype));
    return tide_of_tensor(tide_alias(m, c->tensor));
}

/* megatron/core/utils.py: GlobalMemoryBuffer.get_tensor. */
static tide_value op_memory_buffer(tide_machine *m, tide_value *a) {
    tide_shape shape;
    tide_dtype dtype;
    if (!read_cached(m, a, &shape, &dtype)) return tide_none();
    tide_shape flat = tide_shape1((tide_dim){tide_count_of(&shape), 0});
    struct tide_cached *c = find_cached(m, a[0].text, dtype, NULL);
    if (!c)
        c = add_cached(m, a[0].text, make(m, a, &flat, dtype));
    else if (tide_count(c->tensor) < flat.dim[0].size) {
        tide_tensor *old = c->tensor;
        c->tensor = make(m, a, &flat, dtype);
        tide_release(m, old);
    }
    return tide_of_tensor(tide_view_as(m, c->tensor, tide_layout_of(m, &shape, NULL)));
}

static const tide_op cached_ops[] = {
    {"cached_empty", "name, *sizes, dtype=none, factor='workspace', of_another=false", TIDE_CAST_NONE, op_cached_empty},
    {"memory_buffer", "name, *sizes, dtype=none, factor='communication', of_another=false", TIDE_CAST_NONE,
     op_memory_buffer},
};
TIDE_OP_TABLE(cached)
