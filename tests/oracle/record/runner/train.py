# SPDX-License-Identifier: Apache-2.0
"""Training on one device: the plain loop that people write."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from ..case import Case
from . import compiled, kernels, losses, optimizers
from .batches import Batch
from .forward import autocast, loss_of
from .meter import Meter, state_tensors


def train(case: Case, model: Any, batches: Iterator[Batch], meter: Meter, state: dict[str, Any]) -> None:
    """state: what a result says of the whole run."""
    losses.apply(case, model)
    loop = Loop(case, model, meter)
    compiled.apply(case, model)
    compiled.apply_to_optimizer(case, loop.optimizer)
    if case.offload_activations == "layers":
        kernels.offload_layers(model)
    held: Any = None
    for _ in range(case.steps):
        meter.begin_step()
        for micro in range(case.grad_accum):
            batch = next(batches)
            loop.zero_grad("before_forward", micro)
            with autocast(case), kernels.forward_context(case):
                out, loss = kernels.cut_cross_entropy(model, batch) if case.kernels == "cce" else loss_of(model, batch)
            if case.hold_outputs:
                held = out
            del out
            if case.grad_accum > 1:
                loss = loss / case.grad_accum
            meter.end_forward()
            meter.phase("forward", "after_forward")
            if case.compile and "saved" not in state:
                state["saved"] = compiled.kept(loss, model)
            loop.zero_grad("before_backward", micro)
            loop.backward(loss)
            meter.phase("backward", "after_backward")
            loop.mark_owners()
        loop.update()
        meter.end_step()
        loop.mark_owners()
        del loss
    del held


class Loop:
    """What lives from step to step beside the model: optimizer, scaler, average, main gradients."""

    def __init__(self, case: Case, model: Any, meter: Meter) -> None:
        self.case, self.model, self.meter = case, model, meter
        self.optimizer = optimizers.make(case, model)
        self.main = MainGradients(model, self.optimizer, meter) if case.main_grads else None
        self.average = average_of(case, model)
        self.scaler = torch.amp.GradScaler("cuda") if case.scaler else None

    def zero_grad(self, where: str, micro: int = 0) -> None:
        if self.optimizer is not None and self.case.zero_grad_at == where and micro == 0 and not self.main:
            self.optimizer.zero_grad(set_to_none=self.case.zero_grad == "none")

    def backward(self, loss: Any) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def mark_owners(self) -> None:
        self.meter.owners(self.model, self.optimizer)
        if self.average is not None:
            self.meter.mark("optimizer", self.average.tensors())

    def update(self) -> None:
        """Clip, step, zero, average.  The peak_optimizer phase spans all of it."""
        if self.main:
            self.main.step(self.case.clip)
        elif self.optimizer is not None:
            self.step()
        if self.average is not None:
            self.average.update(self.model)
        self.meter.phase("optimizer")

    def step(self) -> None:
        case, scaler = self.case, self.scaler
        if scaler and case.clip:
            scaler.unscale_(self.optimizer)
        if case.clip:
            torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.requires_grad], case.clip)
        if scaler:
            scaler.step(self.optimizer)
            scaler.update()
        elif self.optimizer is not None:
            self.optimizer.step()
        self.meter.mark("optimizer", state_tensors(self.optimizer))
        self.zero_grad("after_step")


class MainGradients:
    """Gradients summed in one fp32 buffer and fp32 copies of the weights updated, as Megatron-Core does it beside any
    model (megatron/core: distributed/param_and_grad_buffer.py, optimizer/optimizer.py:
    Float16OptimizerWithFloat16Params)."""

    def __init__(self, model: Any, optimizer: Any, meter: Meter) -> None:
        self.optimizer, self.meter = optimizer, meter
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.buffer = torch.empty(sum(p.numel() for p in self.trained), dtype=torch.float32, device="cuda")
        self.buffer.zero_()
        meter.mark("gradients", [self.buffer])
        self.views: dict[Any, Any] = {}
        at = 0
        for p in self.trained:
            self.views[p] = self.buffer[at : at + p.numel()].view(p.shape)
            at += p.numel()
            p.register_post_accumulate_grad_hook(self.gather)
        self.copies = {p: p if p.dtype == torch.float32 else p.detach().clone().float() for p in self.trained}
        meter.mark("master", [copy for p, copy in self.copies.items() if copy is not p])
        for group in optimizer.param_groups:
            group["params"] = [self.copies[p] for p in group["params"]]

    def gather(self, p: Any) -> None:
        self.views[p].add_(p.grad)
        p.grad = None

    def step(self, clip: float | None) -> None:
        for p in self.trained:
            self.copies[p].grad = self.views[p]
        if clip:
            torch.nn.utils.clip_grad_norm_(list(self.copies.values()), clip)
        self.optimizer.step()
        self.meter.mark("optimizer", state_tensors(self.optimizer))
        for p, copy in self.copies.items():
            copy.grad = None
            if copy is not p:
                p.data.copy_(copy.data)
        self.buffer.zero_()


# ---- moving averages ----


class Averaged:
    """torch.optim.swa_utils.AveragedModel with the exponential average over lists of tensors."""

    def __init__(self, model: Any) -> None:
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))

    def update(self, model: Any) -> None:
        self.average.update_parameters(model)

    def tensors(self) -> list[Any]:
        return [*self.average.parameters(), *self.average.buffers()]


class DiffusersAveraged:
    """diffusers.training_utils.EMAModel."""

    def __init__(self, model: Any, foreach: bool) -> None:
        from diffusers.training_utils import EMAModel

        self.average = EMAModel(model.parameters(), decay=0.999, foreach=foreach)

    def update(self, model: Any) -> None:
        self.average.step(model.parameters())

    def tensors(self) -> list[Any]:
        return list(self.average.shadow_params)


def average_of(case: Case, model: Any) -> Averaged | DiffusersAveraged | None:
    if case.ema is None:
        return None
    return Averaged(model) if case.ema == "swa_utils" else DiffusersAveraged(model, case.ema == "diffusers_foreach")
