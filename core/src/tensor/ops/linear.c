/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: aten/src/ATen/native/Linear.cpp, LinearAlgebra.cpp, cuda/Blas.cpp.
 *
 * Note [GEMM workspace]: torch 2.15 allocates the cuBLAS workspace after the output of every product and frees it at
 * once; a product with a bias uses cuBLASLt with 1 MiB. Older versions keep the first workspace of each thread for
 * good: that of the thread that runs forward and that of the one that runs backward. cuda/CublasHandlePool.cpp. */
#include "tensor/checkpoint.h"
#include "tensor/ops/ops.h"

/* cuda/CublasHandlePool.cpp: parseChosenWorkspaceSize has ":4096:2:16:8", pairs of KiB and a number of buffers, and 32
 * MiB on Hopper and Blackwell except Thor; _parseChosenCublasLtWorkspaceSize has 1 MiB. */
enum {
    CUBLASLT_WORKSPACE = 1 << 20,
    CUBLAS_WORKSPACE = (4096 * 2 + 16 * 8) * 1024,
    CUBLAS_WORKSPACE_HOPPER = 32 << 20
};

int64_t tide_cublas_workspace(int capability) {
    int major = capability / 10;
    return major == 9 || major == 10 || major == 12 ? CUBLAS_WORKSPACE_HOPPER : CUBLAS_WORKSPACE;
}

int64_t tide_gemm_workspace(const tide_machine *m) {
    return tide_cublas_workspace(m->device.capability);
}

static void workspace(tide_machine *m, int64_t bytes) {
    tide_factor factor = m->state.factor;
    if (m->unifies_workspaces) bytes = tide_gemm_workspace(m);
    m->state.factor = TIDE_FACTOR_WORKSPACE;
    tide_tensor **kept = &m->state.workspaces[m->state.is_in_backward];
    if (!m->state.keeps_workspaces || bytes == CUBLASLT_WORKSPACE)
        tide_alloc_and_free(m, bytes);
    else if (!*kept)
        *kept = tide_scratch(m, bytes);
    m->state.factor = factor;
}

/* cuda/Blas.cpp, prepare_matrix_for_cublas: one of the last two dimensions must be contiguous and must not overlap the
 * other; everything else is copied for the product. */
static bool is_ready(const tide_tensor *t) {
    int row = t->shape->dims - 2, column = row + 1;
    const tide_dim *dim = t->shape->dim;
    const int64_t *stride = t->stride;
    return (t->shape->dims == 2 && tide_is_dense(t)) ||
           (stride[column] == 1 && stride[row] >= dim[column].size && stride[row] > 0) ||
           (stride[row] == 1 && stride[column] >= dim[row].size && stride[column] > 0);
}

/* The product of a and b: copies of them if needed, and the workspace. */
static void multiply(tide_machine *m, const tide_tensor *a, const tide_tensor *b, int64_t bytes) {
    tide_tensor *left = is_ready(a) ? NULL : tide_empty(m, a->shape, a->dtype);
    tide_tensor *right = is_ready(b) ? NULL : tide_empty(m, b->shape, b->dtype);
    workspace(m, bytes);
    tide_release(m, right);
    tide_release(m, left);
}

/* rows x columns, contiguous, or column-major if is_transposed, followed by the workspace of the product. */
static tide_tensor *product(tide_machine *m, const tide_tensor *a, const tide_tensor *b, tide_dim rows,
                            tide_dim columns, bool is_transposed, tide_dtype dtype) {
    tide_shape shape = {.dim = {rows, columns}, .dims = 2};
    tide_tensor *out;
    if (is_transposed) {
        int64_t stride[TIDE_MAX_DIMS] = {1, rows.size > 1 ? rows.size : 1};
        out = tide_empty_strided(m, &shape, stride, dtype);
    } else {
        out = tide_empty(m, &shape, dtype);
    }
    multiply(m, a, b, tide_gemm_workspace(m));
    return out;
}

/* A gradient takes the layout of its tensor (FunctionsManual.cpp: mm_mat1_grad, mm_mat2_grad). */
static bool is_column_major(const tide_meta *meta, const int64_t *stride) {
    return stride[0] == 1 && stride[1] == meta->shape->dim[0].size;
}

static void mat1_grad(tide_machine *m, tide_node *node, tide_tensor *g, tide_tensor *mat2, tide_tensor **result) {
    const tide_meta *meta = &node->extra; /* the shape of mat1 */
    *result = product(m, g, mat2, meta->shape->dim[0], meta->shape->dim[1], node->of.mm.is_mat1_column_major, g->dtype);
}

static void mat2_grad(tide_machine *m, tide_node *node, tide_tensor *g, tide_tensor *mat1, tide_tensor **result) {
    *result = product(m, mat1, g, node->of.mm.mat2[0], node->of.mm.mat2[1], node->of.mm.is_mat2_column_major, g->dtype);
}

static void remember_matrices(tide_node *node, const tide_tensor *a, const tide_tensor *b) {
    if (!node) return;
    tide_meta of_a = {a->shape, a->dtype, a->is_dtensor}, of_b = {b->shape, b->dtype, b->is_dtensor};
    node->extra = of_a;
    node->of.mm.is_mat1_column_major = is_column_major(&of_a, a->stride) && !tide_is_contiguous(a);
    node->of.mm.is_mat2_column_major = is_column_major(&of_b, b->stride) && !tide_is_contiguous(b);
    memcpy(node->of.mm.mat2, b->shape->dim, sizeof node->of.mm.mat2);
}

const char *tide_cpp_dtype(uint8_t dtype) {
    switch (dtype) {
    case TIDE_FP32:
        return "float";
    case TIDE_BF16:
        return "c10::BFloat16";
    case TIDE_FP16:
        return "c10::Half";
    case TIDE_INT8:
        return "signed char";
    case TIDE_UINT8:
        return "unsigned char";
    default:
        return tide_dtype_names[dtype];
    }
}

static bool fits(tide_machine *m, const tide_tensor *a, const tide_tensor *b) {
    if (a->shape->dims == 2 && b->shape->dims == 2 && a->shape->dim[1].size == b->shape->dim[0].size &&
        a->dtype == b->dtype)
        return true;
    if (a->dtype != b->dtype)
        tide_fail(m, TIDE_ERR_CONFLICT, "\"expected mat1 and mat2 to have the same dtype, but got: %s != %s\"",
                  tide_cpp_dtype(a->dtype), tide_cpp_dtype(b->dtype));
    else
        tide_fail(m, TIDE_ERR_SHAPE, "%s: shapes %s and %s do not multiply", m->op, tide_shape_text(m, a->shape),
                  tide_shape_text(m, b->shape));
    return false;
}

/* ---- mm ---- */

static void mm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mat2 = tide_saved_at(m, node, 0), *self = tide_saved_at(m, node, 1);
    if (tide_needs_input_grad(node, 1)) mat2_grad(m, node, grads[0], self, &results[1]);
    if (tide_needs_input_grad(node, 0)) mat1_grad(m, node, grads[0], mat2, &results[0]);
    if (results[0]) results[0]->is_replicated = mat2->is_replicated; /* no part of a sum over ranks */
    tide_release(m, self);
    tide_release(m, mat2);
}
static const tide_backward mm_backward = {"MmBackward0", mm_run};

static tide_kept_kind kind_of_mm(const tide_machine *m, const tide_tensor *b) {
    bool is_recomputed = b->shape->dim[0].size == m->recomputed_mm[0] && b->shape->dim[1].size == m->recomputed_mm[1];
    return is_recomputed ? TIDE_KEPT_NOTHING : TIDE_KEPT_PRODUCT;
}

static tide_tensor *mm(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    if (!fits(m, a, b)) return tide_retain(a);
    tide_tensor *both[2] = {a, b};
    tide_node *node = tide_node_new(m, &mm_backward, both, 2);
    if (node) {
        tide_save(m, node, tide_needs_input_grad(node, 0) ? b : NULL);
        tide_save(m, node, tide_needs_input_grad(node, 1) ? a : NULL);
    }
    remember_matrices(node, a, b);
    tide_tensor *out;
    tide_kept_kind kind = kind_of_mm(m, b);
    if (!tide_take_kept(m, kind, &out, 1))
        out = product(m, a, b, tide_dim_of(a, 0), tide_dim_of(b, 1), false, a->dtype);
    tide_keep(m, kind, &out, 1);
    return tide_set_grad_fn(m, node, out);
}

/* ---- addmm ---- */

/* Policies of selective checkpointing differ in whether products other than mm count. */
static tide_kept_kind other_product(const tide_machine *m) {
    return m->keeps_mm_alone ? TIDE_KEPT_NOTHING : TIDE_KEPT_PRODUCT;
}

static void addmm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mat1 = tide_saved_at(m, node, 0), *mat2 = tide_saved_at(m, node, 1);
    if (tide_needs_input_grad(node, 1)) mat1_grad(m, node, grads[0], mat2, &results[1]);
    if (tide_needs_input_grad(node, 2)) mat2_grad(m, node, grads[0], mat1, &results[2]);
    if (tide_needs_input_grad(node, 0))
        results[0] = tide_retain(grads[0]); /* the engine sums it to the shape of the bias */
    tide_release(m, mat2);
    tide_release(m, mat1);
}
static const tide_backward addmm_backward = {"AddmmBackward0", addmm_run};

static tide_tensor *addmm(tide_machine *m, tide_tensor *bias, tide_tensor *a, tide_tensor *b) {
    if (!fits(m, a, b)) return tide_retain(a);
    tide_tensor *all[3] = {bias, a, b};
    tide_node *node = tide_node_new(m, &addmm_backward, all, 3);
    if (node) {
        tide_save(m, node, tide_needs_input_grad(node, 2) ? a : NULL);
        tide_save(m, node, tide_needs_input_grad(node, 1) ? b : NULL);
    }
    remember_matrices(node, a, b);
    tide_shape shape = {.dims = 2};
    shape.dim[0] = a->shape->dim[0];
    shape.dim[1] = b->shape->dim[1];
    tide_tensor *out;
    if (tide_take_kept(m, other_product(m), &out, 1)) return tide_set_grad_fn(m, node, out);
    out = tide_empty(m, &shape, a->dtype);
    /* cuda/Blas.cpp, isInputCompliesAddmmCudaLt: a row, or in half types a matrix */
    bool is_row = bias->shape->dims == 1, is_matrix = bias->shape->dims == 2 &&
                                                      bias->shape->dim[1].size == b->shape->dim[1].size &&
                                                      tide_dtype_bytes(a->dtype) == 2;
    bool is_lt =
        (is_row || is_matrix) && tide_is_contiguous(bias) && b->shape->dim[0].size > 1 && b->shape->dim[1].size > 1;
    multiply(m, a, b, is_lt ? CUBLASLT_WORKSPACE : tide_gemm_workspace(m));
    tide_keep(m, other_product(m), &out, 1);
    return tide_set_grad_fn(m, node, out);
}

/* ---- bmm ---- */

static void bmm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mat2 = tide_saved_at(m, node, 0), *self = tide_saved_at(m, node, 1);
    for (int i = 1; i >= 0; i--) {
        if (!tide_needs_input_grad(node, i)) continue;
        const tide_meta *meta = &node->edges[i].node->outputs[node->edges[i].input];
        results[i] = tide_empty(m, meta->shape, grads[0]->dtype);
        multiply(m, i ? self : grads[0], i ? grads[0] : mat2, tide_gemm_workspace(m));
    }
    tide_release(m, self);
    tide_release(m, mat2);
}
static const tide_backward bmm_backward = {"BmmBackward0", bmm_run};

tide_tensor *tide_bmm(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    bool ok = a->shape->dims == 3 && b->shape->dims == 3 && a->shape->dim[0].size == b->shape->dim[0].size &&
              a->shape->dim[2].size == b->shape->dim[1].size && a->dtype == b->dtype;
    if (!ok) {
        tide_fail(m, TIDE_ERR_SHAPE, "bmm: %s of %s and %s of %s do not multiply", tide_shape_text(m, a->shape),
                  tide_dtype_names[a->dtype], tide_shape_text(m, b->shape), tide_dtype_names[b->dtype]);
        return tide_retain(a);
    }
    tide_tensor *both[2] = {a, b};
    tide_node *node = tide_node_new(m, &bmm_backward, both, 2);
    if (node) {
        tide_save(m, node, tide_needs_input_grad(node, 0) ? b : NULL);
        tide_save(m, node, tide_needs_input_grad(node, 1) ? a : NULL);
    }
    tide_shape shape = *a->shape;
    shape.dim[2] = b->shape->dim[2];
    tide_tensor *out;
    if (tide_take_kept(m, other_product(m), &out, 1)) return tide_set_grad_fn(m, node, out);
    out = tide_empty(m, &shape, a->dtype);
    multiply(m, a, b, tide_gemm_workspace(m));
    tide_keep(m, other_product(m), &out, 1);
    return tide_set_grad_fn(m, node, out);
}

/* ---- baddbmm: beta * input + alpha * batch1 @ batch2, the numbers kept by nobody ---- */

/* maybe_multiply(grad, alpha): does nothing if alpha is 1. */
static void baddbmm_grads(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results,
                          bool is_scaled) {
    tide_tensor *batch2 = tide_saved_at(m, node, 0), *batch1 = tide_saved_at(m, node, 1);
    for (int i = 1; i <= 2; i++) {
        if (!tide_needs_input_grad(node, i)) continue;
        const tide_meta *meta = &node->edges[i].node->outputs[node->edges[i].input];
        tide_tensor *plain = tide_empty(m, meta->shape, grads[0]->dtype);
        multiply(m, i == 1 ? grads[0] : batch1, i == 1 ? batch2 : grads[0], tide_gemm_workspace(m));
        results[i] = is_scaled ? tide_scale(m, plain) : tide_retain(plain);
        tide_release(m, plain);
    }
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(grads[0]);
    tide_release(m, batch1);
    tide_release(m, batch2);
}

static void baddbmm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    baddbmm_grads(m, node, grads, results, false);
}
static const tide_backward baddbmm_backward = {"BaddbmmBackward0", baddbmm_run};

static void scaled_baddbmm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    baddbmm_grads(m, node, grads, results, true);
}
static const tide_backward scaled_baddbmm_backward = {"BaddbmmBackward0", scaled_baddbmm_run};

static tide_value op_baddbmm(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]), tide_arg_tensor(m, a[2])};
    tide_tensor *batch1 = all[1], *batch2 = all[2];
    tide_shape shape = *batch1->shape;
    bool ok = shape.dims == 3 && batch2->shape->dims == 3 && shape.dim[0].size == batch2->shape->dim[0].size &&
              shape.dim[2].size == batch2->shape->dim[1].size;
    if (!ok) {
        tide_fail(m, TIDE_ERR_SHAPE, "baddbmm: %s and %s do not multiply", tide_shape_text(m, &shape),
                  tide_shape_text(m, batch2->shape));
        return tide_none();
    }
    bool is_scaled = tide_arg_number(m, a[3]) != 1;
    tide_node *node = tide_node_new(m, is_scaled ? &scaled_baddbmm_backward : &baddbmm_backward, all, 3);
    if (node) {
        tide_save(m, node, tide_needs_input_grad(node, 1) ? batch2 : NULL);
        tide_save(m, node, tide_needs_input_grad(node, 2) ? batch1 : NULL);
    }
    shape.dim[2] = batch2->shape->dim[2];
    tide_tensor *out = tide_empty(m, &shape, batch1->dtype);
    multiply(m, batch1, batch2, tide_gemm_workspace(m));
    return tide_of_tensor(tide_set_grad_fn(m, node, out));
}

/* ---- grouped_mm: rows of x by the matrix of their group (cuda/GroupedBlas.cpp). bf16 on Hopper and Blackwell goes to
 * CUTLASS, which keeps 60 bytes per group and 512 per multiprocessor; anything else multiplies group by group, with a
 * workspace each (GroupedMMUtils.h, _grouped_mm_fallback) ---- */

static void grouped_scratch(tide_machine *m, int64_t groups, tide_dtype dtype) {
    if (dtype != TIDE_BF16 || m->device.capability < 90 || m->device.capability >= 120) {
        workspace(m, tide_gemm_workspace(m));
        return;
    }
    tide_tensor *problems = tide_scratch(m, 60 * groups);
    tide_alloc_and_free(m, 512 * (int64_t)m->device.sms);
    tide_release(m, problems);
}

static void grouped_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *weight = tide_saved_at(m, node, 0), *offsets = tide_saved_at(m, node, 1),
                *x = tide_saved_at(m, node, 2);
    int64_t groups = tide_count(offsets);
    if (tide_needs_input_grad(node, 1)) {
        results[1] = tide_empty_laid_out(m, node->of.grouped_mm.mat2, grads[0]->dtype);
        grouped_scratch(m, groups, grads[0]->dtype);
    }
    if (tide_needs_input_grad(node, 0)) {
        const tide_meta *meta = &node->edges[0].node->outputs[node->edges[0].input];
        results[0] = tide_empty(m, meta->shape, grads[0]->dtype);
        grouped_scratch(m, groups, grads[0]->dtype);
    }
    tide_release(m, x);
    tide_release(m, offsets);
    tide_release(m, weight);
}
static const tide_backward grouped_backward = {"GroupedMmBackward0", grouped_run};

static tide_value op_grouped_mm(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])}, *offsets = tide_arg_tensor(m, a[2]);
    tide_shape shape = *both[0]->shape;
    const tide_shape *weight = both[1]->shape;
    if (shape.dims != 2 || weight->dims != 3 || shape.dim[1].size != weight->dim[1].size ||
        weight->dim[0].size != tide_count(offsets)) {
        tide_fail(m, TIDE_ERR_SHAPE, "grouped_mm: %s by %s", tide_shape_text(m, &shape), tide_shape_text(m, weight));
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &grouped_backward, both, 2);
    tide_save(m, node, node && tide_needs_input_grad(node, 0) ? both[1] : NULL);
    tide_save(m, node, offsets);
    tide_save(m, node, node && tide_needs_input_grad(node, 1) ? both[0] : NULL);
    if (node)
        node->of.grouped_mm.mat2 =
            tide_is_dense(both[1]) ? both[1]->layout : tide_elementwise_layout(m, weight, &both[1], 1);
    shape.dim[1] = weight->dim[2];
    tide_tensor *out = tide_empty(m, &shape, both[0]->dtype);
    grouped_scratch(m, weight->dim[0].size, both[0]->dtype);
    return tide_of_tensor(tide_set_grad_fn(m, node, out));
}

/* ---- matmul: folds, or expands and multiplies in batches ---- */

/* LinearAlgebra.cpp: should_fold, for a left operand with more dimensions. */
static bool should_fold(const tide_tensor *a, const tide_tensor *b) {
    if (a->shape->dims < 3 || b->shape->dims > 2) return false;
    if (b->requires_grad) return true;
    for (int i = 0; i < a->shape->dims - 2; i++)
        if (a->stride[i] != a->stride[i + 1] * a->shape->dim[i + 1].size) return false;
    return true;
}

void tide_push_dim(tide_shape *shape, tide_dim dim) {
    shape->dim[shape->dims++] = dim;
}

tide_dim tide_joined_dims(tide_machine *m, const tide_shape *shape, int from, int to) {
    tide_value all = tide_of_int(1);
    for (int i = from; i < to; i++) {
        tide_value size = {.kind = TIDE_VALUE_INT, .symbol = shape->dim[i].name, .integer = shape->dim[i].size};
        all.symbol = tide_symbol_of(m, '*', all, size);
        all.integer *= size.integer;
    }
    return (tide_dim){all.integer, all.symbol};
}

static tide_tensor *fold(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_shape flat = {.dims = 0}, shape = *a->shape;
    int last = a->shape->dims - 1;
    tide_push_dim(&flat, tide_joined_dims(m, a->shape, 0, last));
    tide_push_dim(&flat, tide_dim_of(a, last));
    tide_tensor *left = tide_reshape(m, a, &flat), *out = mm(m, left, b);
    shape.dim[last] = b->shape->dim[1];
    tide_tensor *viewed = m->has_failed ? tide_retain(a) : tide_view(m, out, &shape);
    viewed->is_view = false; /* _unsafe_view */
    tide_release(m, left);
    tide_release(m, out);
    return viewed;
}

/* A trainable matrix times batches: the product of the transposed operands, transposed back and copied. */
static tide_tensor *fold_turned(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_tensor *left = tide_transpose(m, b, -2, -1), *right = tide_transpose(m, a, 0, 1);
    tide_tensor *out = fold(m, left, right);
    tide_release(m, left);
    tide_release(m, right);
    tide_tensor *turned = tide_transpose(m, out, -2, -1);
    tide_release(m, out);
    tide_tensor *made = tide_contiguous(m, turned);
    tide_release(m, turned);
    return made;
}

static tide_tensor *batches(tide_machine *m, tide_tensor *x, const tide_shape *batch, tide_dim count) {
    tide_shape full = *batch, flat = {.dims = 3};
    for (int i = 0; i < 2; i++) {
        int from = x->shape->dims - 2 + i;
        full.dim[full.dims++] = flat.dim[1 + i] = x->shape->dim[from];
    }
    flat.dim[0] = count;
    tide_tensor *wide = tide_expand(m, x, &full), *made = tide_reshape(m, wide, &flat);
    tide_release(m, wide);
    return made;
}

tide_tensor *tide_matmul(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    if (a->shape->dims == 2 && b->shape->dims == 2) return mm(m, a, b);
    if (a->shape->dims < 2 || b->shape->dims < 2 || a->shape->dims + 1 > TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_SHAPE, "matmul of %s and %s", tide_shape_text(m, a->shape), tide_shape_text(m, b->shape));
        return tide_retain(a);
    }
    if (should_fold(a, b)) return fold(m, a, b);
    if (a->shape->dims == 2 && a->requires_grad && a->shape->dim[1].size == b->shape->dim[b->shape->dims - 2].size)
        return fold_turned(m, a, b);
    tide_shape batch_a = *a->shape, batch_b = *b->shape, batch;
    batch_a.dims -= 2;
    batch_b.dims -= 2;
    if (!tide_broadcast(m, &batch, &batch_a, &batch_b)) return tide_retain(a);
    tide_dim count = tide_joined_dims(m, &batch, 0, batch.dims);
    tide_tensor *left = batches(m, a, &batch, count);
    tide_tensor *right = batches(m, b, &batch, count);
    tide_tensor *out = tide_bmm(m, left, right);
    tide_release(m, left);
    tide_release(m, right);
    if (m->has_failed) return out;
    tide_shape shape = batch;
    tide_push_dim(&shape, tide_dim_of(a, a->shape->dims - 2));
    tide_push_dim(&shape, tide_dim_of(b, b->shape->dims - 1));
    tide_tensor *viewed = tide_view(m, out, &shape);
    viewed->is_view = false;
    tide_release(m, out);
    return viewed;
}

/* ---- linear ---- */

static void add_bias_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    for (int i = 0; i < 2; i++) results[i] = tide_needs_input_grad(node, i) ? tide_retain(grads[0]) : NULL;
}
static const tide_backward add_bias_backward = {"AddBackward0", add_bias_run};

tide_tensor *tide_linear(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias) {
    if (weight->shape->dims != 2 || x->shape->dims < 2 ||
        x->shape->dim[x->shape->dims - 1].size != weight->shape->dim[1].size) {
        tide_fail(m, TIDE_ERR_SHAPE, "linear: an input of %s for a weight of %s", tide_shape_text(m, x->shape),
                  tide_shape_text(m, weight->shape));
        return tide_retain(x);
    }
    bool is_flattened = bias && x->shape->dims > 2 && tide_is_contiguous(x); /* Linear.cpp: _flatten_nd_linear */
    tide_tensor *transposed = is_flattened ? NULL : tide_transpose(m, weight, 0, 1), *out;
    if (transposed) transposed->requires_grad = weight->requires_grad; /* a view of a leaf, also under no_grad() */
    if (!bias) {
        out = tide_matmul(m, x, transposed);
    } else if (x->shape->dims == 2) {
        out = addmm(m, bias, x, transposed);
    } else if (is_flattened) {
        tide_shape flat = {.dims = 0}, shape = *x->shape;
        int last = x->shape->dims - 1;
        tide_push_dim(&flat, tide_joined_dims(m, x->shape, 0, last));
        tide_push_dim(&flat, tide_dim_of(x, last));
        tide_tensor *left = tide_view(m, x, &flat);
        transposed = tide_transpose(m, weight, 0, 1);
        tide_tensor *sum = addmm(m, bias, left, transposed);
        shape.dim[last] = weight->shape->dim[0];
        out = m->has_failed ? tide_retain(x) : tide_view(m, sum, &shape);
        out->is_view = m->has_failed && x->is_view; /* _unsafe_view */
        tide_release(m, left);
        tide_release(m, sum);
    } else { /* output.add_(bias) */
        tide_tensor *sum = tide_matmul(m, x, transposed);
        tide_tensor *both[2] = {sum, bias};
        tide_node *node = tide_node_new(m, &add_bias_backward, both, 2);
        out = tide_set_grad_fn(m, node, tide_alias(m, sum));
        tide_release(m, sum);
    }
    tide_release(m, transposed);
    return out;
}

/* ---- linalg.solve_triangular: BatchLinearAlgebra.cpp; cuda/linalg/BatchLinearAlgebra.cpp takes up to 8 large matrices
 * one by one, others by two arrays of pointers ---- */

static tide_tensor *solved(tide_machine *m, const tide_tensor *a, const tide_tensor *b) {
    int64_t stride[TIDE_MAX_DIMS], size = a->shape->dim[a->shape->dims - 1].size,
                                   batches = size ? tide_count(a) / (size * size) : 0;
    tide_shape shape = *b->shape;
    int last = shape.dims - 1;
    tide_contiguous_strides(&shape, stride);
    stride[last] = shape.dim[last - 1].size;
    stride[last - 1] = 1;
    tide_tensor *out = tide_empty_strided(m, &shape, stride, b->dtype), *pointers[2] = {NULL, NULL};
    tide_tensor *copy = is_ready(a) ? NULL : tide_empty(m, a->shape, a->dtype);
    bool is_batched = batches > 8 || size < 64;
    for (int i = 0; is_batched && i < 2; i++) pointers[i] = tide_flat(m, batches, TIDE_INT64);
    workspace(m, tide_gemm_workspace(m));
    tide_release(m, pointers[1]);
    tide_release(m, pointers[0]);
    tide_release(m, copy);
    return out;
}

/* FunctionsManual.cpp, linalg_solve_triangular_backward: -(G_B X^H).tril() for A. */
static void solve_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *a = tide_saved_at(m, node, 0), *x = tide_saved_at(m, node, 1);
    tide_tensor *turned = tide_transpose(m, a, -2, -1), *grad_b = solved(m, turned, grads[0]);
    tide_release(m, turned);
    if (tide_needs_input_grad(node, 0)) {
        tide_tensor *x_turned = tide_transpose(m, x, -2, -1), *product = tide_matmul(m, grad_b, x_turned);
        tide_tensor *negative = tide_elementwise(m, &product, 1, product->dtype);
        tide_release(m, product);
        results[0] = tide_elementwise(m, &negative, 1, negative->dtype);
        tide_release(m, negative);
        tide_release(m, x_turned);
    }
    if (tide_needs_input_grad(node, 1)) results[1] = tide_retain(grad_b);
    tide_release(m, grad_b);
    tide_release(m, x);
    tide_release(m, a);
}
static const tide_backward solve_backward = {"LinalgSolveTriangularBackward0", solve_run};

static tide_value op_solve_triangular(tide_machine *m, tide_value *v) {
    tide_tensor *both[2] = {tide_arg_tensor(m, v[0]), tide_arg_tensor(m, v[1])};
    const tide_shape *a = both[0]->shape, *b = both[1]->shape;
    bool ok = a->dims >= 2 && a->dims == b->dims && a->dim[a->dims - 1].size == a->dim[a->dims - 2].size;
    for (int i = 0; ok && i < a->dims - 1; i++) ok = a->dim[i].size == b->dim[i].size;
    if (!ok) {
        tide_fail(m, TIDE_ERR_SHAPE, "solve_triangular: %s for %s", tide_shape_text(m, a), tide_shape_text(m, b));
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &solve_backward, both, 2);
    tide_tensor *x = tide_set_grad_fn(m, node, solved(m, both[0], both[1]));
    if (node) {
        tide_save(m, node, both[0]);
        tide_save(m, node, x);
    }
    return tide_of_tensor(x);
}

tide_tensor *tide_linear_eager(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias) {
    tide_tensor *transposed = tide_transpose(m, weight, 0, 1);
    transposed->requires_grad = weight->requires_grad && !weight->node; /* a view of a leaf, also under no_grad() */
    tide_tensor *out = bias && x->shape->dims == 2 ? addmm(m, bias, x, transposed) : tide_matmul(m, x, transposed);
    tide_release(m, transposed);
    return out;
}

static tide_value op_linear(tide_machine *m, tide_value *a) {
    return tide_of_tensor((m->linear ? m->linear : tide_linear)(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]),
                                                                tide_arg_tensor_or_none(m, a[2])));
}

static tide_value op_matmul(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_matmul(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])));
}

static tide_value op_bmm(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_bmm(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])));
}

/* torch.mm(a, b, out=...): the result exists already. */
static tide_value op_mm_out(tide_machine *m, tide_value *a) {
    multiply(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]), tide_gemm_workspace(m));
    return tide_none();
}

static tide_value op_addmm(tide_machine *m, tide_value *a) {
    return tide_of_tensor(addmm(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]), tide_arg_tensor(m, a[2])));
}

static const tide_op linear_ops[] = {
    {"linear", "x, weight, bias=none", TIDE_CAST_LOWER, op_linear},
    {"matmul", "self, other", TIDE_CAST_LOWER, op_matmul},
    {"bmm", "self, mat2", TIDE_CAST_LOWER, op_bmm},
    {"einsum", "equation, a, b", TIDE_CAST_LOWER_IN_ORDER, tide_op_einsum},
    {"grouped_mm", "x, weight, offsets", TIDE_CAST_NONE, op_grouped_mm},
    {"solve_triangular", "A, B", TIDE_CAST_NONE, op_solve_triangular},
    {"baddbmm", "input, batch1, batch2, alpha=1", TIDE_CAST_LOWER, op_baddbmm},
    {"mm_out", "self, mat2", TIDE_CAST_NONE, op_mm_out},
    {"addmm", "self, mat1, mat2", TIDE_CAST_LOWER, op_addmm},
};
TIDE_OP_TABLE(linear)
