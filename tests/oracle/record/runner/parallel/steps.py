# SPDX-License-Identifier: Apache-2.0
"""The optimizer step of one rank, in the order of calls of the Hugging Face Trainer."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator

import torch

from ...case import Case
from .. import meter
from ..batches import Batch
from ..forward import autocast, loss_of


class Step:
    """Forward, backward and update.

    `mark(name)` is called with "forward" and "backward" as each phase of a micro-batch ends and with "step" at the
    end; a pipeline, whose passes interleave, says "chunk" before and "chunk forward" after every forward pass of a
    stage, "chunk weights" after a backward pass for weights alone and "backward" when the schedule is through;
    Megatron-Core's says "main gradients" when those of the optimizer are made. Replace it to measure.
    """

    def __init__(self, model: Any, optimizer: Any, case: Case) -> None:
        self.model, self.optimizer, self.case = model, optimizer, case
        self.plan: Any = case.parallel
        self.mark: Callable[[str], None] = lambda name: None
        self.held: Any = None
        self.scaler = torch.amp.GradScaler("cuda") if case.scaler else None

    def marking(self, run: Callable[..., Any], before: str | None, after: str) -> Callable[..., Any]:
        """`run` that marks when it begins, if that is asked for, and when it has ended."""

        def marked(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.mark(before)
            out = run(*args, **kwargs)
            self.mark(after)
            return out

        return marked

    def note_stages(self, stages: Iterable[Any]) -> None:
        """Marks the passes of a pipeline's stages."""
        for stage in stages:
            stage.forward_one_chunk = self.marking(stage.forward_one_chunk, "chunk", "chunk forward")
            stage.backward_weight_one_chunk = self.marking(stage.backward_weight_one_chunk, None, "chunk weights")

    def sync(self, last: bool) -> Any:
        """The context of a micro-batch; gradients are reduced after the last."""
        return contextlib.nullcontext()

    def forward(self, batch: Batch) -> Any:
        with autocast(self.case):
            out, loss = loss_of(self.model, batch)
        if self.case.hold_outputs:
            self.held = out
        return loss

    def backward(self, loss: Any) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def clip_gradients(self) -> None:
        if self.case.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.case.clip)

    def update(self) -> None:
        if self.optimizer is not None:
            if self.scaler and self.case.clip:
                self.scaler.unscale_(self.optimizer)
            self.clip_gradients()
            if self.scaler:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=self.case.zero_grad == "none")

    def __call__(self, batch: Batch) -> None:
        count = self.case.grad_accum
        for i in range(count):
            with self.sync(i == count - 1):
                loss = self.forward(batch)
                self.mark("forward")
                self.backward(loss / count if count > 1 else loss)
                del loss
                self.mark("backward")
        self.update()
        self.mark("step")

    # -- who owns what --

    def leaves(self) -> list[Any]:
        """Where autograd puts gradients: parameters, and fully_shard's gathered forms of them."""
        found = list(self.model.parameters())
        for module in self.model.modules():
            state = getattr(module, "_get_fsdp_state", lambda: None)()
            for group in getattr(state, "_fsdp_param_groups", ()):
                found += [p._unsharded_param for p in group.fsdp_params if hasattr(p, "_unsharded_param")]
        return found

    def parameters(self) -> list[Any]:
        """Parameters as they lie on the rank between steps: whole, cut or flat."""
        return list(self.model.parameters())

    def owners(self) -> Iterator[tuple[str, Iterable[Any]]]:
        """(category, tensors) of all that lives from one phase to the next but parameters."""
        yield "gradients", [p.grad for p in self.leaves()]
        yield "optimizer", meter.state_tensors(self.optimizer)
