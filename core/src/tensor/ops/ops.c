/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all operations, and readers for their arguments. */
#include "tensor/ops/ops.h"

extern const tide_op_table tide_view_ops, tide_copy_ops, tide_cat_ops, tide_pointwise_ops, tide_reduce_ops,
    tide_linear_ops, tide_softmax_ops, tide_norm_ops, tide_attention_ops, tide_conv_ops, tide_index_ops, tide_sort_ops,
    tide_cached_ops, tide_transformer_engine_ops;

const tide_op_table *const tide_op_tables[TIDE_OP_TABLES] = {
    &tide_view_ops,   &tide_copy_ops,    &tide_cat_ops,    &tide_pointwise_ops,         &tide_reduce_ops,
    &tide_linear_ops, &tide_softmax_ops, &tide_norm_ops,   &tide_attention_ops,         &tide_conv_ops,
    &tide_index_ops,  &tide_sort_ops,    &tide_cached_ops, &tide_transformer_engine_ops};

const tide_op *tide_op_find(tide_text name) {
    for (int t = 0; t < TIDE_OP_TABLES; t++)
        for (uint32_t i = 0; i < tide_op_tables[t]->count; i++)
            if (name.length && *tide_op_tables[t]->ops[i].name == *name.at &&
                tide_text_is(name, tide_op_tables[t]->ops[i].name))
                return &tide_op_tables[t]->ops[i];
    return NULL;
}

static const char *const value_kind_names[] = {"none",    "a boolean", "an integer", "a number", "text",
                                               "a dtype", "a tensor",  "a list",     "a module", "a configuration"};

tide_tensor *tide_arg_tensor(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) return v.tensor;
    tide_fail(m, TIDE_ERR_SHAPE, "%s wants a tensor, not %s", m->op, value_kind_names[v.kind]);
    tide_shape scalar = {.dims = 0};
    return tide_empty_host(m, &scalar, TIDE_FP32); /* the arena frees it */
}

tide_tensor *tide_arg_tensor_or_none(tide_machine *m, tide_value v) {
    return v.kind == TIDE_VALUE_NONE ? NULL : tide_arg_tensor(m, v);
}

int64_t tide_arg_int(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_INT) return v.integer;
    tide_fail(m, TIDE_ERR_SHAPE, "%s wants an integer, not %s", m->op, value_kind_names[v.kind]);
    return 1;
}

bool tide_arg_bool(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_BOOL) return v.truth;
    tide_fail(m, TIDE_ERR_SHAPE, "%s wants true or false, not %s", m->op, value_kind_names[v.kind]);
    return false;
}

double tide_arg_number(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_FLOAT) return v.number;
    if (v.kind == TIDE_VALUE_INT) return (double)v.integer;
    tide_fail(m, TIDE_ERR_SHAPE, "%s wants a number, not %s", m->op, value_kind_names[v.kind]);
    return 0;
}

bool tide_arg_shape(tide_machine *m, tide_value v, tide_shape *shape) {
    if (v.kind == TIDE_VALUE_LIST) {
        for (uint32_t i = 0; i < v.list->count; i++)
            if (!tide_arg_shape(m, v.list->items[i], shape)) return false;
        return true;
    }
    if (shape->dims == TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d dimensions", TIDE_MAX_DIMS);
        return false;
    }
    int64_t size = tide_arg_int(m, v);
    if (size > INT64_C(1) << 60) {
        tide_fail(m, TIDE_ERR_OVERFLOW, "%s: a dimension of %lld is above 2^60", m->op, (long long)size);
        return false;
    }
    shape->dim[shape->dims].size = size;
    shape->dim[shape->dims++].name = v.symbol;
    return !m->has_failed;
}

tide_tensor *tide_empty_of(tide_machine *m, tide_dtype dtype, int dims, const int64_t *sizes) {
    tide_shape shape = {.dims = dims};
    for (int i = 0; i < dims; i++) shape.dim[i].size = sizes[i];
    return tide_empty(m, &shape, dtype);
}
