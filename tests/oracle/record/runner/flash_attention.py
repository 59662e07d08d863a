# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the flash-attn package in transformers, which cannot be built without a GPU's compiler.

Its functions by name, over the flash kernels inside PyTorch: the same code base (version 2), the same saved tensors
(query, key, value, output, log-sum-exp, random state), the same buffers in the backward pass (row sums, fp32 query
gradient, expanded key and value gradients where several heads share one).
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

VERSION = "2.8.3"


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    **unused: Any,
) -> Any:
    return attend(q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, softmax_scale, causal, window_size)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    return attend(
        q,
        k,
        v,
        cu_seqlens_q.int(),
        cu_seqlens_k.int(),
        int(max_seqlen_q),
        int(max_seqlen_k),
        dropout_p,
        softmax_scale,
        causal,
        window_size,
    )


def attend(
    q: Any,
    k: Any,
    v: Any,
    cu_q: Any,
    cu_k: Any,
    max_q: int,
    max_k: int,
    dropout: float,
    scale: float | None,
    causal: bool,
    window: tuple[int, int],
) -> Any:
    left, right = (None if w < 0 else w for w in window)
    return torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        cu_q,
        cu_k,
        max_q,
        max_k,
        dropout,
        causal,
        False,
        scale=scale,
        window_size_left=left,
        window_size_right=right,
    )[0]


def install(padding: bool) -> None:
    from transformers import PreTrainedModel, masking_utils, modeling_flash_attention_utils as flash

    package: Any = types.ModuleType("flash_attn")
    padder: Any = types.ModuleType("flash_attn.bert_padding")
    package.flash_attn_func, package.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    package.flash_attn_with_kvcache = flash_attn_func
    package.__version__ = VERSION
    padder.pad_input, padder.unpad_input = flash._pad_input, flash._unpad_input
    sys.modules |= {"flash_attn": package, "flash_attn.bert_padding": padder}
    flash.is_flash_attn_2_available = lambda *args, **kwargs: True
    flash._is_packed_sequence = lambda position_ids, batch: False  # unless lengths are given, one per row
    PreTrainedModel._flash_attn_can_dispatch = lambda self, *args, **kwargs: True
    adjust = PreTrainedModel._check_and_adjust_attn_implementation

    def adjusted(self: Any, *args: Any, **kwargs: Any) -> Any:
        type(self)._compatible_flash_implementations = None  # kernels of the Hub with attention sinks, of the same kind
        return adjust(self, *args, **kwargs)

    PreTrainedModel._check_and_adjust_attn_implementation = adjusted
    if not padding:  # attention_mask.all(): nothing is padded
        masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"] = lambda *args, **kwargs: None
