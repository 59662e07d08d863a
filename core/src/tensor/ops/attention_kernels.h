/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of scaled_dot_product_attention, for query (batch, heads, queries, width), key (batch, kv_heads, keys,
 * width) and value (batch, kv_heads, keys, value_width). Private to ops/. */
#ifndef TIDE_TENSOR_OPS_ATTENTION_KERNELS_H
#define TIDE_TENSOR_OPS_ATTENTION_KERNELS_H

#include "tensor/ops/ops.h"

typedef struct tide_attention {
    int64_t batch, heads, kv_heads, queries, keys, width, value_width;
    int64_t sequences; /* of equal length, packed in a batch of one row: flash_attn_varlen_func; 0: an ordinary batch */
    tide_tensor *ends; /* their cu_seqlens, which it saves; may be NULL */
    double dropout;
    bool is_causal;
    bool repeats;       /* enable_gqa, where keys and values are copied for their queries; else they are broadcast */
    bool is_flash_attn; /* the package's operator, which is in no list of what selective checkpoints keep */
} tide_attention;

/* With nodes for backward; the bias may be NULL. Owned by the caller. */
tide_tensor *tide_flash(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, const tide_attention *a);
tide_tensor *tide_efficient(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                            const tide_attention *a);
tide_tensor *tide_cudnn(tide_machine *m, tide_tensor *q, tide_tensor *k, tide_tensor *v, tide_tensor *bias,
                        const tide_attention *a);
/* _scaled_dot_product_attention_math, in fp32 for half types */
tide_tensor *tide_math_attention(tide_machine *m, tide_tensor *query, tide_tensor *key, tide_tensor *value,
                                 tide_tensor *mask, const tide_attention *a);

/* Without nodes: the output, log-sum-exp, seed and offset, owned by the caller; some may be NULL. */
void tide_flash_forward(tide_machine *m, tide_tensor *q, const tide_attention *a, tide_tensor *made[4]);
void tide_efficient_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, bool needs_lse, const tide_attention *a,
                            tide_tensor *made[4]);
void tide_cudnn_forward(tide_machine *m, tide_tensor *q, tide_tensor *v, const tide_attention *a, bool needs_lse,
                        tide_tensor *made[4]);

/* Bytes of the memory-efficient kernel's workspace in backward. */
int64_t tide_efficient_workspace(const tide_attention *a, tide_dtype dtype, int capability);

#endif
