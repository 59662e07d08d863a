/* SPDX-License-Identifier: Apache-2.0 */
/* What operations share. They borrow their inputs; the caller owns their results. */
#ifndef TIDE_TENSOR_OPS_OPS_H
#define TIDE_TENSOR_OPS_OPS_H

#include "tensor/tensor.h"

/* ---- copy.c, view.c, cat.c ---- */
tide_tensor *tide_to(tide_machine *m, tide_tensor *x, tide_dtype dtype); /* x itself if it has that dtype */
tide_tensor *tide_clone(tide_machine *m, tide_tensor *x);                /* dense strides kept */
bool tide_is_tracked_view(const tide_tensor *x);                         /* a view that is part of the graph */
/* view += added, or view *= factor, which has no gradient, for a view that covers its base: the view afterwards. */
tide_tensor *tide_write_to_view(tide_machine *m, tide_tensor *view, tide_tensor *added, tide_tensor *factor);
tide_tensor *tide_contiguous(tide_machine *m, tide_tensor *x); /* x itself if it is */
tide_tensor *tide_view(tide_machine *m, tide_tensor *x,
                       const tide_shape *shape); /* fails if the strides do not allow it */
tide_tensor *tide_reshape(tide_machine *m, tide_tensor *x, const tide_shape *shape); /* a view or a copy */
tide_tensor *tide_transpose(tide_machine *m, tide_tensor *x, int64_t dim0, int64_t dim1);
tide_tensor *tide_permute(tide_machine *m, tide_tensor *x, const int64_t *order);
tide_tensor *tide_expand(tide_machine *m, tide_tensor *x, const tide_shape *shape); /* -1 keeps a size */
tide_tensor *tide_unsqueeze(tide_machine *m, tide_tensor *x, int64_t dim);
tide_tensor *tide_squeeze(tide_machine *m, tide_tensor *x, int64_t dim);
tide_tensor *tide_slice(tide_machine *m, tide_tensor *x, int64_t dim, tide_dim start, tide_dim stop);
tide_tensor *tide_every(tide_machine *m, tide_tensor *x, int64_t dim, int64_t start, int64_t step); /* x[start::step] */
tide_tensor *tide_select(tide_machine *m, tide_tensor *x, int64_t dim, int64_t index);
/* The backward of several views of one tensor, whose shape is the node's `extra`: their gradients are joined. */
extern const tide_backward tide_split_backward;
tide_tensor *tide_cat(tide_machine *m, tide_tensor **parts, int count, int64_t dim);
/* constant_pad_nd at the ends of `count` dimensions from `dim` on. */
tide_tensor *tide_pad(tide_machine *m, tide_tensor *x, const int64_t *after, int count, int dim);

/* A view of x with that shape and those strides, starting `offset` elements further, without a node. */
tide_tensor *tide_view_over(tide_machine *m, tide_tensor *x, const tide_shape *shape, const int64_t *stride,
                            int64_t offset);
/* x's shape and strides without a dimension. */
tide_shape tide_shape_without(const tide_tensor *x, int dim, int64_t *stride);
/* Reads the sizes of a view: numbers and lists of numbers; one may be -1: `unknown`. */
bool tide_read_sizes(tide_machine *m, tide_value v, tide_shape *shape, int *unknown);
/* A copy that is contiguous. */
tide_tensor *tide_clone_contiguous(tide_machine *m, tide_tensor *x);
/* The backward of an operation whose gradient is passed on unchanged. */
void tide_pass_grad(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results);

/* ---- conv.c ---- */
bool tide_suggests_channels_last(const tide_tensor *x); /* Tensor.suggest_memory_format() */
tide_tensor *tide_image_like(tide_machine *m, const tide_shape *shape, tide_dtype dtype, bool channels_last);

/* ---- pointwise.c ---- */
tide_tensor *tide_mul(tide_machine *m, tide_tensor *a, tide_tensor *b);
tide_tensor *tide_add(tide_machine *m, tide_tensor *a, tide_tensor *b);
tide_tensor *tide_scale(tide_machine *m, tide_tensor *a); /* by a Python scalar: one new tensor */
tide_tensor *tide_dropout(tide_machine *m, tide_tensor *x, double p, bool training);
/* An elementwise result on these inputs without a node. */
tide_tensor *tide_elementwise(tide_machine *m, tide_tensor *const *inputs, int count, tide_dtype dtype);

/* ---- linear.c ---- */
const char *tide_cpp_dtype(uint8_t dtype); /* as C++ calls it (c10/core/ScalarType.h): "c10::BFloat16" */
int64_t tide_gemm_workspace(const tide_machine *m);
int64_t tide_cublas_workspace(int capability);
tide_tensor *tide_matmul(tide_machine *m, tide_tensor *a, tide_tensor *b);
tide_tensor *tide_bmm(tide_machine *m, tide_tensor *a, tide_tensor *b);
tide_tensor *tide_linear(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias);
/* x.matmul(weight.t()) with the bias added in place; addmm for a matrix with a bias. */
tide_tensor *tide_linear_eager(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias);

/* Appends a dimension. */
void tide_push_dim(tide_shape *shape, tide_dim dim);
/* The product of the dimensions [from, to). */
tide_dim tide_joined_dims(tide_machine *m, const tide_shape *shape, int from, int to);

/* ---- einsum.c ---- */
tide_value tide_op_einsum(tide_machine *m, tide_value *arguments);

/* ---- reduce.c ---- */
/* A sum over the dimensions set in `mask`, with its scratch memory, without a node. */
tide_tensor *tide_sum_plain(tide_machine *m, const tide_tensor *x, unsigned mask, bool keepdim, tide_dtype dtype);
/* Only the scratch memory of a reduction over those dimensions, with partial results of so many bytes. */
void tide_reduction_scratch(tide_machine *m, const tide_tensor *x, unsigned mask, int64_t accumulator);

/* ---- index.c ---- */
/* The backward of gather(), and of other selections by index. */
void tide_gather_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results);

/* ---- sort.c ---- */
/* How CUB lays out its scratch memory (cub/util_temporary_storage.cuh, AliasTemporaries): each part takes a multiple of
 * 256 bytes, and 255 more bytes align the first. A part with a few counters takes one such multiple. */
enum { TIDE_CUB_PART = 256, TIDE_CUB_ALIGNING = TIDE_CUB_PART - 1 };
/* Scratch memory of a radix sort of so many int64 keys up to `limit`, with int64 values. */
int64_t tide_sort_scratch(int64_t n, int64_t limit);

/* ---- attention.c ---- */
tide_tensor *tide_empty_of(tide_machine *m, tide_dtype dtype, int dims, const int64_t *sizes);
#define TIDE_EMPTY(m, dtype, ...)                                                                                      \
    tide_empty_of((m), (dtype), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
/* The number of splits along the keys in flash attention without dropout; heads: of the whole batch. */
int64_t tide_flash_splits(tide_machine *m, int64_t heads, int64_t queries, int64_t keys, int64_t width);

/* ---- softmax.c ---- */
tide_tensor *tide_softmax(tide_machine *m, tide_tensor *x, int64_t dim);
/* repeat_interleave() of keys or values, (batch, heads, sequence, width), along their heads. */
tide_tensor *tide_repeat_heads(tide_machine *m, tide_tensor *x, int64_t times);
/* _safe_softmax: rows that are masked throughout are set to zero, in place. */
tide_tensor *tide_safe_softmax(tide_machine *m, tide_tensor *scores);

/* How autocast casts an operation's tensors (aten/src/ATen/autocast_mode.h): the last argument first, except in a list,
 * as of einsum, and where Python code casts them. */
typedef enum tide_cast_kind {
    TIDE_CAST_NONE,
    TIDE_CAST_LOWER,
    TIDE_CAST_LOWER_IN_ORDER,
    TIDE_CAST_FP32
} tide_cast_kind;

/* A row of the table of operations that descriptions can call. */
typedef struct tide_op {
    const char *name;
    const char *signature; /* "x, dim=-1, keepdim=false" */
    tide_cast_kind cast;
    tide_value (*run)(tide_machine *m, tide_value *arguments);
} tide_op;

/* The operations of one file. */
typedef struct tide_op_table {
    const tide_op *ops;
    uint32_t count;
} tide_op_table;

#define TIDE_OP_TABLE(file)                                                                                            \
    const tide_op_table tide_##file##_ops = {file##_ops, sizeof file##_ops / sizeof *file##_ops};

enum { TIDE_OP_TABLES = 14 };
extern const tide_op_table *const tide_op_tables[TIDE_OP_TABLES];

/* NULL if there is no such operation. */
const tide_op *tide_op_find(tide_text name);

/* Argument readers: report an error and return a harmless value if the kind is wrong. */
tide_tensor *tide_arg_tensor(tide_machine *m, tide_value v);
tide_tensor *tide_arg_tensor_or_none(tide_machine *m, tide_value v);
int64_t tide_arg_int(tide_machine *m, tide_value v);
bool tide_arg_bool(tide_machine *m, tide_value v);
double tide_arg_number(tide_machine *m, tide_value v);
bool tide_arg_shape(tide_machine *m, tide_value v, tide_shape *shape);

#endif
