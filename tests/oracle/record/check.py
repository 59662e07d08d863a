# SPDX-License-Identifier: Apache-2.0
"""What a result says about itself: every byte of a peak accounted for, peaks in order, parameters counted."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from .case import Case
from .plans import DISTIL, INTERLEAVED

Result = Mapping[str, Any]
UNSPLIT = 1 << 20  # bytes of a block that its tensor may leave unused: a request finds other blocks in every step


def complaints(result: Result, case: Case) -> Iterator[str]:
    at_peak = result.get("at_peak")  # left out where the recorder has no category for what a strategy makes
    if result["outcome"] == "ok" and not result.get("replay_exact", True):
        yield "the replay of the history missed the peak"
    if at_peak and (sum(at_peak.values()) != result["allocated_peak"] or at_peak["other"]):
        yield f"categories leave {at_peak['other']} bytes"
    if result["reserved_peak"] < result["allocated_peak"]:
        yield "more allocated than reserved"
    yield from complaints_of_steps(result["steps"], case)
    if "at_step_peak" in result:
        yield from complaints_of_rank(result, case)
    if case.optimizer != "none" and result["outcome"] == "ok" and never_stepped(result, case):
        yield "no step was taken: the optimizer has states and none is there"


def complaints_of_steps(steps: list[Any], case: Case) -> Iterator[str]:
    for i, step in enumerate(steps):
        if "after_step" in step and step["after_step"] > step["allocated_peak"]:
            yield f"step {i} ends above its peak"
    answers_in_turn = case.trainer is not None and case.trainer.kind in DISTIL  # its batches differ from step to step
    if len(steps) > 2 and not case.lengths and not answers_in_turn:
        before, after = (step.get("after_step", 0) for step in steps[-2:])
        keeps_batches = case.trainer is not None and case.images  # of pixels, from one step to the next
        slack = UNSPLIT if case.parallel or case.compile or case.allocator or keeps_batches else 0
        if abs(after - before) > slack:
            yield "memory still grows from step to step"


STATELESS = ("sgd", "sgd_single")


def never_stepped(result: Result, case: Case) -> bool:
    """DeepSpeed skips a step when it finds an overflow, which it may in values that were not computed."""
    return (
        case.parallel is not None
        and case.parallel.kind.startswith("zero")
        and case.optimizer not in STATELESS
        and len(result["steps"]) > 1
        and result["steps"][0].get("after_step") == result["steps"][0].get("after_backward")
    )


def complaints_of_rank(result: Result, case: Case) -> Iterator[str]:
    """What only a rank of a distributed job can get wrong."""
    plan, at_peak = case.parallel, result["at_step_peak"]
    assert plan
    if sum(at_peak.values()) != result["step_peak"] or at_peak["other"]:
        yield f"categories leave {at_peak['other']} bytes of the steps' peak"
    if result["step_peak"] != max(step["allocated_peak"] for step in result["steps"]):
        yield "the steps' peak is not that of any step"
    if result["allocated_peak"] < max(result["step_peak"], result["peak_setup" if case.trainer else "peak_wrap"]):
        yield "a part peaks above the whole"
    if (result["rank"], result["world"]) != (plan.rank, plan.world):
        yield f"measured rank {result['rank']} of {result['world']}"
    if any((step["peak_forward"] is None) != (plan.kind in INTERLEAVED) for step in result["steps"]):
        yield "forward peaks where passes interleave, or none where they do not"


def serving_complaints(result: Result) -> Iterator[str]:
    """The rules of the engine's own arithmetic, recomputed from its settings; a kept result has not all of the
    figures."""
    memory, settings, kv = result.get("memory", {}), result.get("settings", {}), result.get("kv") or {}
    profile = memory.get("profile", {})
    if result["case"].get("engine") == "transformers":
        for name, found, expected in rules_of_paged_cache(settings, kv):
            if found != expected:
                yield f"{name} is {found}, {expected} by the rule"
        return
    for rules in (rules_of_memory(memory, settings, profile), rules_of_blocks(memory, settings, kv, result["case"])):
        for name, found, expected in rules:
            if found != expected:
                yield f"{name} is {found}, {expected} by the rule"


Rules = Iterator[tuple[str, Any, Any]]


def rules_of_memory(memory: Result, settings: Result, profile: Result) -> Rules:
    if "total" in memory and "gpu_memory_utilization" in settings:
        yield "requested", memory["requested"], -int(-memory["total"] * settings["gpu_memory_utilization"] // 1)
    if "after" in profile:
        yield "total_consumed", profile["total_consumed"], profile["after"]["reserved"] + profile["non_torch_increase"]
        yield "transient_peak", profile["transient_peak"], profile["peak_allocated"] - profile["after"]["allocated"]
    if profile and "available_kv_bytes" in memory:
        used = profile["total_consumed"] + profile["transient_peak"] + memory["cudagraph_memory_estimate"]
        yield "available_kv_bytes", memory["available_kv_bytes"], memory["requested"] - used


def rules_of_blocks(memory: Result, settings: Result, kv: Result, case: Result) -> Rules:
    if not kv.get("block_bytes") or "available_kv_bytes" not in memory:
        return
    fitting = memory["available_kv_bytes"] // kv["block_bytes"]
    yield "num_blocks", kv["num_blocks"], case.get("num_gpu_blocks_override") or fitting
    if kv.get("groups"):
        pages = (g.get("group_page_bytes", g["layers"] * g["page_bytes"]) for g in kv["groups"])
        yield "block_bytes", kv["block_bytes"], max(pages)
        if kv["max_concurrency"]:
            need = sum(g["blocks_per_request"] for g in kv["groups"])
            yield "max_concurrency", kv["max_concurrency"], kv["num_blocks"] / need
            yield "capacity_tokens", kv["capacity_tokens"], int(kv["num_blocks"] / need * settings["max_model_len"])


def rules_of_paged_cache(settings: Result, kv: Result) -> Rules:
    """Of transformers' continuous batching: blocks of the pool are sectors, which each kind of layer divides."""
    groups, size = kv.get("groups", []), kv.get("num_blocks", 0) * kv.get("block_bytes", 0)
    for g in groups:
        yield f"blocks of {g['kind']}", g["blocks"], size // (g["layers"] * g["page_bytes"])
    if groups:
        whole = sum(g["layers"] * g["page_bytes"] for g in groups)
        yield "capacity_tokens", kv["capacity_tokens"], size // whole * settings["page_size"]
