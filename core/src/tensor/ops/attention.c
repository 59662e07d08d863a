/* SPDX-License-Identifier: Apache-2.0 */
/* scaled_dot_product_attention: which kernel computes it (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
 * select_sdp_backend), and operators that name their kernel. */
#include "tensor/checkpoint.h"
#include "tensor/ops/attention_kernels.h"

#include "base/units.h"

typedef enum kernel { KERNEL_FLASH, KERNEL_EFFICIENT, KERNEL_CUDNN, KERNEL_MATH } kernel;

static bool flash_can(const tide_machine *m, const tide_tensor *q, const tide_tensor *mask, const tide_attention *a) {
    if (mask || (q->dtype != TIDE_BF16 && q->dtype != TIDE_FP16) || m->device.capability < 80) return false;
    if (a->width > 256 || a->width != a->value_width || (a->is_causal && a->queries != a->keys)) return false;
    int capability = m->device.capability;
    bool is_small = capability == 86 || capability == 89 || capability >= 120;
    return !(is_small && q->requires_grad && a->width > 192 && a->width <= 224);
}

/* sdp_utils.cpp: can_use_mem_efficient_attention, minimum_gemm_alignment. */
static bool efficient_can(const tide_machine *m, const tide_tensor *q, const tide_attention *a) {
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
                      const tide_attention *a) {
    if (mask && mask->requires_grad) return false;
    if ((q->dtype != TIDE_BF16 && q->dtype != TIDE_FP16) || m->device.capability < 80) return false;
    bool is_latent = a->width == 192 && a->value_width == 128; /* the widths of multi-head latent tide_attention */
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
                     const tide_attention *a) {
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
static tide_tensor *aligned_bias(tide_machine *m, tide_tensor *bias, const tide_attention *a) {
    int64_t last = bias->shape->dim[bias->shape->dims - 1].size, multiple = 8;
    tide_tensor *aligned = tide_retain(bias);
    if (last % multiple) {
        tide_tensor *padded =
            tide_pad(m, bias, &(int64_t){TIDE_ROUND_UP(last, multiple) - last}, 1, bias->shape->dims - 1);
        tide_dim end = {last, bias->shape->dim[bias->shape->dims - 1].name};
        tide_release(m, aligned);
        aligned = tide_slice(m, padded, -1, (tide_dim){0, 0}, end);
        tide_release(m, padded);
    }
    tide_shape shape = {.dim = {{a->batch, 0}, {a->heads, 0}, {a->queries, 0}, {a->keys, 0}}, .dims = 4};
    tide_tensor *expanded = tide_expand(m, aligned, &shape);
    tide_release(m, aligned);
    return expanded;
}

static tide_tensor *padded_flash(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v,
                                 const tide_attention *a) {
    int64_t wide = TIDE_ROUND_UP(a->width, 8);
    if (wide == a->width) return tide_flash(m, q, k, v, a);
    tide_attention padded = *a;
    padded.width = padded.value_width = wide;
    tide_tensor *all[3] = {q, k, v};
    for (int i = 0; i < 3; i++) all[i] = tide_pad(m, all[i], &(int64_t){wide - a->width}, 1, all[i]->shape->dims - 1);
    tide_tensor *out = tide_flash(m, all[0], all[1], all[2], &padded);
    for (int i = 0; i < 3; i++) tide_release(m, all[i]);
    tide_tensor *cut = tide_slice(m, out, -1, (tide_dim){0, 0}, (tide_dim){a->width, q->shape->dim[3].name});
    tide_release(m, out);
    return cut;
}

/* The sizes of query, key and value, which are (batch, heads, sequence, width); false after an error. */
static bool attention_sizes(tide_machine *m, const char *name, tide_tensor *const *all, tide_attention *a) {
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
    tide_attention a = {.is_causal = tide_arg_bool(m, arguments[5]), .repeats = tide_arg_bool(m, arguments[6])};
    a.dropout = tide_arg_number(m, arguments[4]);
    tide_tensor *all[3] = {q, k, v};
    if (!attention_sizes(m, "scaled_dot_product_attention", all, &a)) return tide_none();
    kernel chosen = choose(m, all, mask, tide_needs_node(m, all, 3), &a);
    if (chosen == KERNEL_FLASH) return tide_of_tensor(padded_flash(m, q, k, v, &a));
    tide_tensor *bias = mask ? additive(m, mask, (tide_dtype)q->dtype) : NULL, *out;
    if (chosen == KERNEL_CUDNN) {
        out = tide_cudnn(m, q, k, v, bias, &a);
    } else if (chosen == KERNEL_EFFICIENT) {
        tide_tensor *aligned = bias ? aligned_bias(m, bias, &a) : NULL;
        tide_release_at(m, &bias);
        out = tide_efficient(m, q, k, v, aligned, &a);
        tide_release(m, aligned);
    } else {
        out = tide_math_attention(m, q, k, v, bias, &a);
    }
    tide_release(m, bias);
    return tide_of_tensor(out);
}

/* flash_attn_func and flash_attn_varlen_func of flash-attn 2.8.3, the kernel that PyTorch has
 * (csrc/flash_attn/flash_api.cpp). Before it transformers casts fp32 inputs itself (fa_peft_integration_check). */
static tide_value op_flash_attention(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3], *ends = tide_arg_tensor_or_none(m, arguments[5]);
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    tide_attention a = {.dropout = tide_arg_number(m, arguments[3]), .ends = ends, .is_flash_attn = true};
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
static kernel ring_kernel(const tide_machine *m, const tide_tensor *q, const tide_attention *a) {
    if (prefers_cudnn(m) && cudnn_can(m, q, NULL, true, a)) return KERNEL_CUDNN;
    return m->sdpa != TIDE_SDPA_EFFICIENT && flash_can(m, q, NULL, a) ? KERNEL_FLASH : KERNEL_EFFICIENT;
}

static tide_value op_ring_kernel(tide_machine *m, tide_value *arguments) {
    static const char *const names[] = {
        [KERNEL_CUDNN] = "cudnn", [KERNEL_FLASH] = "flash", [KERNEL_EFFICIENT] = "efficient"};
    const tide_tensor *q = tide_arg_tensor(m, arguments[0]), *v = tide_arg_tensor(m, arguments[1]);
    tide_attention a = {
        .width = q->shape->dim[3].size, .value_width = v->shape->dim[3].size, .keys = q->shape->dim[2].size};
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(names[ring_kernel(m, q, &a)])};
}

/* Without a node, which ring attention has itself. */
static tide_value op_ring_block(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3], *made[4];
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    tide_attention a = {.dropout = tide_arg_number(m, arguments[3])};
    if (!attention_sizes(m, "ring_block", all, &a)) return tide_none();
    kernel chosen = ring_kernel(m, all[0], &a);
    if (chosen == KERNEL_EFFICIENT && a.queries % 32)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "seq",
                          "ring attention does not take off what rounds log-sum-exp up to "
                          "32 rows, of %lld; give a multiple of 64 x parallel.cp",
                          (long long)a.queries);
    else if (chosen == KERNEL_CUDNN)
        tide_cudnn_forward(m, all[0], all[2], &a, true, made);
    else if (chosen == KERNEL_FLASH)
        tide_flash_forward(m, all[0], &a, made);
    else
        tide_efficient_forward(m, all[0], all[2], true, &a, made);
    return m->has_failed ? tide_none() : list_of(m, made);
}

static tide_value op_efficient_workspace(tide_machine *m, tide_value *arguments) {
    tide_tensor *all[3];
    for (int i = 0; i < 3; i++) all[i] = tide_arg_tensor(m, arguments[i]);
    tide_attention a = {0};
    if (!attention_sizes(m, "efficient_workspace", all, &a)) return tide_none();
    return tide_of_tensor(
        tide_scratch(m, tide_efficient_workspace(&a, (tide_dtype)all[0]->dtype, m->device.capability)));
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
