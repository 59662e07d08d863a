# SPDX-License-Identifier: Apache-2.0
"""DTensor tensor parallelism of Llama-shaped models, as PyTorch's own tutorial does it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from ... import phantom

from ...case import Case
from ...plans import Tp
from .. import models, optimizers
from ..batches import Batch
from ..forward import autocast
from .fsdp import dtype_of, materialise_parts, units_of
from .group import mesh_of
from .steps import Step

COLUMNS = (
    *(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "q_b_proj", "kv_b_proj")),  # latent: _b_proj
    "mlp.gate_proj",
    "mlp.up_proj",
)
ROWS = ("self_attn.o_proj", "mlp.down_proj")


def layer_styles(prefix: str, count: int, sequence_parallel: bool) -> dict[str, Any]:
    """How the blocks are cut; between them hidden states are whole or cut along the sequence."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

    between = Shard(1) if sequence_parallel else Replicate()
    styles: dict[str, Any] = {}
    for i in range(count):
        at = f"{prefix}layers.{i}."
        styles |= {at + name: ColwiseParallel() for name in COLUMNS}
        styles |= {at + name: RowwiseParallel(output_layouts=between) for name in ROWS}
        if sequence_parallel:
            styles[at + "input_layernorm"] = styles[at + "post_attention_layernorm"] = SequenceParallel()
            styles[at + "self_attn"] = PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": between},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
            )
            styles[at + "mlp"] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    return styles


def head_style(sequence_parallel: bool, loss_parallel: bool) -> Any:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel

    return ColwiseParallel(
        input_layouts=Shard(1) if sequence_parallel else Replicate(),
        use_local_output=not loss_parallel,
        output_layouts=Shard(-1) if loss_parallel else Replicate(),
    )


class TpStep(Step):
    def forward(self, batch: Batch) -> Any:
        if not self.plan.loss_parallel:
            return super().forward(batch)
        from torch.distributed.tensor.parallel import loss_parallel

        with autocast(self.case):
            logits = self.model(**{k: v for k, v in batch.items() if k != "labels"}).logits
            with loss_parallel():
                return nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten())

    def backward(self, loss: Any) -> None:
        if not self.plan.loss_parallel:
            return super().backward(loss)
        from torch.distributed.tensor.parallel import loss_parallel

        with loss_parallel():
            loss.backward()


def load_by_plan_of_configuration(model: Any, case: Case) -> Any:
    """from_pretrained(distributed_config=...) of a checkpoint of the model, which is on the meta device."""
    import os
    import tempfile

    from safetensors.torch import save_file
    from transformers.distributed import DistributedConfig

    assert case.parallel
    if case.lora:
        model = model.get_base_model()
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # several threads ask for memory in any order
    with tempfile.TemporaryDirectory() as folder:
        whole = type(model)._from_config(model.config, dtype=models.DTYPES[case.dtype])
        whole.config.save_pretrained(folder)
        kept = {name: t for name, t in whole.state_dict().items() if name not in whole.all_tied_weights_keys}
        save_file(kept, f"{folder}/model.safetensors", metadata={"format": "pt"})  # save_pretrained(), of any rank
        del whole, kept
        loaded = type(model).from_pretrained(
            folder,
            dtype=models.DTYPES[case.dtype],
            attn_implementation=case.attention,
            distributed_config=DistributedConfig(**distributed(case.parallel)),
        )
    return models.prepared(loaded, case)


def divided(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def distributed(plan: Any) -> dict[str, Any]:
    """Arguments of DistributedConfig."""
    given = {"tp_size": plan.tp, "fsdp_size": plan.dp}
    if plan.ep > 1:
        given |= {"ep_size": plan.ep, "ep_implementation": plan.ep_implementation}
    if plan.dp > 1 and plan.param_dtype == "bf16":
        given["fsdp_mixed_precision"] = True
    return given


def tell_sizes(plan: Any) -> None:
    """Where dispatch copies to the host how many tokens go to each rank and come from it, it finds ours."""
    from transformers.distributed import expert_parallel

    dispatch, to_host = expert_parallel.AllToAllEP._dispatch_tokens, torch.Tensor.tolist

    @functools.wraps(dispatch)
    def known(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        ranks, rank = self.ep_mesh.size(), self.ep_mesh.get_local_rank()
        pairs = top_k_index.numel() // self.tp_mesh.size()
        mine = min(round(pairs / ranks * plan.imbalance), pairs)
        others = divided(pairs - mine, ranks - 1)
        sizes = [others[:rank] + [mine] + others[rank:], [mine] * ranks]

        def tolist(t: Any) -> Any:
            return (to_host(t), sizes)[1] if t.is_cuda and t.shape == (2, ranks) else to_host(t)

        torch.Tensor.tolist = tolist
        try:
            with phantom.counts(mine * ranks):
                return dispatch(self, hidden_states, top_k_index, top_k_weights)
        finally:
            torch.Tensor.tolist = to_host

    expert_parallel.AllToAllEP._dispatch_tokens = known


def wrap(model: Any, case: Case) -> Step:
    if case.parallel.tp_plan == "auto":
        tell_sizes(case.parallel)
        model = load_by_plan_of_configuration(model, case)
        optimizer = optimizers.make(case, model)
        separate_kinds(optimizer)
        return TpStep(model, optimizer, case)
    return wrap_by_own_plan(model, case)


def wrap_by_own_plan(model: Any, case: Case) -> Step:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import RowwiseParallel, SequenceParallel, parallelize_module

    plan = case.parallel
    assert isinstance(plan, Tp)
    mesh = mesh_of(("dp", "tp"), (plan.dp, plan.tp))
    styles = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "lm_head": head_style(plan.sequence_parallel, plan.loss_parallel),
    }
    if plan.sequence_parallel:
        styles["model.norm"] = SequenceParallel()
    parallelize_module(
        model, mesh["tp"], styles | layer_styles("model.", len(model.model.layers), plan.sequence_parallel)
    )
    if plan.sequence_parallel:
        cut_before_first_block(model, mesh["tp"])
    if plan.dp > 1:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(dtype_of(plan.param_dtype), dtype_of(plan.reduce_dtype))
        for unit in [*units_of(model, plan.wrap), model]:
            fully_shard(unit, mesh=mesh["dp"], mp_policy=policy)
    if plan.meta_init:
        materialise_parts(model)
    optimizer = optimizers.make(case, model)
    separate_kinds(optimizer)
    return TpStep(model, optimizer, case)


def cut_before_first_block(model: Any, mesh: Any) -> None:
    """Positions and mask need the whole sequence: hidden states are cut where the first block begins."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def cut(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        hidden = args[0] if args else kwargs.pop("hidden_states")
        local = DTensor.from_local(hidden, mesh, [Replicate()]).redistribute(placements=[Shard(1)]).to_local()
        return (local,) + args[1:], kwargs

    model.model.layers[0].register_forward_pre_hook(cut, with_kwargs=True)


def separate_kinds(optimizer: Any) -> None:
    """Groups of distributed tensors and of plain ones: the multi-tensor optimizers refuse a mix."""
    from torch.distributed.tensor import DTensor

    groups = []
    for group in optimizer.param_groups:
        for kind in (True, False):
            params = [p for p in group["params"] if isinstance(p, DTensor) == kind]
            if params:
                groups.append(dict(group, params=params))
    optimizer.param_groups[:] = groups
