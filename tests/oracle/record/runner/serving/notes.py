# SPDX-License-Identifier: Apache-2.0
"""What the engine's own code computes, caught on the way."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Callable, Iterator

import torch

from ... import phantom
from ...serving_case import ServingCase

HISTORY_LIMIT = 2_000_000  # events
GRAIN = 512
AFTER = {
    "load_model": "load",
    "determine_available_memory": "profile",
    "initialize_from_config": "kv",
    "compile_or_warm_up_model": "warm_up",
}


class Notes:
    def __init__(self, case: ServingCase) -> None:
        self.case = case
        self.memory: dict[str, Any] = {}
        self.worker: Any = None
        self.kv: Any = None
        self.top: list[dict[str, Any]] = []

    def stats(self) -> dict[str, int]:
        s = torch.cuda.memory_stats()
        return {
            "allocated": s.get("allocated_bytes.all.current", 0),
            "reserved": s.get("reserved_bytes.all.current", 0),
        }

    def install(self) -> None:
        from vllm.v1.worker import gpu_worker

        gpu_worker.memory_profiling = self.profiling(gpu_worker.memory_profiling)
        if self.case.arguments.get("enable_lora"):
            adapters_are_all_in_use(self.case.arguments.get("max_loras", 1))
        if self.case.draft:
            drafts_keep_heads_of_their_size()
        if not self.case.warm_up:  # kernels' own tuning runs, after the cache is allocated
            gpu_worker.kernel_warmup = lambda worker: None
            gpu_worker.warmup_kernels = lambda *a: None
        for name in AFTER:
            setattr(gpu_worker.Worker, name, self.watched(name, getattr(gpu_worker.Worker, name)))
        self.watch_cache()

    def profiling(self, profiling: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def memory_profiling(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with profiling(*args, **kwargs) as result:
                before = self.stats()
                with self.history():
                    yield result
            after = {"allocated": result.after_profile.torch_allocated, "reserved": result.after_profile.torch_memory}
            self.memory["profile"] = {
                "before": before,
                "peak_allocated": result.after_profile.torch_peak,
                "after": after,
                "transient_peak": result.transient_peak_headroom,
                "total_consumed": result.total_consumed,
                "non_torch_increase": result.non_torch_increase,
                "non_kv_cache": result.non_kv_cache_memory,
            }

        return memory_profiling

    def watch_cache(self) -> None:
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.engine import core

        configs, check, memory = core.get_kv_cache_configs, kv_cache_utils._check_enough_kv_cache_memory, self.memory

        def get_kv_cache_configs(vllm_config: Any, specs: Any, available: Any) -> Any:
            memory["available_kv_bytes"] = available[0]
            made = configs(vllm_config, specs, available)
            self.kv = made[0]
            return made

        def checked(available: int, needed: Any, length: int, estimate: Any) -> Any:
            memory["checked_bytes"] = available
            with contextlib.suppress(Exception):
                memory["one_request_bytes"] = needed()
                memory["longest_that_fits"] = estimate(available)
            return check(available, needed, length, estimate)

        core.get_kv_cache_configs = get_kv_cache_configs
        kv_cache_utils._check_enough_kv_cache_memory = checked

    def watched(self, name: str, method: Any) -> Callable[..., Any]:
        def call(worker: Any, *args: Any, **kwargs: Any) -> Any:
            self.worker = worker
            if name == "load_model":
                self.memory["before_load"] = self.stats()
                torch.cuda.reset_peak_memory_stats()
            result = method(worker, *args, **kwargs)
            if name == "load_model":
                self.memory["load_peak_allocated"] = torch.cuda.max_memory_allocated()
            self.memory[f"after_{AFTER[name]}"] = self.stats()
            return result

        return call

    @contextlib.contextmanager
    def history(self) -> Iterator[None]:
        """The largest groups of blocks live at the peak of the profile run."""
        if not self.case.top:
            yield
            return
        torch.cuda.memory._record_memory_history(max_entries=HISTORY_LIMIT, stacks="python")
        try:
            yield
        finally:
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
            torch.cuda.memory._record_memory_history(enabled=None)
            self.top = peak_groups(trace, self.case.top)


def peak_groups(trace: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """First the sum of what was live at the peak of a trace, then its largest groups."""
    live: dict[int, Any] = {}
    now = best = best_at = 0
    for i, event in enumerate(trace):
        if event["action"] == "alloc":
            live[event["addr"]] = event
            now += rounded(event["size"])
            if now > best:
                best, best_at = now, i
        elif event["action"] == "free_completed" and event["addr"] in live:
            now -= rounded(live.pop(event["addr"])["size"])
    groups: dict[tuple[str, int], int] = {}
    for event in live_at(trace, best_at):
        key = (place(event["frames"]), event["size"])
        groups[key] = groups.get(key, 0) + 1
    rows: list[dict[str, Any]] = [
        {"bytes": size * n, "count": n, "each": size, "from": where} for (where, size), n in groups.items()
    ]
    return [{"transient_sum": best}] + sorted(rows, key=lambda r: -r["bytes"])[:limit]


def rounded(size: int) -> int:
    return -(-size // GRAIN) * GRAIN


def live_at(trace: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    live: dict[int, dict[str, Any]] = {}
    for event in trace[: at + 1]:
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    return list(live.values())


def place(frames: list[dict[str, Any]]) -> str:
    """The three innermost lines of the engine, or the innermost of all."""

    def line(f: dict[str, Any]) -> str:
        return f"{Path(f['filename']).name}:{f['line']}"

    names = [
        f"{line(f)} {f['name']}" for f in frames if "/vllm/" in f["filename"] or "/transformers/" in f["filename"]
    ]
    return " < ".join(names[:3]) if names else line(frames[0]) if frames else "?"


def adapters_are_all_in_use(count: int) -> None:
    """Which adapters a batch uses is found on the device, which computes nothing: all slots."""
    from vllm.lora.ops.triton_ops import lora_kernel_metadata

    prepare = lora_kernel_metadata.LoRAKernelMeta.prepare_tensors

    def prepare_tensors(self: Any, *args: Any, **kwargs: Any) -> Any:
        with phantom.counts(count):
            return prepare(self, *args, **kwargs)

    lora_kernel_metadata.LoRAKernelMeta.prepare_tensors = prepare_tensors


def drafts_keep_heads_of_their_size() -> None:
    """A checkpoint's own head is found while its file is read, which dummies have not: one of another size is its own."""
    from vllm.v1.worker.gpu.spec_decode.eagle import utils

    should_share = utils._should_share

    def keeps(eagle: Any, flag: str, draft: Any, target: Any) -> bool:
        is_own = flag == "has_own_lm_head" and None not in (draft, target) and draft.weight.shape != target.weight.shape
        return not is_own and should_share(eagle, flag, draft, target)

    utils._should_share = keeps


def first_of_each_tuning() -> None:
    """Triton's autotuner would compile and time every variant of a kernel; time means nothing here: the first."""
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    Autotuner.run = first
