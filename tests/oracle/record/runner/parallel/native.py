# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own parallelism, several kinds at once, in the order that torchtitan puts them on.

Llama-shaped models are cut into pipeline stages; each stage gets tensor parallelism (with sequence and loss
parallelism), activation checkpointing and fully_shard, and runs under context parallelism (ring attention). Ranks:
pipeline farthest apart, then data, context, tensor.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from ...case import Case
from ...plans import Native
from .. import optimizers
from ..batches import Batch
from . import experts, pipeline, tensor
from .fsdp import dtype_of, materialise_parts
from .group import mesh_of
from .pipeline import Chunk
from .steps import Step

DIMENSIONS = ("pp", "dp", "cp", "tp")


def wrap(model: Any, case: Case) -> Step:
    plan = case.parallel
    assert isinstance(plan, Native)
    dims = experts.meshes(plan) if plan.ep > 1 else None
    mesh = experts.of_mesh(dims, plan) if dims else mesh_of(DIMENSIONS, (plan.pp, plan.dp, plan.cp, plan.tp))
    dense = mesh["dp", "cp"]._flatten("dp_cp") if plan.dp * plan.cp > 1 and not dims else None
    stages = plan.pp * plan.chunks
    mine = pipeline.stages_of(plan, mesh["pp"].get_local_rank()) if plan.pp > 1 else [0]
    chunks = []
    for index in mine:
        chunk = Chunk(model, index, stages, case.seq // plan.cp)
        if dims:
            experts.replace_blocks(chunk, model.config, plan, dims)
        cut(chunk, plan, mesh)
        checkpoint(chunk, plan.ac)
        if dims or dense is not None:
            shard(chunk, plan, dense, dims)
        chunks.append(chunk)
    whole = nn.ModuleList(chunks)
    pipeline.drop_others(model, whole)
    if plan.meta_init:
        for chunk in chunks:
            materialise_parts(chunk)
    optimizer = optimizers.make(case, whole)
    tensor.separate_kinds(optimizer)
    if dims and optimizer:
        experts.balance(optimizer, chunks, dims)
    if plan.pp == 1:
        return NativeStep(whole, optimizer, case, mesh)
    parts = [stage_of(chunk, case, plan, index, stages, mesh) for chunk, index in zip(chunks, mine)]
    schedule = pipeline.make_schedule(plan, parts, loss_of, scale_grads=False)
    return NativePipelineStep(whole, optimizer, case, schedule, parts, mesh)


def cut(chunk: Chunk, plan: Native, mesh: Any) -> None:
    """Tensor parallelism of one stage."""
    if plan.tp == 1:
        return
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import RowwiseParallel, SequenceParallel, parallelize_module

    along = plan.sequence_parallel
    styles: dict[str, Any] = {}
    if chunk.embed_tokens is not None:
        styles["embed_tokens"] = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1) if along else Replicate()
        )
    if chunk.lm_head is not None:
        styles["lm_head"] = tensor.head_style(along, plan.loss_parallel)
        if along:
            styles["norm"] = SequenceParallel()
    styles |= tensor.layer_styles("", len(chunk.layers), along)
    cuts_itself = tuple(f"layers.{i}.mlp" for i, layer in enumerate(chunk.layers) if getattr(layer, "moe_enabled", False))
    parallelize_module(chunk, mesh["tp"], {at: s for at, s in styles.items() if not at.startswith(cuts_itself or "/")})


def checkpoint(chunk: Chunk, kind: str | None) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    if not kind:
        return
    how = {"context_fn": every_other_product} if kind == "op" else {}
    for i, layer in enumerate(chunk.layers):
        if not kind.startswith("every") or i % int(kind.removeprefix("every")) == 0:
            chunk.layers[i] = checkpoint_wrapper(layer, preserve_rng_state=False, **how)


def every_other_product() -> Any:
    """Selective checkpointing per operation: attention, reductions and every other matrix product are kept."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    kept = {
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }
    products = {aten.mm.default, aten.linear.default}
    count = {"forward": 0, "recompute": 0}

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        keep = op in kept
        if op in products:
            phase = "recompute" if ctx.is_recompute else "forward"
            count[phase] += 1
            keep = count[phase] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def shard(chunk: Chunk, plan: Native, mesh: Any, dims: Any) -> None:
    """fully_shard over data and context parallel ranks: embedding, each block, norm with head, and what is left."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    again = plan.reshard_after_forward if plan.reshard_after_forward is not None else plan.pp == 1
    options = experts.fsdp_options(chunk, dims) if dims else {"mesh": mesh}
    options["mp_policy"] = MixedPrecisionPolicy(dtype_of(plan.param_dtype), dtype_of(plan.reduce_dtype))
    if chunk.embed_tokens is not None:
        fully_shard(chunk.embed_tokens, reshard_after_forward=again, **options)
    for layer in chunk.layers:
        fully_shard(layer, reshard_after_forward=again, **options, **(experts.placement(layer, dims) if dims else {}))
    if chunk.lm_head is not None:
        fully_shard([chunk.norm, chunk.lm_head], reshard_after_forward=False, **options)
    fully_shard(chunk, **options)
    if dims:
        experts.prefetch(chunk)


def stage_of(chunk: Chunk, case: Case, plan: Native, index: int, stages: int, mesh: Any) -> Any:
    config, length = chunk.rotary_emb.config, case.seq // plan.cp
    rows = length // plan.tp if plan.sequence_parallel else length
    dtype = dtype_of(plan.param_dtype) or next(chunk.parameters()).dtype
    return pipeline.make_stage(
        chunk,
        index,
        stages,
        (case.batch, length),
        (case.batch, rows, config.hidden_size),
        config.vocab_size,
        dtype,
        mesh["pp"].get_group(),
    )


def loss_of(logits: Any, labels: Any) -> Any:
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def contexts(plan: Native, mesh: Any, buffers: list[Any]) -> contextlib.ExitStack:
    """Context and loss parallelism, around forward and backward passes alike."""
    stack = contextlib.ExitStack()
    if plan.tp > 1 and plan.loss_parallel:
        from torch.distributed.tensor.parallel import loss_parallel

        stack.enter_context(loss_parallel())
    if plan.cp > 1:
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method

        set_rotate_method(plan.rotate)
        stack.enter_context(
            context_parallel(
                mesh["cp"], buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
            )
        )
    return stack


class Clipping(Step):
    mesh: Any

    def clip_gradients(self) -> None:
        if self.plan.ep == 1:
            super().clip_gradients()
        elif self.case.clip:
            experts.clip(self.model.parameters(), self.case.clip, self.plan, self.mesh)


class NativeStep(Clipping):
    """Without a pipeline: one micro-batch after another."""

    def __init__(self, model: Any, optimizer: Any, case: Case, mesh: Any) -> None:
        super().__init__(model, optimizer, case)
        self.mesh = mesh

    def __call__(self, batch: Batch) -> None:
        micro = self.plan.microbatches or 2 * self.plan.pp
        for i in range(micro):
            ids, labels = (batch[k][: self.case.batch].clone() for k in ("input_ids", "labels"))
            with contexts(self.plan, self.mesh, [ids, labels]):
                if self.plan.dp * self.plan.cp > 1 and not self.plan.sync_each:
                    self.model[0].set_requires_gradient_sync(i == micro - 1)
                self.mark("chunk")
                loss = loss_of(self.model[0](ids), labels)
                self.mark("chunk forward")
                loss.backward()
                del loss
        self.mark("backward")
        self.update()
        self.mark("step")


class NativePipelineStep(Clipping, pipeline.PipelineStep):
    def __init__(self, model: Any, optimizer: Any, case: Case, schedule: Any, parts: list[Any], mesh: Any) -> None:
        super().__init__(model, optimizer, case, schedule, parts)
        self.mesh = mesh

    def __call__(self, batch: Batch) -> None:
        micro = self.plan.microbatches or 2 * self.plan.pp
        ids, labels = (batch[k].repeat(micro, 1) for k in ("input_ids", "labels"))
        with contexts(self.plan, self.mesh, [ids, labels]):
            self.run_schedule(ids, labels)
        self.mark("backward")
        self.update()
        self.mark("step")
