# SPDX-License-Identifier: Apache-2.0
"""Cuts a trainer's loop into the meter's phases."""

from __future__ import annotations

import functools
from typing import Any, Callable

from ...case import Case
from ...plans import GENERATE, ONLINE, Zero
from ..meter import Meter
from ..parallel.steps import Step
from ..stand_ins import batch_is_padded
from . import data, ranks, stand_ins


# Of a batch, or of its halves, which are padded to the longer one.
MASKS = ("attention_mask", "chosen_attention_mask", "rejected_attention_mask")


class Phases:
    def __init__(self, trainer: Any, meter: Meter, case: Case) -> None:
        assert case.trainer
        self.trainer, self.meter, self.case, self.kind = trainer, meter, case, case.trainer.kind
        self.has_lengths, self.is_evaluating = bool(case.lengths), False
        self.answered: Any = None  # questions with the answers to them that were generated
        self.evaluated = 0  # batches of this evaluation
        self.valid: Callable[[Any], int] = lambda shape: int(shape.numel())  # labels of this batch that count
        wrap(trainer, "compute_loss", self.loss)
        wrap(trainer, "training_step", self.micro)
        wrap(trainer.accelerator, "backward", self.backward)
        wrap(trainer, "evaluation_loop", self.evaluate)
        wrap(trainer, "prediction_step", self.predict)
        wrap(trainer, "_save_checkpoint", self.save)
        if case.lengths and case.parallel is not None:
            stand_ins.columns_of_ranks(self.columns)
        if hasattr(trainer, "compute_ref_log_probs"):
            wrap(trainer, "compute_ref_log_probs", self.reference)
        if hasattr(trainer, "_generate_and_score_completions"):
            wrap(trainer, "_generate_and_score_completions", self.generate)
            wrap(trainer, "_generate_single_turn", self.sample)
        if hasattr(trainer, "generate_on_policy_outputs"):
            wrap(trainer, "generate_on_policy_outputs", self.answer)
        if self.kind in ONLINE:
            wrap(trainer, "_generate", self.sample)
        if getattr(trainer, "use_vllm", False):
            wrap(trainer.vllm_generation, "sync_weights", self.sync)
        if hasattr(trainer, "_get_per_token_logps_and_entropies"):
            completion = case.trainer.completion
            self.valid = lambda shape: int(shape[0]) * completion

    def micro(self, step: Callable[..., Any], model: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(batch, dict):
            self.meter.mark("inputs", batch.values())
        self.meter.begin_forward()
        return step(model, batch, *args, **kwargs)

    def evaluate(self, loop: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Behind the step that it follows, of which it is a phase."""
        self.is_evaluating, self.evaluated = True, 0
        found = loop(*args, **kwargs)
        self.is_evaluating = False
        self.meter.phase("evaluate", "after_evaluate")
        self.meter.note_peaks()
        return found

    def save(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Behind the step that it follows, of which it is a phase."""
        self.meter.phase(None)
        write(*args, **kwargs)
        self.meter.phase("save", "after_save")
        self.meter.note_peaks()

    def predict(self, step: Callable[..., Any], model: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self.evaluated += 1
        if isinstance(batch, dict):
            self.meter.mark("inputs", batch.values())
        return step(model, batch, *args, **kwargs)

    def columns(self) -> int:
        """The most that a rank has in the batch that is evaluated."""
        return data.evaluated_columns(self.case, self.trainer.args.per_device_eval_batch_size, self.evaluated - 1)

    def loss(self, compute: Callable[..., Any], model: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self.count(batch)
        if self.is_evaluating:
            return compute(model, batch, *args, **kwargs)
        self.meter.mark("inputs", batch.values())
        self.begin_forward()
        found = compute(model, batch, *args, **kwargs)
        self.end_forward()
        return found

    def begin_forward(self) -> None:
        if self.case.parallel is not None:  # strategies take gradients away in the backward pass
            is_bucket = isinstance(self.case.parallel, Zero)
            leaves = Step(self.trainer.model_wrapped, None, self.case).leaves()
            self.meter.watch(leaves, "communication" if is_bucket else "gradients")
        self.meter.begin_forward()

    def end_forward(self) -> None:
        self.meter.end_forward()
        self.meter.phase("forward", "after_forward")

    def reference(self, compute: Callable[..., Any], model: Any, batch: Any) -> Any:
        self.count(batch)
        return compute(model, batch)

    def sync(self, send: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        send(*args, **kwargs)
        self.meter.phase("sync")

    def sample(self, turn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = turn(*args, **kwargs)
        self.meter.phase("generate", "after_generate")
        if self.kind in ONLINE:
            self.begin_forward()
        return found

    def answer(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = generate(*args, **kwargs)
        self.meter.phase("generate", "after_generate")
        self.answered = made[0]
        return made

    def generate(self, score: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.has_lengths:  # what is generated together is padded on its left, and shuffled over micro-batches
            batch_is_padded(len({len(row["prompt"].split()) for row in inputs}) > 1)
        found = score(inputs, *args, **kwargs)
        self.meter.phase("score", "after_score")
        return found

    def count(self, batch: dict[str, Any]) -> None:
        """How many labels of this batch are valid, once shifted, and whether it is padded; from what the collator made on
        the host."""
        masks = [batch[k].cpu() for k in MASKS if k in batch]
        if self.has_lengths and masks:
            batch_is_padded(len({m.shape[1] for m in masks}) > 1 or not all(bool(m.all()) for m in masks))
        if "completion_mask" in batch and self.kind not in GENERATE:
            n = int(batch["completion_mask"].cpu()[:, 1:].sum())
        elif self.answered is not None and batch.get("input_ids") is self.answered:
            assert self.case.trainer
            self.answered = None  # it dies when the trainer lets go of it
            n = batch["labels"].shape[0] * self.case.trainer.completion
        elif "shift_labels" in batch:
            n = batch["shift_labels"].shape[0] * data.labels_of_part(self.case)
        elif "labels" in batch and batch["labels"].dim() > 1:
            n = int((batch["labels"].cpu()[:, 1:] != -100).sum())
        else:
            return
        self.valid = lambda shape: min(n, int(shape.numel()))

    def backward(self, run: Callable[..., Any], loss: Any, **kwargs: Any) -> None:
        if self.kind in ONLINE:  # whose training_step() computes the loss itself
            self.end_forward()
        engine = getattr(self.trainer.accelerator, "deepspeed_engine_wrapped", None)
        if engine is not None and not hasattr(engine, "is_cut"):
            engine.is_cut = True
            wrap(engine.engine, "step", self.engine_step)
        run(loss, **kwargs)
        if engine is None or not self.trainer.accelerator.sync_gradients:
            self.end_backward()

    def engine_step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.end_backward()
        step(*args, **kwargs)

    def end_backward(self) -> None:
        self.meter.phase("backward", "after_backward")
        self.owners()

    def owners(self) -> None:
        optimizer = self.trainer.optimizer
        bare = getattr(optimizer, "optimizer", optimizer)
        self.meter.owners(self.trainer.model, bare)
        if self.case.parallel is not None:
            for category, tensors in ranks.owners(self.case, self.trainer.model_wrapped, bare):
                self.meter.mark(category, tensors)


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    setattr(owner, name, functools.partial(around, getattr(owner, name)))


def callback(phases: Phases) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            phases.meter.begin_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            phases.meter.phase("optimizer")
            phases.meter.end_step()
            phases.owners()

    return Steps()
