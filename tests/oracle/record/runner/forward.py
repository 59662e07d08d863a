# SPDX-License-Identifier: Apache-2.0
"""One forward pass, up to the scalar that is differentiated."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Case
from .batches import Batch
from .models import DTYPES


def autocast(case: Case) -> Any:
    if not case.autocast:
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=DTYPES[case.autocast])


def loss_of(model: Any, batch: Batch) -> tuple[Any, Any]:
    """The model's output and a scalar to differentiate."""
    target = batch.get("target")
    if "x" in batch:  # timm
        out = model(batch["x"])
        return out, F.cross_entropy(out, target) if target is not None else out.mean()
    if target is not None:  # diffusers
        out = model(**{k: v for k, v in batch.items() if k != "target"})
        return out, F.mse_loss(out.sample.float(), target.float())
    out = model(**batch)
    if getattr(out, "loss", None) is not None:
        return out, out.loss
    value = out[0] if isinstance(out, (tuple, list)) else next(v for v in out.values() if isinstance(v, torch.Tensor))
    return out, value.mean()
