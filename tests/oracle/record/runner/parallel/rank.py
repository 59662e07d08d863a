# SPDX-License-Identifier: Apache-2.0
"""Plays one rank: the process group, the model, its wrapper, the steps."""

from __future__ import annotations

import functools
import gc
import itertools
from typing import Any, Callable, Iterator

import torch

from ...case import Case
from ...catalogue import Model
from ...plans import INTERLEAVED
from .. import compiled, kernels, models, run
from ..batches import Batch
from ..meter import Meter
from . import ddp, deepspeed, fsdp, group, native, pipeline, tensor, ulysses
from .steps import Step

WRAPPERS: dict[str, Callable[[Any, Case], Step]] = {
    "ddp": ddp.wrap,
    "fsdp1": fsdp.wrap_fsdp1,
    "fsdp2": fsdp.wrap_fsdp2,
    "zero0": deepspeed.wrap,
    "zero1": deepspeed.wrap,
    "zero2": deepspeed.wrap,
    "zero3": deepspeed.wrap,
    "tp": tensor.wrap,
    "pp": pipeline.wrap,
    "native": native.wrap,
}


def play(case: Case, model: Model, meter: Meter, state: dict[str, Any]) -> None:
    assert case.parallel
    group.setup(case.parallel)
    wrapper: Callable[[Any, Case], Step]
    if case.parallel.kind == "megatron":
        from ..megatron import step as megatron

        net, wrapper = megatron.build(case, model.config), megatron.wrap
    elif trains_by_itself(case):
        from ..torchtitan import trainer as torchtitan

        net = torchtitan.build(case, model.config)
        wrapper = functools.partial(torchtitan.wrap, config=model.config, meter=meter)
    else:
        net, wrapper = models.build(case, model.config, deepspeed.partition(case)), WRAPPERS[case.parallel.kind]
    run.loaded(net, meter, state)
    kernels.apply(case, net)
    compiled.apply(case, net)
    step = wrap(case, net, wrapper, meter, state)
    if case.parallel.kind == "megatron" or trains_by_itself(case):
        del net
        return train(case, step, itertools.repeat({}), meter)  # each micro-batch is put on the device as it comes
    first = {} if case.lengths else run.make_batch(ulysses.of_rank(case), model, meter, state)
    del net  # a pipeline has let go of most of it
    train(case, step, run.each_batch(case, model, first, meter, state), meter)


def trains_by_itself(case: Case) -> bool:
    """Is it torchtitan's trainer with its own models?"""
    return getattr(case.parallel, "models", None) == "torchtitan"


def wrap(case: Case, net: Any, wrapper: Callable[[Any, Case], Step], meter: Meter, state: dict[str, Any]) -> Step:
    """The model under the case's kind of parallelism, with its optimizer."""
    assert case.parallel
    meter.phase(None)
    meter.watch(net.parameters())  # DeepSpeed's own hooks take gradients away
    step = wrapper(net, case)
    gc.collect()
    state["after_wrap"] = torch.cuda.memory_allocated()
    state["reserved_after_wrap"] = torch.cuda.memory_reserved()
    state["peak_wrap"] = meter.phase(None)
    meter.mark("parameters", step.parameters())
    meter.mark("buffers", step.model.buffers())
    if case.parallel.kind == "megatron":  # its buffers are there before the first step
        for category, tensors in step.owners():
            meter.mark(category, tensors)
    return step


PHASES = {
    "forward": ("forward", "after_forward"),
    "backward": ("backward", "after_backward"),
    "step": ("optimizer", None),
}


def train(case: Case, step: Step, batches: Iterator[Batch], meter: Meter) -> None:
    """The passes of a pipeline interleave: its backward phase is the whole schedule."""

    def mark(name: str) -> None:
        if name == "chunk":
            return meter.begin_forward()
        if name in ("forward", "chunk forward"):
            meter.end_forward()
            meter.watch(step.leaves())  # some are there since the first forward pass
        if name in PHASES:
            meter.phase(*PHASES[name])
        if name in PHASES or name in ("chunk weights", "main gradients"):  # which no hook of a leaf sees
            for category, tensors in step.owners():
                meter.mark(category, tensors)

    assert case.parallel
    step.mark = mark
    for _ in range(case.steps):
        meter.begin_step()
        if case.parallel.kind in INTERLEAVED:
            meter.steps[-1] |= {"peak_forward": None, "after_forward": None}
        batch = next(batches)
        step(batch)
        meter.end_step()
