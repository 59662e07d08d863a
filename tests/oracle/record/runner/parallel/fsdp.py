# SPDX-License-Identifier: Apache-2.0
"""fully_shard (FSDP2) and FullyShardedDataParallel (FSDP1)."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ...case import Case
from ...plans import Fsdp1, Fsdp2, Sharded
from .. import optimizers
from ..models import DTYPES
from .ddp import DdpStep
from .group import mesh_of
from .steps import Step

BLOCKS = (
    "DecoderLayer",
    "EncoderLayer",
    "GPT2Block",
    "T5Block",
    "BertLayer",
    "ViTLayer",
    "VisionBlock",
    "InternVLVisionLayer",
    "PixtralAttentionLayer",
    "NormConvLayer",
)


def units_of(model: Any, wrap: str) -> list[Any]:
    """The modules (or lists of them) that become units of their own, in forward order."""
    named = (BLOCKS, tuple(getattr(model, "_no_split_modules", None) or ()))  # the latter where none is a BLOCK
    found = ([m for m in model.modules() if type(m).__name__.endswith(names)] for names in named)
    blocks: list[Any] = next(filter(None, found), [])
    if wrap == "root":
        return []
    if wrap.startswith("pairs"):
        n = int(wrap[5:] or 2)
        return [blocks[i : i + n] for i in range(0, len(blocks), n)]
    if wrap == "fine":
        return [m for b in blocks for n, m in b.named_children() if n in ("self_attn", "mlp")] + blocks
    if wrap == "titan":
        text = model.get_decoder()
        return [text.embed_tokens] + blocks + [[text.norm, model.lm_head]]
    return blocks


def dtype_of(name: str | None) -> Any:
    return DTYPES[name] if name else None


def hybrid_mesh(plan: Sharded) -> Any:
    assert plan.hybrid
    return mesh_of(("replicate", "shard"), (plan.dp // plan.hybrid, plan.hybrid))


# ---- FSDP2 ----


class Fsdp2Step(Step):
    def sync(self, last: bool) -> Any:
        if not self.plan.sync_each:
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


def wrap_fsdp2(model: Any, case: Case) -> Step:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    plan = case.parallel
    assert isinstance(plan, Fsdp2)
    options: dict[str, Any] = {
        "mesh": hybrid_mesh(plan) if plan.hybrid else mesh_of(("dp",), (plan.dp,)),
        "mp_policy": MixedPrecisionPolicy(
            dtype_of(plan.param_dtype), dtype_of(plan.reduce_dtype), dtype_of(plan.output_dtype)
        ),
        "offload_policy": CPUOffloadPolicy() if plan.offload else OffloadPolicy(),
    }
    units = units_of(model, plan.wrap)
    for unit in units:
        fully_shard(unit, reshard_after_forward=plan.reshard_after_forward, **options)
    if plan.root_reshard is not None:
        options["reshard_after_forward"] = plan.root_reshard
    fully_shard(model, **options)
    prefetch([u[0] if isinstance(u, list) else u for u in units], plan.prefetch)
    if plan.meta_init:
        materialise_parts(model)
    return Fsdp2Step(model, optimizers.make(case, model), case)


def materialise_parts(model: Any) -> None:
    """Parameters made on the meta device get this rank's part, as PyTorch's own tutorial does it."""
    model.to_empty(device="cuda")


def prefetch(units: list[Any], depth: int) -> None:
    """Each unit asks for the next `depth` units ahead of time."""
    for i, unit in enumerate(units if depth else []):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + depth])
        unit.set_modules_to_backward_prefetch(units[max(0, i - depth) : i][::-1])


# ---- FSDP1 ----


class Fsdp1Step(DdpStep):
    def clip_gradients(self) -> None:
        if self.case.clip:
            self.model.clip_grad_norm_(self.case.clip)


def wrap_fsdp1(model: Any, case: Case) -> Step:
    from torch.distributed.fsdp import (
        BackwardPrefetch,
        CPUOffload,
        FullyShardedDataParallel,
        MixedPrecision,
        ShardingStrategy,
    )
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    plan = case.parallel
    assert isinstance(plan, Fsdp1)
    blocks = {type(m) for m in units_of(model, plan.wrap)}
    mixed = (
        MixedPrecision(*map(dtype_of, (plan.param_dtype, plan.reduce_dtype, plan.buffer_dtype)))
        if plan.param_dtype or plan.reduce_dtype or plan.buffer_dtype
        else None
    )
    options: dict[str, Any] = {"device_mesh": hybrid_mesh(plan)} if plan.hybrid else {}
    ahead = plan.backward_prefetch
    net = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy(blocks) if blocks else None,
        sharding_strategy=ShardingStrategy[plan.strategy],
        mixed_precision=mixed,
        cpu_offload=CPUOffload(offload_params=True) if plan.offload else None,
        backward_prefetch=BackwardPrefetch[ahead] if ahead else None,
        device_id=0,
        limit_all_gathers=plan.limit_all_gathers,
        use_orig_params=plan.use_orig_params,
        forward_prefetch=plan.forward_prefetch,
        sync_module_states=plan.sync_module_states,
        **options,
    )
    return Fsdp1Step(net, optimizers.make(case, net), case)
