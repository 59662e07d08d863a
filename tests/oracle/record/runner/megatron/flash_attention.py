# SPDX-License-Identifier: Apache-2.0
"""flash-attn 2.8 as the allocator sees it, for Transformer Engine: the tensors that its forward and backward passes
make, and no kernels.

The library itself has no wheel on the package index and needs a CUDA compiler. What is allocated was read in its
flash_api.cpp and flash_attn_interface.py (2.8.3): forward the output, the log-sum-exp in fp32, two random numbers
and, when the grid would not fill the device, accumulators for splits along the keys; backward dq, dk, dv, the row
sums and an fp32 dq, and with grouped queries dk and dv of every query head.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import math
import sys
import types
from typing import Any

import torch

VERSION = "2.8.3"
NEAR_BEST = 0.85  # num_splits_heuristic: as few splits as come within 85 % of the best
MOST_SPLITS = 128
ROWS = 128  # kBlockM: rows of dq's accumulator are rounded to it
Size = tuple[int, int]


def install() -> None:
    """Makes `import flash_attn` find this module."""
    if "flash_attn" in sys.modules:
        return
    known = importlib.metadata.version
    importlib.metadata.version = lambda distribution_name: (
        VERSION if distribution_name == "flash-attn" else known(distribution_name)
    )
    package: Any = types.ModuleType("flash_attn")
    interface: Any = types.ModuleType("flash_attn.flash_attn_interface")
    kernels: Any = types.ModuleType("flash_attn_2_cuda")
    for module in (package, interface, kernels):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    package.__version__ = VERSION
    package.__path__ = []
    for function in (flash_attn_func, _flash_attn_forward, _flash_attn_backward, flash_attn_varlen_func):
        setattr(interface, function.__name__, function)
    for name in ("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"):
        setattr(interface, name, refused)
    package.flash_attn_interface = interface
    package.flash_attn_func, package.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    kernels.varlen_bwd = None
    sys.modules.update({m.__name__: m for m in (package, interface, kernels)})


def refused(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("packed sequences beside context parallelism")


def dense(x: Any) -> Any:
    return x if x.stride(-1) == 1 else x.contiguous()


def multiple(n: int, m: int) -> int:
    return -(-n // m) * m


def rounded_head(size: int) -> int:
    return multiple(size, 32 if size <= 128 else 64)


def splits(blocks: int, slots: int, columns: int) -> int:
    """Parts along the keys that fill the device: num_splits_heuristic()."""
    if blocks >= 0.8 * slots:
        return 1
    most = min(MOST_SPLITS, slots, columns)
    use: list[float] = []
    best = 0.0
    for n in range(1, most + 1):
        if n > 1 and -(-columns // n) == -(-columns // (n - 1)):
            use.append(0.0)
            continue
        waves = blocks * n / slots
        use.append(waves / math.ceil(waves))
        best = max(best, use[-1])
    return next(n for n, u in enumerate(use, 1) if u >= NEAR_BEST * best)


def _flash_attn_forward(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    return_softmax: bool = False,
) -> Any:
    q, k, v = (dense(x) for x in (q, k, v))
    b, s, h, d = q.shape
    out = torch.empty_like(q)
    fp32: dict[str, Any] = {"device": q.device, "dtype": torch.float32}
    lse = torch.empty(b, h, s, **fp32)
    if dropout_p == 0.0:
        width = 256 if d <= 64 else 128 if d <= 128 else 64
        sms = torch.cuda.get_device_properties(q.device).multi_processor_count
        n = splits(b * h * -(-s // 64), 2 * sms, -(-k.shape[1] // width))
        if n > 1:
            parts = torch.empty(n, b, h, s, **fp32), torch.empty(n, b, h, s, rounded_head(d), **fp32)
            del parts
    rng = torch.empty(2, device=q.device, dtype=torch.int64)
    return out, lse, None, rng


def _flash_attn_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    softmax_lse: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    rng_state: Any = None,
) -> Any:
    dout, q, k, v, out = (dense(x) for x in (dout, q, k, v, out))
    b, s, h, d = q.shape
    rows = multiple(s, ROWS)
    fp32: dict[str, Any] = {"device": q.device, "dtype": torch.float32}
    scratch = [torch.empty(b, h, rows, **fp32), torch.empty(b, rows, h, rounded_head(d), **fp32)]
    if k.shape[2] != h:
        scratch += [torch.empty(b, k.shape[1], h, d, device=q.device, dtype=q.dtype) for _ in range(2)]
    del scratch
    return torch.empty(0)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, dropout_p: float) -> Any:
        out, lse, _, rng = _flash_attn_forward(q, k, v, dropout_p, None, True)
        ctx.save_for_backward(q, k, v, out, lse, rng)
        ctx.dropout_p = dropout_p
        return out

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        q, k, v, out, lse, rng = ctx.saved_tensors
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        _flash_attn_backward(dout, q, k, v, out, lse, dq, dk, dv, ctx.dropout_p, None, True)
        return dq, dk, dv, None


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Size = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    return Attention.apply(q, k, v, dropout_p)


class VarlenAttention(torch.autograd.Function):
    """FlashAttnVarlenFunc: mha_varlen_fwd and mha_varlen_bwd, of (tokens, heads, width)."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, ends_q: Any, ends_k: Any, is_grad: bool) -> Any:
        q, k, v = (dense(x) for x in (q, k, v))
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[1], q.shape[0], device=q.device, dtype=torch.float32)
        rng = torch.empty(2, device=q.device, dtype=torch.int64)
        if is_grad:
            ctx.save_for_backward(q, k, v, out, lse, ends_q, ends_k, rng)
        return out

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        q, k, v, out, lse, ends_q, ends_k, rng = ctx.saved_tensors
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        dout = dense(dout)
        tokens, h, d = q.shape
        rows = tokens + ROWS * (ends_q.shape[0] - 1)
        fp32: dict[str, Any] = {"device": q.device, "dtype": torch.float32}
        scratch = [torch.empty(h, rows, **fp32), torch.empty(rows, h, rounded_head(d), **fp32)]
        if k.shape[1] != h:
            scratch += [torch.empty(k.shape[0], h, d, device=q.device, dtype=q.dtype) for _ in range(2)]
        del scratch
        return dq, dk, dv, None, None, None


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Size = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    return VarlenAttention.apply(q, k, v, cu_seqlens_q, cu_seqlens_k, torch.is_grad_enabled())
