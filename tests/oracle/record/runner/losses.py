# SPDX-License-Identifier: Apache-2.0
"""Losses other than the model's own."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from ..case import Case


def apply(case: Case, model: Any) -> None:
    if case.loss == "default":
        return
    if case.loss == "liger":
        from .kernels import liger_loss

        return liger_loss(model)
    inner(model).loss_function = {"shifted": shifted, "no_upcast": no_upcast}[case.loss]


def inner(model: Any) -> Any:
    """The model that an adapter is around."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def shifted(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> Any:
    """transformers before 4.49 (loss_utils.py, ForCausalLMLoss): a copy of the fp32 logits without the last
    position."""
    logits = logits.float()
    labels = labels.to(logits.device)
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    shift_logits = shift_logits.view(-1, vocab_size)
    shift_labels = shift_labels.view(-1)
    shift_labels = shift_labels.to(shift_logits.device)
    return F.cross_entropy(shift_logits, shift_labels, ignore_index=-100, reduction="mean")


def no_upcast(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> Any:
    """ForCausalLMLoss without its fp32 copy."""
    labels = F.pad(labels, (0, 1), value=-100)
    shift_labels = labels[..., 1:].contiguous()
    logits = logits.view(-1, vocab_size)
    shift_labels = shift_labels.view(-1)
    shift_labels = shift_labels.to(logits.device)
    return F.cross_entropy(logits, shift_labels, ignore_index=-100, reduction="mean")
