# SPDX-License-Identifier: Apache-2.0
"""Rows of several sequences, all of one length, as megatron/bridge/training/gpt_step.py hands them to the model."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...case import Case
from ...plans import Megatron


def params(case: Case, given: Any) -> dict[str, Any]:
    """Arguments of the model; the stages between the first and the last one have no batch, and no lengths either."""
    from megatron.core.packed_seq_params import PackedSeqParams

    plan = case.parallel
    assert isinstance(plan, Megatron)
    if not plan.packed_sequences or given is None:
        return {}
    length = case.seq // plan.packed_sequences
    ends = torch.arange(0, case.seq + 1, length, dtype=torch.int32).cuda(non_blocking=True)
    longest = torch.tensor(length)
    lengths: dict[str, Any] = {"cu_seqlens_q": ends, "cu_seqlens_kv": ends, "max_seqlen_q": longest, "max_seqlen_kv": longest}
    return {"packed_seq_params": PackedSeqParams(qkv_format="thd", **lengths)}


def tell_lengths(case: Case, count: int) -> None:
    """Rotary embeddings that are not fused ask the device for the lengths, which are not computed here."""
    from megatron.core.models.common.embeddings import rope_utils

    original = rope_utils._apply_rotary_pos_emb_thd

    @functools.wraps(original)
    def told(*args: Any, **kwargs: Any) -> Any:
        as_list = torch.Tensor.tolist
        torch.Tensor.tolist = lambda lengths: [case.seq // count] * count
        try:
            return original(*args, **kwargs)
        finally:
            torch.Tensor.tolist = as_list

    rope_utils._apply_rotary_pos_emb_thd = told
