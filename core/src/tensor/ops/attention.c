/* SPDX-License-Identifier: Apache-2.0 */
/* scaled_dot_product_attention: aten/src/ATen/native/transformers/attention.cpp, cuda/attention.cu,
 * cuda/attention_backward.cu, cuda/sdp_utils.cpp; cuda/flash_attn/flash_api.cpp; cuda/mem_eff_attention. */
#include "tensor/checkpoint.h"
#include "tensor/ops/ops.h"

#include "base/units.h"

typedef struct attention {
    int64_t batch, heads, kv_heads, queries, keys, width, value_width;
    int64_t sequences; /* of equal length, packed in a batch of one row: flash_attn_varlen_func; 0: an ordinary batch */
    tide_tensor *ends; /* their cu_seqlens, which it saves; may be NULL */
    double dropout;
    bool is_causal;
    bool repeats;       /* enable_gqa, where keys and values are copied for their queries; else they are broadcast */
    bool is_flash_attn; /* the package's operator, which is in no list of what selective checkpoints keep */
} attention;

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

static void forget(attention *of, const tide_node *node) {
    *of = (attention){.dropout = node->of.attention.has_dropout,
                      .kv_heads = node->of.attention.kv_heads,
                      .sequences = node->of.attention.sequences,
                      .keys = node->of.attention.keys};
}

static void remember_attention(tide_node *node, const attention *of) {
    if (!node) return;
    node->of.attention.has_dropout = of->dropout > 0;
    node->of.attention.kv_heads = of->kv_heads;
    node->of.attention.keys = of->keys;
    node->of.attention.sequences = of->sequences;
}

/* In the order in which the generated nodes declare, and so free, them: inputs by name, then results by name. */
enum { SLOT_BIAS, SLOT_K, SLOT_Q, SLOT_V, SLOT_LSE, SLOT_OUT, SLOT_OFFSET, SLOT_SEED, SLOTS };

static attention of_node(const tide_node *node, const tide_tensor *q) {
    attention a;
    forget(&a, node);
    a.batch = q->shape->dim[0].size;
    a.heads = q->shape->dim[1].size;
    a.queries = q->shape->dim[2].size;
    a.width = q->shape->dim[3].size;
    return a;
}

/* The node of a kernel, which saves its inputs first; the bias may be NULL. */
static tide_node *node_of(tide_machine *m, const tide_backward *backward, tide_tensor *q, tide_tensor *k,
                          tide_tensor *v, tide_tensor *bias, bool bias_learns, const attention *a) {
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
    attention a = of_node(node, q);
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
static void flash_forward(tide_machine *m, tide_tensor *q, const attention *a, tide_tensor *made[4]) {
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

static tide_tensor *flash(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, const attention *a) {
    tide_node *node = node_of(m, &flash_backward, q, k, v, a->ends, false, a);
    tide_tensor *made[4];
    if (a->is_flash_attn || !tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4)) {
        flash_forward(m, q, a, made);
        if (!a->is_flash_attn) tide_keep(m, TIDE_KEPT_ATTENTION, made, 4);
    }
    return kept(m, node, tide_set_grad_fn(m, node, made[0]), made[1], made[2], made[3]);
}

/* ---- efficient (memory-efficient attention) ---- */

/* mem_eff_attention/kernel_backward.h, kernels/cutlassB.h: one fp32 accumulator and a 16-byte lock per tile of dq; in
 * half precision with widths above 128 also fp32 dk and dv, one block of 64 keys for each split of the keys, which are
 * few with many heads (cuda/attention_backward.cu). */
static int64_t efficient_workspace(const attention *a, tide_dtype dtype, int capability) {
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
    attention a = of_node(node, q);
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
    tide_tensor *workspace = tide_scratch(m, efficient_workspace(&a, (tide_dtype)q->dtype, m->device.capability));
    tide_release(m, delta);
    tide_release(m, workspace);
    tide_release(m, wide_v);
    tide_release(m, wide_k);
    tide_release(m, g);
    for (int i = SLOTS - 1; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward efficient_backward = {"ScaledDotProductEfficientAttentionBackward0", efficient_run};

/* _scaled_dot_product_efficient_attention: output, log-sum-exp, seed and offset. */
static void efficient_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, bool needs_lse, const attention *a,
                              tide_tensor *made[4]) {
    for (int i = 2; i < 4; i++) made[i] = a->dropout <= 0 ? TIDE_EMPTY(m, TIDE_INT64, 1) : NULL;
    tide_shape shape = *q->shape;
    shape.dim[3] = v->shape->dim[3];
    made[0] = bshd(m, &shape, q->dtype);
    made[1] = TIDE_EMPTY(m, TIDE_FP32, a->batch, a->heads, needs_lse ? TIDE_ROUND_UP(a->queries, 32) : 0);
    if ((a->value_width > 128 || a->width > 128) && q->dtype != TIDE_FP32)
        tide_alloc_and_free(m, tide_count(made[0]) * 4); /* fp32 accumulator of the output */
}

static tide_tensor *efficient(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                              const attention *a) {
    tide_node *node = node_of(m, &efficient_backward, q, k, v, bias, true, a);
    tide_tensor *made[4];
    if (!tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4)) {
        efficient_forward(m, q, v, q->requires_grad || k->requires_grad || v->requires_grad, a, made);
        tide_keep(m, TIDE_KEPT_ATTENTION, made, 4);
    }
    return kept(m, node, tide_set_grad_fn(m, node, made[0]), made[1], made[2], made[3]);
}

/* ---- cuDNN ---- */

static void cudnn_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[SLOTS];
    for (int i = 0; i < SLOTS; i++) saved[i] = tide_saved_at(m, node, i);
    tide_tensor *q = saved[SLOT_Q], *k = saved[SLOT_K], *v = saved[SLOT_V];
    attention a = of_node(node, q);
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

static void cudnn_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, const attention *a, bool needs_lse,
                          tide_tensor **made) {
    made[2] = TIDE_EMPTY(m, TIDE_INT64, 1);
    made[3] = TIDE_EMPTY(m, TIDE_INT64, 1);
    tide_shape shape = *q->shape;
    shape.dim[3].size = v->shape->dim[3].size;
    made[0] = ordered_like(m, q, &shape);
    made[1] = needs_lse ? TIDE_EMPTY(m, TIDE_FP32, a->batch, a->heads, a->queries) : NULL;
}

static tide_tensor *cudnn(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                          const attention *a) {
    tide_node *node = node_of(m, &cudnn_backward, q, k, v, bias, false, a);
    tide_tensor *made[4];
    if (!tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4))
        cudnn_forward(m, q, v, a, q->requires_grad || k->requires_grad || v->requires_grad, made);
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
static tide_tensor *causal_bias(tide_machine *m, const attention *a, tide_dtype dtype) {
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

static tide_tensor *math(tide_machine *m, tide_tensor *query, tide_tensor *key, tide_tensor *value, tide_tensor *mask,
                         const attention *a) {
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

/* ---- choice: cuda/sdp_utils.cpp select_sdp_backend ---- */

typedef enum kernel { KERNEL_FLASH, KERNEL_EFFICIENT, KERNEL_CUDNN, KERNEL_MATH } kernel;

static bool flash_can(const tide_machine *m, const tide_tensor *q, const tide_tensor *mask, const attention *a) {
    if (mask || (q->dtype != TIDE_BF16 && q->dtype != TIDE_FP16) || m->device.capability < 80) return false;
    if (a->width > 256 || a->width != a->value_width || (a->is_causal && a->queries != a->keys)) return false;
    int capability = m->device.capability;
    bool is_small = capability == 86 || capability == 89 || capability >= 120;
    return !(is_small && q->requires_grad && a->width > 192 && a->width <= 224);
}

/* sdp_utils.cpp: can_use_mem_efficient_attention, minimum_gemm_alignment. */
static bool efficient_can(const tide_machine *m, const tide_tensor *q, const attention *a) {
    bool is_half = q->dtype == TIDE_FP16 || q->dtype == TIDE_BF16, has_old_cores = m->device.capability < 80;
    if (has_old_cores && q->dtype == TIDE_BF16) return false;
    int64_t multiple = is_half && m->device.capability >= 70 ? 8 : has_old_cores ? 1 : 4;
    return a->width % multiple == 0 && a->value_width % multiple == 0;
}

static bool is_hopper_or_blackwell(const tide_machine *m) {
    return m->device.capability >= 90 && m->device.capability < 120;
}

/* sdp_utils.cpp: check_cudnn_tensor_shapes. Without gradients any width up to 256 is supported. A mask that requires
 * gradients, such as a learned bias, is not. */
static bool cudnn_can(const tide_machine *m, const tide_tensor *q, const tide_tensor *mask, bool trains,
                      const attention *a) {
    if (mask && mask->requires_grad) return false;
    if ((q->dtype != TIDE_BF16 && q->dtype != TIDE_FP16) || m->device.capability < 80) return false;
    bool is_latent = a->width == 192 && a->value_width == 128; /* the widths of multi-head latent attention */
    bool is_width_known = a->width <= 128 || (is_latent && is_hopper_or_blackwell(m)) ||
                          ((a->width == 256 || (!trains && a->width < 256)) && is_hopper_or_blackwell(m));
    return a->width % 8 == 0 && is_width_known && a->value_width % 8 == 0 && a->dropout <= 0 && a->keys > 1;
}

/* First of all kernels; torchtitan sets its own order on all GPUs. */
static bool prefers_cudnn(const tide_machine *m) {
    bool is_allowed = m->sdpa == TIDE_SDPA_CUDNN || m->sdpa == TIDE_SDPA_DEFAULT;
    return m->sdpa == TIDE_SDPA_TITAN || (is_allowed && is_hopper_or_blackwell(m));
}

/* sdp_utils.cpp: priority_order, check_last_dim_stride_equals_1_dense. cuDNN comes first on these GPUs, and last, after
 * math, on all others. */
static kernel choose(const tide_machine *m, tide_tensor *const *all, const tide_tensor *mask, bool trains,
                     const attention *a) {
    const tide_tensor *q = all[0];
    bool allows_flash = m->sdpa == TIDE_SDPA_FLASH || m->sdpa == TIDE_SDPA_DEFAULT;
    bool allows_efficient = allows_flash || m->sdpa == TIDE_SDPA_EFFICIENT;
    if (m->sdpa == TIDE_SDPA_TITAN || m->sdpa == TIDE_SDPA_TITAN_FLASH) allows_flash = true;
    if (q->stride[3] != 1 || all[1]->stride[3] != 1 || all[2]->stride[3] != 1) return KERNEL_MATH;
    if (prefers_cudnn(m) && cudnn_can(m, q, mask, trains, a)) return KERNEL_CUDNN;
    if (allows_flash && flash_can(m, q, mask, a)) return KERNEL_FLASH;
    if (allows_efficient && efficient_can(m, q, a)) return KERNEL_EFFICIENT;
    return KERNEL_MATH;
}

/* convert_boolean_attn_mask: where(mask, 0, -inf) in the dtype of the query. */
static tide_tensor *additive(tide_machine *m, tide_tensor *mask, tide_dtype dtype) {
    if (mask->dtype != TIDE_BOOL) return tide_retain(mask);
    tide_shape scalar = {.dims = 0};
    tide_tensor *zero = tide_empty(m, &scalar, dtype), *least = tide_empty(m, &scalar, dtype);
    tide_tensor *made = tide_elementwise(m, &mask, 1, dtype);
    tide_release(m, least);
    tide_release(m, zero);
    return made;
}

/* attention.cpp: preprocess_mask. Rows of the bias begin at multiples of 8 elements, or a padded copy is made; then it
 * is expanded to all scores. */
static tide_tensor *aligned_bias(tide_machine *m, tide_tensor *bias, const attention *a) {
    int64_t last = bias->shape->dim[bias->shape->dims - 1].size, multiple = 8;
    tide_tensor *aligned = tide_retain(bias);
    if (last % multiple) {
        tide_tensor *padded =
            tide_pad(m, bias, &(int64_t){TIDE_ROUND_UP(last, multiple) - last}, 1, bias->shape->dims - 1);
        aligned = replaced(m, aligned,
                           tide_slice(m, padded, -1, (tide_dim){0, 0},
                                      (tide_dim){last, bias->shape->dim[bias->shape->dims - 1].name}));
        tide_release(m, padded);
    }
    tide_shape shape = {.dim = {{a->batch, 0}, {a->heads, 0}, {a->queries, 0}, {a->keys, 0}}, .dims = 4};
    return replaced(m, aligned, tide_expand(m, aligned, &shape));
}

static tide_tensor *padded_flash(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, const attention *a) {
    int64_t wide = TIDE_ROUND_UP(a->width, 8);
    if (wide == a->width) return flash(m, q, k, v, a);
    attention padded = *a;
    padded.width = padded.value_width = wide;
    tide_tensor *all[3] = {q, k, v};
    for (int i = 0; i < 3; i++) all[i] = tide_pad(m, all[i], &(int64_t){wide - a->width}, 1, all[i]->shape->dims - 1);
    tide_tensor *out = flash(m, all[0], all[1], all[2], &padded);
    for (int i = 0; i < 3; i++) tide_release(m, all[i]);
    tide_tensor *cut = tide_slice(m, out, -1, (tide_dim){0, 0}, (tide_dim){a->width, q->shape->dim[3].name});
    tide_release(m, out);
    return cut;
}

/* The sizes of query, key and value, which are (batch, heads, sequence, width); false after an error. */
static bool attention_sizes(tide_machine *m, const char *name, tide_tensor *const *all, attention *a) {
    const tide_shape *q = all[0]->shape, *k = all[1]->shape, *v = all[2]->shape;
    uint8_t of_q = all[0]->dtype, of_k = all[1]->dtype, of_v = all[2]->dtype;
    bool ok = q->dims == 4 && k->dims == 4 && v->dims == 4 && q->dim[3].size == k->dim[3].size &&
              k->dim[2].size == v->dim[2].size && k->dim[1].size == v->dim[1].size && k->dim[1].size > 0 &&
              q->dim[1].size % k->dim[1].size == 0;
    if (!ok)
        tide_fail(m, TIDE_ERR_SHAPE, "%s: query %s, key %s, value %s", name, tide_shape_text(m, q),
                  tide_shape_text(m, k), tide_shape_text(m, v));
    else if (of_q != of_k || of_q != of_v) /* validate_sdpa_input() */
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "\"Expected query, key, and value to have the same dtype, but got query.dtype: %s key.dtype: %s and "
                  "value.dtype: %s instead\"",
                  tide_cpp_dtype(of_q), tide_cpp_dtype(of_k), tide_cpp_dtype(of_v));
    if (m->has_failed) return false;
    a->batch = q->dim[0].size;
    a->heads = q->dim[1].size;
    a->queries = q->dim[2].size;
    a->width = q->dim[3].size;
    a->kv_heads = k->dim[1].size;
    a->keys = k->dim[2].size;
    a->value_width = v->dim[3].size;
    return true;
}

static tide_value op_sdpa(tide_machine *m, tide_value *arguments) {
    tide_tensor *q = tide_arg_tensor(m, arguments[0]), *k = tide_arg_tensor(m, arguments[1]),
                *v = tide_arg_tensor(m, arguments[2]);
    tide_tensor *mask = tide_arg_tensor_or_none(m, arguments[3]);
    attention a = {.is_causal = tide_arg_bool(m, arguments[5]), .repeats = tide_arg_bool(m, arguments[6])};
    a.dropout = tide_arg_number(m, arguments[4]);
    tide_tensor *all[3] = {q, k, v};
    if (!attention_sizes(m, "scaled_dot_product_attention", all, &a)) return tide_none();
    kernel chosen = choose(m, all, mask, tide_needs_node(m, all, 3), &a);
    if (chosen == KERNEL_FLASH) return tide_of_tensor(padded_flash(m, q, k, v, &a));
    tide_tensor *bias = mask ? additive(m, mask, (tide_dtype)q->dtype) : NULL, *out;
    if (chosen == KERNEL_CUDNN) {
        out = cudnn(m, q, k, v, bias, &a);
    } else if (chosen == KERNEL_EFFICIENT) {
        tide_tensor *aligned = bias ? aligned_bias(m, bias, &a) : NULL;
        tide_release_at(m, &bias);
        out = efficient(m, q, k, v, aligned, &a);
        tide_release(m, aligned);
    } else {
        out = math(m, q, k, v, bias, &a);
    }
    tide_release(m, bias);
    return tide_of_tensor(out);
}

/* flash_attn_func and flash_attn_varlen_func of flash-attn 2.8.3, the kernel that PyTorch has
 * (csrc/flash_attn/flash_api.cpp). Before it transformers casts fp32 inputs itself (fa_peft_integration_check). */
static tide_value op_flash_attention(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3], *ends = tide_arg_tensor_or_none(m, arguments[5]);
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    attention a = {.dropout = tide_arg_number(m, arguments[3]), .ends = ends, .is_flash_attn = true};
    a.sequences = tide_arg_int(m, arguments[4]);
    if (!attention_sizes(m, "flash_attention", all, &a)) return tide_none();
    bool is_half = all[0]->dtype == TIDE_BF16 || all[0]->dtype == TIDE_FP16;
    if (!is_half || m->device.capability < 80 || a.width > 256 || a.width != a.value_width || a.sequences < 0 ||
        (a.sequences && a.batch != 1)) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED,
                  "flash_attention takes bf16 or fp16 and heads of at most 256, all of one width, on GPUs of "
                  "capability 8.0 or more; these are %s in %s",
                  tide_shape_text(m, all[0]->shape), tide_dtype_names[all[0]->dtype]);
        return tide_none();
    }
    return tide_of_tensor(padded_flash(m, all[0], all[1], all[2], &a));
}

static tide_value list_of(tide_machine *m, tide_tensor *const made[4]) {
    tide_list *list = tide_list_new(m);
    for (int i = 0; i < 4; i++) tide_list_push(m, list, made[i] ? tide_of_tensor(made[i]) : tide_none());
    return (tide_value){.kind = TIDE_VALUE_LIST, .list = list};
}

/* The kernel of ring attention, of the query and value of a rank; without flash it is memory-efficient. */
static kernel ring_kernel(const tide_machine *m, const tide_tensor *q, const attention *a) {
    if (prefers_cudnn(m) && cudnn_can(m, q, NULL, true, a)) return KERNEL_CUDNN;
    return m->sdpa != TIDE_SDPA_EFFICIENT && flash_can(m, q, NULL, a) ? KERNEL_FLASH : KERNEL_EFFICIENT;
}

static tide_value op_ring_kernel(tide_machine *m, tide_value *arguments) {
    static const char *const names[] = {
        [KERNEL_CUDNN] = "cudnn", [KERNEL_FLASH] = "flash", [KERNEL_EFFICIENT] = "efficient"};
    const tide_tensor *q = tide_arg_tensor(m, arguments[0]), *v = tide_arg_tensor(m, arguments[1]);
    attention a = {.width = q->shape->dim[3].size, .value_width = v->shape->dim[3].size, .keys = q->shape->dim[2].size};
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(names[ring_kernel(m, q, &a)])};
}

/* Without a node, which ring attention has itself. */
static tide_value op_ring_block(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3], *made[4];
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    attention a = {.dropout = tide_arg_number(m, arguments[3])};
    if (!attention_sizes(m, "ring_block", all, &a)) return tide_none();
    kernel chosen = ring_kernel(m, all[0], &a);
    if (chosen == KERNEL_EFFICIENT && a.queries % 32)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "seq",
                          "ring attention does not take off what rounds log-sum-exp up to "
                          "32 rows, of %lld; give a multiple of 64 x parallel.cp",
                          (long long)a.queries);
    else if (chosen == KERNEL_CUDNN)
        cudnn_forward(m, all[0], all[2], &a, true, made);
    else if (chosen == KERNEL_FLASH)
        flash_forward(m, all[0], &a, made);
    else
        efficient_forward(m, all[0], all[2], true, &a, made);
    return m->has_failed ? tide_none() : list_of(m, made);
}

static tide_value op_efficient_workspace(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3];
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    attention a = {0};
    if (!attention_sizes(m, "efficient_workspace", all, &a)) return tide_none();
    return tide_of_tensor(tide_scratch(m, efficient_workspace(&a, (tide_dtype)all[0]->dtype, m->device.capability)));
}

/* To selective checkpointing, DTensor's attention is a single operation, whatever runs inside. */
static tide_value op_kept_attention(tide_machine *m, tide_value *arguments) {
    tide_tensor *made[4];
    (void)arguments;
    return tide_take_kept(m, TIDE_KEPT_ATTENTION, made, 4) ? list_of(m, made) : tide_none();
}

static tide_value op_keep_attention(tide_machine *m, tide_value *arguments) {
    tide_tensor *made[4];
    for (int i = 0; i < 4; i++) made[i] = tide_arg_tensor_or_none(m, arguments[i]);
    if (!m->has_failed) tide_keep(m, TIDE_KEPT_ATTENTION, made, 4);
    return tide_none();
}

static const tide_op attention_ops[] = {
    {"ring_kernel", "query, value", TIDE_CAST_NONE, op_ring_kernel},
    {"ring_block", "query, key, value, dropout_p", TIDE_CAST_NONE, op_ring_block},
    {"efficient_workspace", "query, key, value", TIDE_CAST_NONE, op_efficient_workspace},
    {"kept_attention", "", TIDE_CAST_NONE, op_kept_attention},
    {"keep_attention", "out, lse, seed, offset", TIDE_CAST_NONE, op_keep_attention},
    {"flash_attention", "query, key, value, dropout_p=0, sequences=0, ends=none", TIDE_CAST_LOWER_IN_ORDER,
     op_flash_attention},
    {"scaled_dot_product_attention", "query, key, value, attn_mask=none, dropout_p=0, is_causal=false, enable_gqa=true",
     TIDE_CAST_LOWER, op_sdpa},
};
TIDE_OP_TABLE(attention)
