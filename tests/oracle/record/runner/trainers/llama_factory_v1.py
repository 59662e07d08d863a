# SPDX-License-Identifier: Apache-2.0
"""LLaMA-Factory's second trainer (USE_V1=1; llamafactory/v1: core/base_trainer.py, core/model_engine.py,
plugins/trainer_plugins/distributed/fsdp2.py): a loop of its own, with the same operations in the same order, and the
same names for what lives from one step to the next."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ... import phantom
from ...case import Case
from ...catalogue import Model
from ...plans import Fsdp2
from .. import adapters, models
from ..meter import Meter
from ..parallel import group
from ..parallel.fsdp import dtype_of
from ..parallel.steps import Step
from . import data

IGNORED = -100
CLIP = 1.0  # max_grad_norm


def play(case: Case, model: Model, meter: Meter, state: dict[str, Any]) -> None:
    from .. import run

    if case.parallel:
        group.setup(case.parallel)
    bare = dataclasses.replace(case, trainer=None, lora=None, checkpointing="none", kbit_prepare=False)
    net = models.build(bare, model.config)
    run.loaded(net, meter, state)
    meter.phase(None)
    net = made_trainable(case, net)
    state["parameters"] = models.count_parameters(net)
    loop = Loop(case, net, meter)
    del net
    state["after_setup"] = torch.cuda.memory_allocated()
    loop.mark_owners()
    state["peak_setup"] = meter.phase(None)
    loop.fit()
    state["inputs"] = {}


def made_trainable(case: Case, net: Any) -> Any:
    """ModelEngine._init_model and PeftPlugin."""
    from peft import get_peft_model

    if case.lora:
        net = get_peft_model(net, adapters.settings(case.lora, task="CAUSAL_LM"))
    elif case.train_only:
        for p in net.parameters():
            if p.requires_grad:
                p.data = p.data.to(torch.float32)
    else:
        net = net.to(torch.float32)
    if case.kernels == "liger":  # kernel_config, with require_logits
        from transformers.integrations.liger import apply_liger_kernel

        targets_are_in_bounds()
        apply_liger_kernel(net, {"fused_linear_cross_entropy": False, "cross_entropy": True})
    return net


def targets_are_in_bounds() -> None:
    """What Liger asserts of labels is read from the device, as is their number."""
    from liger_kernel.ops import cross_entropy

    forward = cross_entropy.cross_entropy_forward

    def within(*args: Any, **kwargs: Any) -> Any:
        with phantom.counts(1, has_truth=True):
            return forward(*args, **kwargs)

    cross_entropy.cross_entropy_forward = within


class Loop:
    def __init__(self, case: Case, model: Any, meter: Meter) -> None:
        self.case, self.meter = case, meter
        self.plan = case.parallel
        self.ranks = self.plan.dp if self.plan else 1
        if case.checkpointing != "none":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model = self.shard(model)
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-4)

    # -- FSDP2Engine --

    def shard(self, model: Any) -> Any:
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        if not isinstance(self.plan, Fsdp2):
            return model
        mesh = group.mesh_of(("mp_replicate", "mp_shard"), (1, self.ranks))
        group.mesh_of(("dp", "cp"), (self.ranks, 1))
        options: dict[str, Any] = {
            "mesh": mesh,
            "reshard_after_forward": self.plan.reshard_after_forward,
            "mp_policy": MixedPrecisionPolicy(
                dtype_of(self.plan.param_dtype or "bf16"), dtype_of(self.plan.reduce_dtype or "fp32"), cast_forward_inputs=True
            ),
            "offload_policy": CPUOffloadPolicy() if self.plan.offload else None,
        }
        for unit in self.units(model):
            fully_shard(unit, **options)
        if self.case.checkpointing != "none":
            model.enable_input_require_grads()
        fully_shard(model, **options)
        self.warm_up(model)
        return model

    def units(self, model: Any) -> list[Any]:
        lists = [getattr(m, name, None) for m in model.modules() for name in ("layers", "blocks")]
        classes = {type(found[0]) for found in lists if isinstance(found, nn.ModuleList) and len(found)}
        leaves = [m for m in model.modules() if not list(m.children())]
        adapted = [m for m in leaves if any(p.requires_grad for p in m.parameters(recurse=False))]
        is_tied = getattr(model.config, "tie_word_embeddings", True)
        whole = [m for m in model.modules() if type(m) in classes or (isinstance(m, nn.Embedding) and not is_tied)]
        return (adapted if self.case.lora else []) + whole

    def warm_up(self, model: Any) -> None:
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p)
        with torch.no_grad():
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if hasattr(norm, "full_tensor"):
                norm = norm.full_tensor()
        for p in model.parameters():
            if p.requires_grad:
                p.grad = None

    # -- BaseTrainer, SFTTrainer --

    def batch(self) -> dict[str, Any]:
        """On the host: what the renderer writes for each sample, padded and stacked."""
        case = self.case
        lengths = data.lengths(case, case.batch, case.seq)
        ids = torch.tensor([[data.FIRST_WORD + (i + k) % data.WORDS for k in range(case.seq)] for i in range(case.batch)])
        mask = torch.tensor([[int(k < n) for k in range(case.seq)] for n in lengths])
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": torch.where(mask == 1, ids, IGNORED),
            "loss_weights": mask.float(),
            "position_ids": torch.arange(1, case.seq + 1).repeat(case.batch, 1),
        }

    def valid_tokens(self, batches: list[dict[str, Any]]) -> int:
        """Counted on the device, and known here."""
        return sum(self.counted(b) for b in batches)

    def counted(self, batch: dict[str, Any]) -> int:
        (batch["labels"].to("cuda", non_blocking=True) != IGNORED).sum().item()
        return int((batch["labels"] != IGNORED).sum())

    def all_reduce(self, value: Any) -> Any:
        if self.plan is None:
            return value
        import torch.distributed as dist

        made = torch.tensor(value, dtype=torch.float, device="cuda")
        dist.all_reduce(made, op=dist.ReduceOp.SUM)
        if isinstance(value, list):
            made /= self.ranks
        return made.item() if made.numel() == 1 else made.tolist()

    def log_probs(self, batch: dict[str, Any]) -> Any:
        rows, _ = batch["labels"].shape
        given = {k: v.to("cuda", non_blocking=True) for k, v in batch.items()}
        labels = batch["labels"].to("cuda", non_blocking=True)
        outputs = self.model(**given)
        logits = outputs.logits.float()
        shift_labels = labels[..., 1:].contiguous().view(-1)
        shift_logits = logits[..., :-1, :].contiguous().view(shift_labels.size(0), -1)
        return -F.cross_entropy(shift_logits, shift_labels, reduction="none").view(rows, -1)

    def compute_loss(self, batch: dict[str, Any]) -> Any:
        weights = batch["loss_weights"].to("cuda", non_blocking=True)[..., 1:]
        log_probs = self.log_probs(batch)
        return (-log_probs * weights).sum() / (weights.sum() + 1e-6)

    def fit(self) -> None:
        self.model.train()
        for _ in range(self.case.steps):
            micro_batches = [self.batch() for _ in range(self.case.grad_accum)]
            self.meter.begin_step()
            step_loss = 0.0
            step_tokens = self.valid_tokens(micro_batches)
            self.all_reduce(step_tokens)
            for micro_batch in micro_batches:
                self.watch()
                self.meter.begin_forward()
                loss = self.compute_loss(micro_batch)
                self.meter.end_forward()
                tokens = self.valid_tokens([micro_batch])
                loss = loss * tokens * self.ranks / (step_tokens + 1e-6)
                self.meter.phase("forward", "after_forward")
                loss.backward()
                self.meter.phase("backward", "after_backward")
                self.mark_owners()
                step_loss += loss.item()
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            total_norm = torch.nn.utils.get_total_norm(grads)
            if hasattr(total_norm, "full_tensor"):
                total_norm = total_norm.full_tensor()
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), CLIP, total_norm)
            grad_norm = total_norm.item()
            self.optimizer.step()
            self.optimizer.zero_grad()
            step_loss, grad_norm = self.all_reduce([step_loss, grad_norm])
            self.meter.phase("optimizer")
            self.meter.end_step()
            self.mark_owners()

    # -- the meter --

    def watch(self) -> None:
        if self.plan is not None:  # fully_shard takes gradients away in the backward pass
            self.meter.watch(Step(self.model, self.optimizer, self.case).leaves())

    def mark_owners(self) -> None:
        self.meter.owners(self.model, self.optimizer)
        if self.plan is not None:
            for category, tensors in Step(self.model, self.optimizer, self.case).owners():
                self.meter.mark(category, tensors)
