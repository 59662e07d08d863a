/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of Transformer Engine and flash-attn that descriptions call: only their memory, without nodes; the
 * autograd functions around them are in the descriptions.
 *
 * Transformer Engine 2.20.2:
 * common/normalization/{rmsnorm,layernorm}/{..._fwd_cuda_kernel,..._bwd_semi_cuda_kernel}.cu,
 * pytorch/attention/dot_product_attention/utils.py; flash-attn 2.8.3: csrc/flash_attn/flash_api.cpp. */
#include "base/units.h"
#include "tensor/ops/ops.h"

/* ---- flash-attn: tensors are (batch, sequence, heads, width); those of packed sequences (tokens, heads, width) ----
 */

static int64_t rounded_width(int64_t width) {
    return TIDE_ROUND_UP(width, width <= 128 ? 32 : 64);
}

static bool are_attended(tide_machine *m, const tide_tensor *q, const tide_tensor *k, int dims) {
    bool ok = q->shape->dims == dims && k->shape->dims == dims &&
              q->shape->dim[dims - 1].size == k->shape->dim[dims - 1].size;
    if (!ok)
        tide_fail(m, TIDE_ERR_SHAPE, "flash_attn: query %s, key %s", tide_shape_text(m, q->shape),
                  tide_shape_text(m, k->shape));
    return ok;
}

/* The output, log-sum-exp and the state of the random number generator, after the scratch of splits. */
static tide_value flash_results(tide_machine *m, tide_tensor *q, int64_t batch, int64_t heads, int64_t queries,
                                int64_t splits) {
    tide_list *made = tide_list_new(m);
    tide_list_push(m, made, tide_of_tensor(tide_empty_like(m, q, q->dtype)));
    tide_list_push(m, made, tide_of_tensor(TIDE_EMPTY(m, TIDE_FP32, batch, heads, queries)));
    if (splits > 1) {
        tide_tensor *lse = TIDE_EMPTY(m, TIDE_FP32, splits, batch, heads, queries);
        int64_t width = rounded_width(q->shape->dim[q->shape->dims - 1].size);
        tide_tensor *out = TIDE_EMPTY(m, TIDE_FP32, splits, batch, heads, queries, width);
        tide_release(m, out);
        tide_release(m, lse);
    }
    tide_list_push(m, made, tide_of_tensor(TIDE_EMPTY(m, TIDE_INT64, 2)));
    return (tide_value){.kind = TIDE_VALUE_LIST, .list = made};
}

/* _flash_attn_forward (mha_fwd) */
static tide_value op_flash_attn_forward(tide_machine *m, tide_value *a) {
    tide_tensor *q = tide_arg_tensor(m, a[0]), *k = tide_arg_tensor(m, a[1]);
    if (m->has_failed || !are_attended(m, q, k, 4)) return tide_none();
    int64_t batch = q->shape->dim[0].size, queries = q->shape->dim[1].size, heads = q->shape->dim[2].size,
            width = q->shape->dim[3].size, keys = k->shape->dim[1].size;
    bool drops = tide_arg_number(m, a[2]) > 0;
    int64_t splits = drops ? 1 : tide_flash_splits(m, batch * heads, queries, keys, width);
    return flash_results(m, q, batch, heads, queries, splits);
}

/* _flash_attn_varlen_forward (mha_varlen_fwd), which does not split keys */
static tide_value op_flash_attn_varlen_forward(tide_machine *m, tide_value *a) {
    tide_tensor *q = tide_arg_tensor(m, a[0]), *k = tide_arg_tensor(m, a[1]);
    if (m->has_failed || !are_attended(m, q, k, 3)) return tide_none();
    return flash_results(m, q, 1, q->shape->dim[1].size, q->shape->dim[0].size, 1);
}

/* C++ locals, destroyed in reverse order; softmax_d is returned. */
static void flash_scratch(tide_machine *m, const tide_tensor *q, const tide_tensor *k, int64_t batch, int64_t rows) {
    int64_t heads = q->shape->dim[q->shape->dims - 2].size, width = q->shape->dim[q->shape->dims - 1].size,
            keys = k->shape->dim[k->shape->dims - 3].size;
    tide_tensor *softmax_d = TIDE_EMPTY(m, TIDE_FP32, batch, heads, rows);
    tide_tensor *dq = TIDE_EMPTY(m, TIDE_FP32, batch, rows, heads, rounded_width(width)), *dk = NULL, *dv = NULL;
    if (k->shape->dim[k->shape->dims - 2].size != heads) {
        dk = TIDE_EMPTY(m, (tide_dtype)q->dtype, batch, keys, heads, width);
        dv = TIDE_EMPTY(m, (tide_dtype)q->dtype, batch, keys, heads, width);
    }
    tide_release(m, dv);
    tide_release(m, dk);
    tide_release(m, dq);
    tide_release(m, softmax_d);
}

/* _flash_attn_backward (mha_bwd), except for the gradients, which its caller allocates. */
static tide_value op_flash_attn_backward(tide_machine *m, tide_value *a) {
    tide_tensor *q = tide_arg_tensor(m, a[0]), *k = tide_arg_tensor(m, a[1]);
    if (m->has_failed || !are_attended(m, q, k, 4)) return tide_none();
    flash_scratch(m, q, k, q->shape->dim[0].size, TIDE_ROUND_UP(q->shape->dim[1].size, 128));
    return tide_none();
}

/* _flash_attn_varlen_backward (mha_varlen_bwd), likewise: total_q + 128 * batch_size rows. */
static tide_value op_flash_attn_varlen_backward(tide_machine *m, tide_value *a) {
    tide_tensor *q = tide_arg_tensor(m, a[0]), *k = tide_arg_tensor(m, a[1]);
    int64_t sequences = tide_arg_int(m, a[2]);
    if (m->has_failed || !are_attended(m, q, k, 3)) return tide_none();
    flash_scratch(m, q, k, 1, q->shape->dim[0].size + 128 * sequences);
    return tide_none();
}

/* ---- layout of queries, keys and values ---- */

static bool has_strides(const tide_tensor *a, const tide_tensor *b) {
    for (int i = 0; i < a->shape->dims; i++)
        if (a->stride[i] != b->stride[i]) return false;
    return true;
}

static int64_t width_of(const tide_tensor *t) {
    return t->shape->dim[t->shape->dims - 1].size;
}

/* Whether all dimensions but the last one are equal. */
static bool has_rows_of(const tide_tensor *a, const tide_tensor *b) {
    for (int i = 0; i + 1 < a->shape->dims; i++)
        if (a->shape->dim[i].size != b->shape->dim[i].size) return false;
    return true;
}

/* Whether strides are equal except in the last dimension, relative to the width. */
static bool has_strides_of(const tide_tensor *k, const tide_tensor *v) {
    for (int i = 0; i + 1 < k->shape->dims; i++)
        if (k->stride[i] * width_of(v) != v->stride[i] * width_of(k)) return false;
    return true;
}

/* Whether the parts follow one another at intervals of `step` elements from `from` on. */
static bool lie_at(tide_tensor *const *parts, int count, int64_t from, int64_t step) {
    for (int i = 0; i < count; i++)
        if (parts[i]->offset != from + i * step) return false;
    return true;
}

/* get_qkv_layout() of (sequence, batch, heads, width), or of packed sequences: how query, key and value are laid out in
 * memory, in the words for the former; "not_supported": they are copied. */
static tide_value op_get_qkv_layout(tide_machine *m, tide_value *a) {
    tide_tensor *parts[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]), tide_arg_tensor(m, a[2])};
    tide_tensor *q = parts[0], *k = parts[1], *v = parts[2];
    const char *layout = "not_supported";
    int dims = m->has_failed ? 0 : q->shape->dims;
    if ((dims != 3 && dims != 4) || k->shape->dims != dims || v->shape->dims != dims) return tide_none();
    bool share_qk = q->storage == k->storage, share_kv = k->storage == v->storage, share_all = share_qk && share_kv;
    bool alike = tide_same_shape(q->shape, k->shape) && tide_same_shape(q->shape, v->shape);
    bool alike_kv = has_rows_of(k, v);
    int64_t q_width = width_of(q), k_width = width_of(k), of_q = share_all ? tide_count(q) : 0;
    bool is_packed = share_all && alike && has_strides(q, k) && has_strides(q, v);
    bool is_kv = share_kv && alike_kv && has_strides_of(k, v);
    int64_t at_k = share_qk ? tide_count(q) : 0, at_v = share_all ? at_k + tide_count(k) : share_kv ? tide_count(k) : 0;
    bool starts = q->offset == 0 && k->offset == at_k && v->offset == at_v;
    if (is_packed && lie_at(parts, 3, 0, q_width * q->shape->dim[dims - 2].size))
        layout = "sb3hd";
    else if (is_packed && lie_at(parts, 3, 0, q_width))
        layout = "sbh3d";
    else if (is_kv && lie_at(parts + 1, 2, of_q, k_width * k->shape->dim[dims - 2].size))
        layout = "sbhd_sb2hd";
    else if (is_kv && lie_at(parts + 1, 2, of_q, k_width))
        layout = "sbhd_sbh2d";
    else if (alike_kv && has_strides_of(k, v) && starts)
        layout = "sbhd_sbhd_sbhd";
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(layout)};
}

/* ---- norms ---- */

/* REGISTER_NORM_LAUNCHER for half-precision inputs: thread blocks and warps for a row of so many columns. */
typedef struct launcher {
    int columns, ctas_per_row, warps_m, warps_n;
} launcher;

static const launcher te_layer_norm_backward[] = {
    {768, 1, 4, 1},   {1024, 1, 4, 1},  {1536, 1, 1, 4},  {2048, 1, 1, 4},  {2304, 1, 1, 4},  {3072, 1, 1, 4},
    {3840, 1, 1, 4},  {4096, 1, 1, 4},  {5120, 1, 1, 4},  {6144, 1, 1, 8},  {8192, 2, 1, 4},  {10240, 2, 1, 4},
    {12288, 4, 1, 4}, {12800, 5, 1, 4}, {15360, 4, 1, 4}, {16384, 4, 1, 4}, {18432, 4, 1, 4}, {20480, 4, 1, 4},
    {24576, 4, 1, 8}, {25600, 5, 1, 4}, {30720, 4, 1, 8}, {32768, 4, 1, 8}, {40960, 4, 1, 8}, {49152, 8, 1, 8},
    {65536, 8, 1, 8}, {0, 0, 0, 0}};
static const launcher te_layer_norm_forward[] = {
    {768, 1, 4, 1},   {1024, 1, 4, 1},  {1536, 1, 4, 1},  {2048, 1, 4, 1},  {2304, 1, 4, 1},  {3072, 1, 1, 4},
    {3840, 1, 1, 4},  {4096, 1, 1, 4},  {5120, 1, 1, 4},  {6144, 1, 1, 4},  {8192, 1, 1, 4},  {10240, 1, 1, 4},
    {12288, 2, 1, 4}, {12800, 2, 1, 4}, {15360, 2, 1, 4}, {16384, 2, 1, 4}, {18432, 2, 1, 4}, {20480, 2, 1, 4},
    {24576, 2, 1, 4}, {25600, 2, 1, 4}, {30720, 4, 1, 4}, {32768, 4, 1, 4}, {40960, 4, 1, 4}, {49152, 4, 1, 4},
    {65536, 8, 1, 4}, {0, 0, 0, 0}};
static const launcher te_rms_norm_backward[] = {{512, 1, 4, 1},  {768, 1, 4, 1},  {1024, 1, 4, 1}, {2048, 1, 1, 4},
                                                {4096, 1, 1, 4}, {8192, 1, 1, 4}, {0, 0, 0, 0}};
static const launcher te_rms_norm_forward[] = {{512, 1, 4, 1},  {768, 1, 4, 1},  {1024, 1, 4, 1}, {2048, 1, 4, 1},
                                               {4096, 1, 1, 4}, {8192, 1, 1, 4}, {0, 0, 0, 0}};
/* For other widths: the first entry that is not narrower, else the last; a row takes as many blocks as it needs. */
static const launcher general_backward[] = {{128, 0, 4, 1},  {512, 0, 4, 1},  {1024, 0, 4, 1},
                                            {2048, 0, 1, 4}, {4096, 0, 1, 4}, {0, 0, 0, 0}};
static const launcher general_forward[] = {{128, 0, 4, 1},  {512, 0, 4, 1},  {1024, 0, 4, 1},
                                           {2048, 0, 4, 1}, {8192, 0, 1, 4}, {0, 0, 0, 0}};

static int64_t aligned_bytes(int64_t bytes) {
    return TIDE_ROUND_UP(bytes, 16); /* LaunchParams::alignWorkspace */
}

/* Bytes of scratch memory: partial sums of the weights' gradients for as many blocks as run on the device at once,
 * limited by threads (registers and shared memory may allow fewer), and what the blocks of a row exchange. */
static int64_t norm_workspace(const tide_machine *m, int64_t rows, int64_t columns, bool is_layer_norm,
                              bool is_backward) {
    const launcher *tuned = is_layer_norm ? is_backward ? te_layer_norm_backward : te_layer_norm_forward
                            : is_backward ? te_rms_norm_backward
                                          : te_rms_norm_forward;
    const launcher *general = is_backward ? general_backward : general_forward;
    while (tuned->columns && (tuned->columns != columns || rows % 4)) tuned++;
    while (general->columns < columns && general[1].columns) general++;
    const launcher *l = tuned->columns ? tuned : general;
    int64_t slots = (int64_t)m->device.sms * (m->device.threads_per_sm / (32 * l->warps_m * l->warps_n));
    int64_t per_row = l->ctas_per_row ? l->ctas_per_row : TIDE_CEIL_DIV(columns, l->columns), per_col = slots / per_row;
    if (!l->ctas_per_row && TIDE_CEIL_DIV(rows, l->warps_m) < per_col) per_col = TIDE_CEIL_DIV(rows, l->warps_m);
    int64_t bytes = 0, element = is_layer_norm || is_backward ? 8 : 4; /* pairs */
    if (per_row > 1)
        bytes += aligned_bytes(2 * per_col * 4) + aligned_bytes(per_col * l->warps_m * per_row * element * 2);
    if (is_backward) bytes += (is_layer_norm ? 2 : 1) * aligned_bytes(per_col * columns * 4);
    return bytes ? bytes : 1;
}

static tide_value op_norm_workspace(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (m->has_failed || x->shape->dims < 1) return tide_none();
    int64_t columns = x->shape->dim[x->shape->dims - 1].size, rows = columns ? tide_count(x) / columns : 0;
    if (rows) tide_alloc_and_free(m, norm_workspace(m, rows, columns, tide_arg_bool(m, a[1]), tide_arg_bool(m, a[2])));
    return tide_none();
}

enum { STREAMS = 32 }; /* c10/cuda/CUDAStream.cpp: kStreamsPerPool */

/* with torch.cuda.stream(): later allocations belong to that stream; 0 is the default one. */
static tide_value op_use_stream(tide_machine *m, tide_value *a) {
    int64_t stream = tide_arg_int(m, a[0]);
    if (stream < 0 || stream >= STREAMS)
        tide_fail(m, TIDE_ERR_DESCRIPTION, "use_stream(%lld): 0 to %d", (long long)stream, STREAMS - 1);
    else
        m->state.stream = (uint32_t)stream;
    return tide_none();
}

/* x.grad_fn._set_sequence_nr(torch.iinfo(torch.int).max): it runs as soon as it is ready. */
static tide_value op_run_early(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (!m->has_failed && x->node) x->node->order = TIDE_ORDER_EARLY;
    return tide_none();
}

static const tide_op transformer_engine_ops[] = {
    {"flash_attn_forward", "q, k, dropout_p", TIDE_CAST_NONE, op_flash_attn_forward},
    {"flash_attn_backward", "q, k", TIDE_CAST_NONE, op_flash_attn_backward},
    {"flash_attn_varlen_forward", "q, k", TIDE_CAST_NONE, op_flash_attn_varlen_forward},
    {"flash_attn_varlen_backward", "q, k, sequences", TIDE_CAST_NONE, op_flash_attn_varlen_backward},
    {"get_qkv_layout", "q, k, v", TIDE_CAST_NONE, op_get_qkv_layout},
    {"use_stream", "stream", TIDE_CAST_NONE, op_use_stream},
    {"run_early", "x", TIDE_CAST_NONE, op_run_early},
    {"norm_workspace", "x, is_layer_norm, is_backward", TIDE_CAST_NONE, op_norm_workspace},
};
TIDE_OP_TABLE(transformer_engine)
