# SPDX-License-Identifier: Apache-2.0
"""torchtitan's expert parallelism: blocks of experts become its own, which are cut over ranks of a mesh of theirs."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import nn

from ...plans import Native
from ..libraries import use_apart
from .tensor import divided


def meshes(plan: Native) -> Any:
    """torchtitan's meshes; with partial_dtensor parameters are distributed tensors along those of tensor and expert
    parallelism, with spmd_types plain ones that know their places."""
    use_apart()
    from torchtitan.distributed.parallel_dims import ParallelDims
    from torchtitan.distributed.utils import set_spmd_backend

    logging.getLogger().setLevel(logging.ERROR)
    set_spmd_backend(plan.spmd_backend)
    dims = ParallelDims(
        dp_replicate=1,
        dp_shard=plan.dp,
        cp=plan.cp,
        tp=plan.tp,
        pp=plan.pp,
        ep=plan.ep,
        world_size=plan.world,
        spmd_backend=plan.spmd_backend,
    )
    dims.build_mesh()
    if is_spmd(dims):
        from torchtitan.distributed.utils import get_spmd_context

        get_spmd_context(parallel_dims=dims)().__enter__()  # to the end of the process
        torch.autograd.set_multithreading_enabled(False)  # as init_distributed() has it
    return dims


def is_spmd(dims: Any) -> bool:
    return dims is not None and dims.spmd_backend == "spmd_types"


def fsdp_options(chunk: Any, dims: Any) -> dict[str, Any]:
    """The mesh of fully_shard(). With spmd_types every parameter is to say how it lies there."""
    if not is_spmd(dims):
        return {"mesh": dims.get_mesh("fsdp")}
    import spmd_types as spmd
    from spmd_types.runtime import has_local_type
    from torchtitan.distributed.full_dtensor import resolve_fsdp_mesh
    from torchtitan.distributed.spmd_types import set_current_spmd_mesh
    from torchtitan.models.common.decoder_sharding import dense_param_placement

    whole = dense_param_placement(tp=spmd.R)
    along = dims.get_optional_mesh([axis.value for axis in whole.axes()], include_singleton_axes=True)
    with set_current_spmd_mesh(along):
        for parameter in chunk.parameters():
            if not has_local_type(parameter):
                spmd.assert_type(parameter, whole.axis_types, whole.partition_spec)
    mesh, named = resolve_fsdp_mesh(dims)
    return {"mesh": mesh, "dp_mesh_dims": named}


def replace_blocks(chunk: Any, config: Any, plan: Native, dims: Any) -> None:
    """As transformers' models get them: torchtitan's modeling backend, build_and_swap_native_moe()."""
    from torchtitan.experiments.transformers_modeling_backend import moe_replacement as replacement
    from torchtitan.models.common.moe_sharding import set_moe_sharding_config

    tell_sizes(plan)
    for layer in chunk.layers:
        layer.moe_enabled = hasattr(layer.mlp, "experts")
        if not layer.moe_enabled:
            continue
        moe = replacement._build_moe_config(replacement._probe_hf_moe_block(layer.mlp, config), config)
        set_moe_sharding_config(
            moe,
            enable_ep=True,
            enable_sp=dims.tp_enabled,
            expert_param_layout=replacement._get_expert_param_info()[1],
        )
        cut_gate(moe.shared_experts, dims)
        dtype = next(layer.parameters()).dtype
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device("meta"):
                built = moe.build()
        finally:
            torch.set_default_dtype(default)
        built.__class__ = replacement._HFContiguousMoE
        layer.mlp = built
        object.__setattr__(layer, "moe", built)
        built.parallelize(dims)
        if dims.tp_enabled:  # residuals are plain tensors here
            built.register_forward_hook(lambda module, given, out: out.to_local())


def cut_gate(shared: Any, dims: Any) -> None:
    """A gate of shared experts, which build_and_swap_native_moe() sets by itself."""
    from torchtitan.models.common import decoder_sharding as placements
    from torchtitan.models.common.feed_forward import SigmoidGatedFeedForward
    from torchtitan.protocols.sharding import ShardingConfig
    import spmd_types as spmd

    if not isinstance(shared, SigmoidGatedFeedForward.Config):
        return
    whole = placements.dense_activation_placement(tp=spmd.R)
    shared.gate.sharding_config = ShardingConfig(
        state_shardings={name: placements.dense_param_placement(tp=spmd.R) for name in ("weight", "bias")},
        out_src_shardings=whole,
        out_dst_shardings=placements.dense_sequence_parallel_placement() if dims.tp_enabled else whole,
    )


def split_sizes(pairs: int, ranks: int, rank: int, imbalance: float) -> tuple[list[int], list[int]]:
    """How many of a rank's pairs of tokens and experts go to each rank, and how many come from it."""
    mine = min(round(pairs / ranks * imbalance), pairs)
    others = divided(pairs - mine, ranks - 1)
    return others[:rank] + [mine] + others[rank:], [mine] * ranks


def tell_sizes(plan: Native) -> None:
    """Where dispatch copies to the host how many tokens go to each rank and come from it, it finds ours."""
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher as Dispatcher

    sync = Dispatcher._sync_token_count_exchange
    if hasattr(sync, "__wrapped__"):
        return
    pairs = 0
    reorder = Dispatcher._local_reorder

    @functools.wraps(reorder)
    def counted(self: Any, x: Any, scores: Any, experts: Any) -> Any:
        nonlocal pairs
        pairs = experts.numel()
        return reorder(self, x, scores, experts)

    @functools.wraps(sync)
    def known(self: Any, mine_by_expert: Any, by_local_expert: Any, ranks: int) -> Any:
        counts, _, _ = sync(self, mine_by_expert, by_local_expert, ranks)
        return counts, *split_sizes(pairs, ranks, self.ep_mesh.get_local_rank(), plan.imbalance)

    Dispatcher._local_reorder = counted
    Dispatcher._sync_token_count_exchange = known


def placement(layer: Any, dims: Any) -> dict[str, Any]:
    """Options of fully_shard() for a block: experts are cut over the ranks that own the same ones."""
    if not layer.moe_enabled:
        return {}
    from torch.distributed.fsdp._fully_shard._fsdp_common import ShardPlacementResult
    from torch.distributed.fsdp._fully_shard._fsdp_init import _get_mesh_info
    from torch.distributed.tensor import Shard

    if is_spmd(dims):
        from torchtitan.distributed.full_dtensor import resolve_fsdp_mesh, resolve_sparse_fsdp_mesh

        theirs, ours = _get_mesh_info(*resolve_sparse_fsdp_mesh(dims)), _get_mesh_info(*resolve_fsdp_mesh(dims))
    else:
        theirs, ours = _get_mesh_info(dims.get_mesh("efsdp"), None), _get_mesh_info(dims.get_mesh("fsdp"), None)
    experts = layer.moe.routed_experts.inner_experts
    of_experts = set(experts.parameters())
    along = Shard(1 if dims.get_mesh("efsdp").size() * dims.ep > experts.num_experts else 0)

    def place(parameter: nn.Parameter) -> Any:
        if parameter in of_experts:
            return ShardPlacementResult(placement=along, mesh_info=theirs)
        return ShardPlacementResult(placement=Shard(0), mesh_info=ours)

    return {"shard_placement_fn": place}


def prefetch(chunk: Any) -> None:
    """Each unit asks for the next one, and backward for the one before: the host waits for tokens in between."""
    layers = list(chunk.layers)
    for layer, following in zip(layers, layers[1:]):
        layer.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([layer])
    if chunk.embed_tokens is not None:
        chunk.embed_tokens.set_modules_to_forward_prefetch(layers[:1])
        layers[0].set_modules_to_backward_prefetch([chunk.embed_tokens])
    if chunk.lm_head is not None:
        layers[-1].set_modules_to_forward_prefetch([chunk.norm, chunk.lm_head])
        chunk.lm_head.set_modules_to_backward_prefetch(layers[-1:])


def balance(optimizer: Any, chunks: list[Any], dims: Any) -> None:
    """Before each step experts that have had few tokens are preferred."""
    from torchtitan.components.optimizer import register_moe_load_balancing_hook

    parts = []
    for chunk in chunks:
        part = nn.Module()
        part.layers = nn.ModuleDict({str(i): layer for i, layer in enumerate(chunk.layers)})
        parts.append(part)
    register_moe_load_balancing_hook(optimizer, parts, dims)


def of_mesh(dims: Any, plan: Native) -> dict[str, Any]:
    """The meshes of one dimension by their names here."""
    names = {"pp": plan.pp, "cp": plan.cp, "tp": plan.tp}
    return {name: dims.get_mesh(name) for name, size in names.items() if size > 1}


def clip(parameters: Any, most: float, plan: Native, mesh: dict[str, Any]) -> None:
    """Norms of experts and of the rest are taken apart: their meshes differ."""
    from torchtitan.distributed.utils import clip_grad_norm_

    clip_grad_norm_(parameters, most, pp_mesh=mesh["pp"] if plan.pp > 1 else None, ep_enabled=True)
