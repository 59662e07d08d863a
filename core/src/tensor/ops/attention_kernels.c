/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of scaled_dot_product_attention: aten/src/ATen/native/transformers/attention.cpp, cuda/attention.cu,
 * cuda/attention_backward.cu; cuda/flash_attn/flash_api.cpp; cuda/mem_eff_attention. */
#include "tensor/ops/attention_kernels.h"

#include "base/units.h"
#include "tensor/checkpoint.h"

/* A tensor with the dimensions of x, stored in the order batch, sequence, head, width. */
static tide_tensor *bshd(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    int64_t heads = shape->dim[1].size, rows = shape->dim[2].size, width = shape->dim[3].size;
    int64_t stride[TIDE_MAX_DIMS] = {rows * heads * width, width, heads * width, 1};
    return tide_empty_strided(m, shape, stride, dtype);
}

static bool is_bshd(tide_machine *m, const tide_tensor *x) {
    tide_shape shape = *x->shape;
    int64_t stride[4] = {x->stride[0], x->stride[2], x->stride[1], x->stride[3]};
    shape.dim[1].size = x->shape->dim[2].size;
    shape.dim[2].size = x->shape->dim[1].size;
    return tide_layout_of(m, &shape, stride)->is_contiguous;
}

static void forget(tide_attention *of, const tide_node *node) {
    *of = (tide_attention){.dropout = node->of.attention.has_dropout,
                           .kv_heads = node->of.attention.kv_heads,
                           .sequences = node->of.attention.sequences,
                           .keys = node->of.attention.keys};
}

static void remember_attention(tide_node *node, const tide_attention *of) {
    if (!node) return;
    node->of.attention.has_dropout = of->dropout > 0;
    node->of.attention.kv_heads = of->kv_heads;
    node->of.attention.keys = of->keys;
    node->of.attention.sequences = of->sequences;
}

/* In the order in which the generated nodes declare, and so free, them: inputs by name, then results by name. */
enum { SLOT_BIAS, SLOT_K, SLOT_Q, SLOT_V, SLOT_LSE, SLOT_OUT, SLOT_OFFSET, SLOT_SEED, SLOTS };

static tide_attention of_node(const tide_node *node, const tide_tensor *q) {
    tide_attention a;
    forget(&a, node);
    a.batch = q->shape->dim[0].size;
    a.heads = q->shape->dim[1].size;
    a.queries = q->shape->dim[2].size;
    a.width = q->shape->dim[3].size;
    return a;
}

/* The node of a kernel, which saves its inputs first; the bias may be NULL. */
static tide_node *node_of(tide_machine *m, const tide_backward *backward, tide_tensor *q, tide_tensor *k,
                          tide_tensor *v, tide_tensor *bias, bool bias_learns, const tide_attention *a) {
    tide_tensor *inputs[4] = {q, k, v, bias_learns ? bias : NULL}, *saved[4] = {bias, k, q, v};
    tide_node *node = tide_node_with(m, backward, inputs, 4, 1, SLOTS);
    for (int i = 0; i < 4; i++) tide_save(m, node, saved[i]);
    remember_attention(node, a);
    return node;
}

/* Saves the kernel's results after its inputs; takes ownership of all but the output. */
static tide_tensor *kept(tide_machine *m, tide_node *node, tide_tensor *out, tide_tensor *lse, tide_tensor *seed,
                         tide_tensor *offset) {
    tide_tensor *all[4] = {lse, out, offset, seed};
    for (int i = 0; i < 4; i++) tide_save(m, node, all[i]);
    tide_release(m, lse);
    tide_release(m, seed);
    tide_release(m, offset);
    return out;
}

/* ---- flash ---- */

static void flash_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[SLOTS];
    for (int i = 0; i < SLOTS; i++) saved[i] = tide_saved_at(m, node, i);
    tide_tensor *q = saved[SLOT_Q], *k = saved[SLOT_K], *v = saved[SLOT_V], *out = saved[SLOT_OUT];
    tide_attention a = of_node(node, q);
    tide_tensor *g = is_bshd(m, grads[0]) ? NULL : bshd(m, grads[0]->shape, grads[0]->dtype);
    tide_tensor *copy = is_bshd(m, out) ? NULL : bshd(m, out->shape, out->dtype);
    results[0] = tide_empty_like(m, q, q->dtype);
    results[1] = tide_empty_like(m, k, k->dtype);
    results[2] = tide_empty_like(m, v, v->dtype);
    int64_t rows = TIDE_ROUND_UP(a.queries, 128), width = TIDE_ROUND_UP(a.width, a.width <= 128 ? 32 : 64);
    if (a.sequences) rows = a.queries + 128 * a.sequences; /* mha_varlen_bwd */
    tide_tensor *softmax_d = TIDE_EMPTY(m, TIDE_FP32, a.batch, a.heads, rows);
    tide_tensor *dq_accumulator = TIDE_EMPTY(m, TIDE_FP32, a.batch, rows, a.heads, width);
    tide_tensor *wide_k = NULL, *wide_v = NULL;
    if (a.kv_heads != a.heads) {
        wide_k = TIDE_EMPTY(m, (tide_dtype)k->dtype, a.batch, a.keys, a.heads, a.width);
        wide_v = TIDE_EMPTY(m, (tide_dtype)k->dtype, a.batch, a.keys, a.heads, a.width);
    }
    tide_tensor *const made[] = {wide_v, wide_k, dq_accumulator, softmax_d, copy, g};
    for (size_t i = 0; i < TIDE_COUNT_OF(made); i++) tide_release(m, made[i]);
    for (int i = SLOTS - 1; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward flash_backward = {"ScaledDotProductFlashAttentionBackward0", flash_run};

/* _scaled_dot_product_flash_attention: output, log-sum-exp, seed and offset. */
void tide_flash_forward(tide_machine *m, tide_tensor *q, const tide_attention *a, tide_tensor *made[4]) {
    made[0] = tide_empty_like(m, q, q->dtype);
    made[1] = TIDE_EMPTY(m, TIDE_FP32, a->batch, a->heads, a->queries);
    tide_tensor *partial_lse = NULL, *partial_out = NULL, *state = NULL;
    bool may_split = a->dropout <= 0 && !a->sequences;
    int64_t splits = may_split ? tide_flash_splits(m, a->batch * a->heads, a->queries, a->keys, a->width) : 1;
    if (splits > 1) {
        partial_lse = TIDE_EMPTY(m, TIDE_FP32, splits, a->batch, a->heads, a->queries);
        partial_out = TIDE_EMPTY(m, TIDE_FP32, splits, a->batch, a->heads, a->queries,
                                 TIDE_ROUND_UP(a->width, a->width <= 128 ? 32 : 64));
    }
    if (a->dropout > 0) state = TIDE_EMPTY(m, TIDE_INT64, 2);
    if (a->dropout > 0) made[3] = TIDE_EMPTY(m, TIDE_INT64, 1); /* the unused one, made before the state is returned */
    made[2] = TIDE_EMPTY(m, TIDE_INT64, 2);
    if (a->dropout <= 0) made[3] = TIDE_EMPTY(m, TIDE_INT64, 1);
    tide_release(m, state);
    tide_release(m, partial_lse);
    tide_release(m, partial_out);
}

tide_tensor *tide_flash(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, const tide_attention *a) {
    tide_node *node = node_of(m, &flash_backward, q, k, v, a->ends, false, a);
    tide_tensor *made[4];
    if (a->is_flash_attn || !tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4)) {
        tide_flash_forward(m, q, a, made);
        if (!a->is_flash_attn) tide_keep(m, TIDE_KEPT_ATTENTION, made, 4);
    }
    return kept(m, node, tide_set_grad_fn(m, node, made[0]), made[1], made[2], made[3]);
}

/* ---- efficient (memory-efficient attention) ---- */

/* mem_eff_attention/kernel_backward.h, kernels/cutlassB.h: one fp32 accumulator and a 16-byte lock per tile of dq; in
 * half precision with widths above 128 also fp32 dk and dv, one block of 64 keys for each split of the keys, which are
 * few with many heads (cuda/attention_backward.cu). */
int64_t tide_efficient_workspace(const tide_attention *a, tide_dtype dtype, int capability) {
    bool is_half = dtype != TIDE_FP32, is_wide = a->width > 64;
    bool has_sm86_kernel = (capability == 86 || capability == 89) && a->width <= 96 && a->dropout <= 0;
    int64_t tile_rows = is_wide && (is_half || capability >= 80) ? 128 : 64;
    int64_t tile_columns = is_wide && is_half && capability >= 80 && a->width <= 128 && !has_sm86_kernel ? 128 : 64;
    int64_t row_tiles = TIDE_CEIL_DIV(a->queries, tile_rows), column_tiles = TIDE_CEIL_DIV(a->width, tile_columns);
    int64_t bytes = row_tiles * column_tiles * (16 + tile_rows * tile_columns * 4);
    if (is_half && a->width > 128) {
        int64_t splits = (a->keys + 63) / 64, most = 200 / (a->batch * a->heads);
        if (splits > most) splits = most > 1 ? most : 1;
        bytes += 64 * splits * (TIDE_ROUND_UP(a->width, 128) + TIDE_ROUND_UP(a->value_width, 128)) * 4;
    }
    return a->batch * a->heads * bytes;
}

static void efficient_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[SLOTS];
    for (int i = 0; i < SLOTS; i++) saved[i] = tide_saved_at(m, node, i);
    tide_tensor *q = saved[SLOT_Q], *k = saved[SLOT_K], *v = saved[SLOT_V];
    tide_attention a = of_node(node, q);
    a.value_width = v->shape->dim[3].size;
    tide_tensor *g = is_bshd(m, grads[0]) ? NULL : bshd(m, grads[0]->shape, grads[0]->dtype);
    results[0] = bshd(m, q->shape, q->dtype);
    results[1] = bshd(m, k->shape, k->dtype);
    results[2] = bshd(m, v->shape, v->dtype);
    if (tide_needs_input_grad(node, 3)) { /* rows begin at multiples of 16 elements */
        tide_tensor *full = TIDE_EMPTY(m, (tide_dtype)q->dtype, a.batch, a.heads, a.queries, TIDE_ROUND_UP(a.keys, 16));
        results[3] = tide_slice(m, full, -1, (tide_dim){0, 0}, (tide_dim){a.keys, 0});
        results[3]->is_view = false; /* a slice below autograd keeps no base: sums may be made in it */
        tide_release(m, full);
    }
    tide_tensor *wide_k = NULL, *wide_v = NULL, *delta;
    if (a.kv_heads != a.heads) {
        wide_k = TIDE_EMPTY(m, (tide_dtype)k->dtype, a.batch, a.keys, a.heads, a.width);
        wide_v = TIDE_EMPTY(m, (tide_dtype)k->dtype, a.batch, a.keys, a.heads, a.width);
    }
    if (q->dtype == TIDE_FP32) { /* (grad_out.float() * out.float()).sum(-1), then its contiguous copy */
        tide_tensor *product = TIDE_EMPTY(m, TIDE_FP32, a.batch, a.queries, a.heads, a.value_width);
        tide_tensor *sum = TIDE_EMPTY(m, TIDE_FP32, a.batch, a.queries, a.heads);
        bool is_copied = a.heads > 1 && a.queries > 1;
        delta = is_copied ? TIDE_EMPTY(m, TIDE_FP32, a.batch, a.heads, a.queries) : tide_retain(sum);
        tide_release(m, sum);
        tide_release(m, product);
    } else {
        delta = TIDE_EMPTY(m, TIDE_FP32, a.batch, a.heads, a.queries);
    }
    tide_tensor *workspace = tide_scratch(m, tide_efficient_workspace(&a, (tide_dtype)q->dtype, m->device.capability));
    tide_release(m, delta);
    tide_release(m, workspace);
    tide_release(m, wide_v);
    tide_release(m, wide_k);
    tide_release(m, g);
    for (int i = SLOTS - 1; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward efficient_backward = {"ScaledDotProductEfficientAttentionBackward0", efficient_run};

/* _scaled_dot_product_efficient_attention: output, log-sum-exp, seed and offset. */
void tide_efficient_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, bool needs_lse, const tide_attention *a,
                            tide_tensor *made[4]) {
    for (int i = 2; i < 4; i++) made[i] = a->dropout <= 0 ? TIDE_EMPTY(m, TIDE_INT64, 1) : NULL;
    tide_shape shape = *q->shape;
    shape.dim[3] = v->shape->dim[3];
    made[0] = bshd(m, &shape, q->dtype);
    made[1] = TIDE_EMPTY(m, TIDE_FP32, a->batch, a->heads, needs_lse ? TIDE_ROUND_UP(a->queries, 32) : 0);
    if ((a->value_width > 128 || a->width > 128) && q->dtype != TIDE_FP32)
        tide_alloc_and_free(m, tide_count(made[0]) * 4); /* fp32 accumulator of the output */
}

tide_tensor *tide_efficient(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                            const tide_attention *a) {
    tide_node *node = node_of(m, &efficient_backward, q, k, v, bias, true, a);
    tide_tensor *made[4];
    if (!tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4)) {
        tide_efficient_forward(m, q, v, q->requires_grad || k->requires_grad || v->requires_grad, a, made);
        tide_keep(m, TIDE_KEPT_ATTENTION, made, 4);
    }
    return kept(m, node, tide_set_grad_fn(m, node, made[0]), made[1], made[2], made[3]);
}

/* ---- cuDNN ---- */

static void cudnn_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[SLOTS];
    for (int i = 0; i < SLOTS; i++) saved[i] = tide_saved_at(m, node, i);
    tide_tensor *q = saved[SLOT_Q], *k = saved[SLOT_K], *v = saved[SLOT_V];
    tide_attention a = of_node(node, q);
    tide_tensor *g = NULL; /* cuDNN wants a contiguous last dimension */
    if (grads[0]->stride[3] != 1 && grads[0]->shape->dim[3].size > 1)
        g = tide_empty_like(m, saved[SLOT_OUT], grads[0]->dtype);
    results[0] = tide_empty_like(m, q, q->dtype);
    results[1] = tide_empty_like(m, k, k->dtype);
    results[2] = tide_empty_like(m, v, v->dtype);
    tide_alloc_and_free(m, a.batch * a.heads * a.queries * (a.width + 1) * 4); /* requested by cuDNN's front end */
    tide_release(m, g);
    for (int i = SLOTS - 1; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward cudnn_backward = {"ScaledDotProductCudnnAttentionBackward0", cudnn_run};

/* cudnn/MHA.cpp, alloc_with_matching_layout: the dimensions in memory as those of q. */
static tide_tensor *ordered_like(tide_machine *m, const tide_tensor *q, const tide_shape *shape) {
    if (tide_same_shape(shape, q->shape)) return tide_empty_like(m, q, q->dtype);
    int64_t stride[TIDE_MAX_DIMS], next = 1;
    bool is_done[4] = {false};
    for (int i = 0; i < 4; i++) {
        int nearest = -1;
        for (int k = 3; k >= 0; k--)
            if (!is_done[k] && (nearest < 0 || q->stride[k] < q->stride[nearest])) nearest = k;
        is_done[nearest] = true;
        stride[nearest] = next;
        next *= shape->dim[nearest].size;
    }
    return tide_empty_strided(m, shape, stride, q->dtype);
}

void tide_cudnn_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, const tide_attention *a, bool needs_lse,
                        tide_tensor *made[4]) {
    made[2] = TIDE_EMPTY(m, TIDE_INT64, 1);
    made[3] = TIDE_EMPTY(m, TIDE_INT64, 1);
    tide_shape shape = *q->shape;
    shape.dim[3].size = v->shape->dim[3].size;
    made[0] = ordered_like(m, q, &shape);
    made[1] = needs_lse ? TIDE_EMPTY(m, TIDE_FP32, a->batch, a->heads, a->queries) : NULL;
}

tide_tensor *tide_cudnn(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                        const tide_attention *a) {
    tide_node *node = node_of(m, &cudnn_backward, q, k, v, bias, false, a);
    tide_tensor *made[4];
    if (!tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4))
        tide_cudnn_forward(m, q, v, a, q->requires_grad || k->requires_grad || v->requires_grad, made);
    tide_tensor *out = tide_set_grad_fn(m, node, made[0]);
    tide_keep(m, TIDE_KEPT_ATTENTION, (tide_tensor *[]){out, made[1], made[2], made[3]}, 4);
    return kept(m, node, out, made[1], made[2], made[3]);
}

/* ---- math: _scaled_dot_product_attention_math, in fp32 for half types ---- */

static tide_tensor *replaced(tide_machine *m, tide_tensor *old, tide_tensor *made) {
    tide_release(m, old);
    return made;
}

/* ones(L, S).tril() as an additive mask in the dtype of the scores. */
static tide_tensor *causal_bias(tide_machine *m, const tide_attention *a, tide_dtype dtype) {
    tide_tensor *ones = TIDE_EMPTY(m, TIDE_BOOL, a->queries, a->keys),
                *lower = TIDE_EMPTY(m, TIDE_BOOL, a->queries, a->keys);
    tide_release(m, ones);
    tide_shape scalar = {.dims = 0};
    tide_tensor *zero = tide_empty(m, &scalar, dtype), *least = tide_empty(m, &scalar, dtype);
    tide_tensor *bias = TIDE_EMPTY(m, dtype, a->queries, a->keys);
    tide_release(m, least);
    tide_release(m, zero);
    tide_release(m, lower);
    return bias;
}

tide_tensor *tide_math_attention(tide_machine *m, tide_tensor *query, tide_tensor *key, tide_tensor *value,
                                 tide_tensor *mask, const tide_attention *a) {
    tide_dtype dtype = (tide_dtype)query->dtype, wide = dtype == TIDE_FP64 ? TIDE_FP64 : TIDE_FP32;
    tide_tensor *q = tide_to(m, query, wide), *k = tide_to(m, key, wide), *v = tide_to(m, value, wide);
    tide_tensor *scaled = tide_scale(m, q);
    tide_tensor *bias = a->is_causal ? causal_bias(m, a, wide) : tide_retain(mask);
    tide_tensor *full_k = tide_retain(k), *full_v = tide_retain(v);
    if (a->kv_heads != a->heads && a->repeats) {
        full_k = replaced(m, full_k, tide_repeat_heads(m, k, a->heads / a->kv_heads));
        full_v = replaced(m, full_v, tide_repeat_heads(m, v, a->heads / a->kv_heads));
    }
    tide_tensor *k_transposed = tide_transpose(m, full_k, -2, -1), *k_scaled = tide_scale(m, k_transposed);
    tide_release(m, k_transposed);
    tide_tensor *scores = tide_matmul(m, scaled, k_scaled);
    tide_release(m, k_scaled);
    bool is_subclass_like = tide_has_dispatch_mode(m);
    if (bias &&
        (bias->requires_grad || is_subclass_like)) { /* attn.add_(mask), areAnyTensorSubclassLike: attn.add(mask) */
        tide_value given[] = {tide_of_tensor(scores), tide_of_tensor(bias), tide_of_int(1)};
        tide_text add = is_subclass_like ? TIDE_TEXT("add") : TIDE_TEXT("add_");
        scores = replaced(m, scores, tide_op_find(add)->run(m, given).tensor);
    }
    tide_tensor *probabilities = tide_safe_softmax(m, scores);
    tide_release(m, scores);
    if (a->dropout > 0) {
        tide_tensor *dropped = tide_dropout(m, probabilities, a->dropout, true);
        tide_release(m, probabilities);
        probabilities = dropped;
    }
    bool was_enabled = m->state.grad_enabled;
    tide_tensor *weights = tide_to(m, probabilities, dtype); /* the second result, which the caller discards */
    m->state.grad_enabled = was_enabled;
    tide_tensor *out = tide_matmul(m, probabilities, full_v), *narrow = tide_to(m, out, dtype);
    tide_release(m, out);
    tide_release(m, probabilities);
    tide_release(m, full_v);
    tide_release(m, full_k);
    tide_release(m, scaled);
    tide_release(m, bias);
    tide_release(m, v);
    tide_release(m, k);
    tide_release(m, q);
    tide_release(m, weights);
    return narrow;
}
