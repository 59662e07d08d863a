# SPDX-License-Identifier: Apache-2.0
"""Runs one case in this process, and says what the allocator did."""

from __future__ import annotations

import gc
import itertools
import time
from pathlib import Path
from typing import Any, Iterator

import torch

from .. import catalogue, events, ledger, phantom
from ..case import Case
from ..catalogue import Model
from . import batches, generate, kernels, models, stand_ins, train
from .meter import Meter, tensors_of_parameter

Result = dict[str, Any]
OURS = str(Path(__file__).resolve().parents[1])
HISTORY_LIMIT = 10**7  # events
GROUPS, GROUPS_OF_RANK = 30, 15  # rows of top_at_peak and top_at_step_peak


def run(case: Case, folders: list[Path], events_to: Path | None = None) -> Result:
    """The result of a case, on a device that nothing has used yet.  events_to: a file for the allocator's events."""
    started = time.time()
    model = catalogue.of_case(case, folders)
    prepare_process(case, model)
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=HISTORY_LIMIT)
    if case.memory_fraction:
        torch.cuda.set_per_process_memory_fraction(case.memory_fraction)
    meter = Meter()
    state: dict[str, Any] = {"outcome": "ok"}
    try:
        play(case, model, meter, state)
    except torch.cuda.OutOfMemoryError as e:
        state |= {"outcome": "oom", "message": str(e).split(" If reserved but")[0]}
        meter.phase(None)
    meter.phase(None)
    gc.disable()  # only the bookkeeping is left: many objects, no cycles
    result, trace = report(case, meter, state)
    result["wall_s"] = round(time.time() - started, 2)
    if events_to is not None:
        events.write(events_to, events_header(case, result), trace)
    return result


def prepare_process(case: Case, model: Model) -> None:
    """Everything that must be decided before the device is first touched."""
    phantom.become(int(case.gpu_gib * 1024) << 20, case.capability)
    if case.allocator:
        torch._C._accelerator_setAllocatorSettings(case.allocator)
    if case.sdpa_backend != "default":
        cuda = torch.backends.cuda
        cuda.enable_flash_sdp(case.sdpa_backend == "flash")
        cuda.enable_mem_efficient_sdp(case.sdpa_backend in ("flash", "efficient"))
        cuda.enable_cudnn_sdp(case.sdpa_backend == "cudnn")
        cuda.enable_math_sdp(True)
    stand_ins.install(case, model)


def play(case: Case, model: Model, meter: Meter, state: Result) -> None:
    if case.trainer:
        from . import trainers

        return trainers.play(case, model, meter, state)
    if case.parallel:
        from .parallel import rank

        return rank.play(case, model, meter, state)
    net = models.build(case, model.config)
    loaded(net, meter, state)
    kernels.apply(case, net)
    batch = {} if case.lengths else make_batch(case, model, meter, state)
    if case.mode == "infer":
        generate.infer(case, net, batch, meter)
    else:
        train.train(case, net, each_batch(case, model, batch, meter, state), meter, state)


def loaded(net: Any, meter: Meter, state: Result) -> None:
    """Notes a model that is on the device, before anything has run."""
    state["parameters"] = models.count_parameters(net)
    state["parameter_bytes"] = sum(
        t.untyped_storage().nbytes() for p in net.parameters() for t in tensors_of_parameter(p)
    )
    state["buffers_bytes"] = sum(b.untyped_storage().nbytes() for b in models.unique(net.buffers()))
    state["after_load"] = torch.cuda.memory_allocated()
    state["reserved_after_load"] = torch.cuda.memory_reserved()
    meter.owners(net, None)


def make_batch(case: Case, model: Model, meter: Meter, state: Result) -> batches.Batch:
    batch = batches.make(case, model)
    meter.mark("inputs", batch.values())
    state["inputs"] = {
        k: [list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in batch.items() if isinstance(v, torch.Tensor)
    }
    if case.use_cache is not None and case.mode == "train":
        batch["use_cache"] = case.use_cache
    return batch


def each_batch(case: Case, model: Model, first: batches.Batch, meter: Meter, state: Result) -> Iterator[batches.Batch]:
    """One for each micro-batch: of samples of these lengths, or the same for all."""
    if not case.lengths:
        yield from itertools.repeat(first)
    first = {}  # not held on to
    for i in itertools.count():
        micro = batches.of_lengths(case, i)
        stand_ins.batch_is_padded(bool(micro.padding))
        yield make_batch(micro, model, meter, state)


# ---- what is written down ----


def report(case: Case, meter: Meter, state: Result) -> tuple[Result, list[Any]]:
    """The result, and the allocator's events that it comes from."""
    final = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    trace = snapshot["device_traces"][0]
    history = ledger.replay(trace, case.allocator, meter.marks, meter.steps_from or 0)
    result: Result = {
        **state,
        "steps": meter.steps,
        "allocated_peak": meter.allocated_peak,
        "reserved_peak": meter.reserved_peak,
        "segments": segments(snapshot),
        "retries": final["num_alloc_retries"],
        "ooms": final["num_ooms"],
        "replay_exact": history.peak.bytes == meter.allocated_peak,
    }
    ledger.categorise(history, meter.forward, ledger.workspace_sizes(case.capability))
    categories = ledger.categories_of(bool(case.parallel), bool(case.main_grads), bool(case.trainer))
    live = history.live_at(history.peak.at)
    result["at_peak"] = ledger.sums(live, meter.allocated_peak, categories)
    result["top_at_peak"] = ledger.largest_groups(live, OURS, GROUPS)
    if case.parallel and meter.steps:
        result |= report_of_rank(case, meter, history, categories)
    result["cublas_workspace"] = max((a.size for a in history.allocations if a.category == "workspace"), default=0)
    if not phantom.is_here():
        result["device"] = device_facts()
    result["events"] = len(trace)
    result["allocated"], result["reserved"] = (final[f"{name}_bytes.all.current"] for name in ("allocated", "reserved"))
    return result, trace


def report_of_rank(case: Case, meter: Meter, history: ledger.History, categories: tuple[str, ...]) -> Result:
    """What only one rank of several has."""
    assert case.parallel
    peak = max(step.get("allocated_peak", 0) for step in meter.steps)
    live = history.live_at(history.step_peak.at)
    return {
        "rank": case.parallel.rank,
        "world": case.parallel.world,
        "step_peak": peak,
        "at_step_peak": ledger.sums(live, peak, categories),
        "top_at_step_peak": ledger.largest_groups(live, OURS, GROUPS_OF_RANK),
        "host_pinned": torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0),
    }


def segments(snapshot: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Number and bytes of the segments held at the end, by pool."""
    found = {kind: {"count": 0, "bytes": 0} for kind in ("small", "large")}
    for s in snapshot["segments"]:
        kind = found[s["segment_type"]]
        kind["count"] += 1
        kind["bytes"] += s["total_size"]
    return found


def device_facts() -> Result:
    """Of a real GPU only: what the driver says is in use at the end, all processes together, and what of it is outside
    of PyTorch's allocator (context, loaded kernels, libraries), in bytes."""
    free, total = torch.cuda.mem_get_info()
    p = torch.cuda.get_device_properties(0)
    return {
        "name": p.name,
        "total": total,
        "capability": 10 * p.major + p.minor,
        "sms": p.multi_processor_count,
        "used": total - free,
        "outside": total - free - torch.cuda.memory_reserved(),
    }


def events_header(case: Case, result: Result) -> Result:
    kept = ("outcome", "allocated_peak", "reserved_peak", "retries", "ooms", "allocated", "reserved")
    return {
        "case": {k: getattr(case, k) for k in ("id", "model", "allocator", "memory_fraction")},
        "device_bytes": torch.cuda.get_device_properties(0).total_memory,
        **{k: result[k] for k in kept},
    }
