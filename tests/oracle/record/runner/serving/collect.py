# SPDX-License-Identifier: Apache-2.0
"""What a result says of an engine that has started, or has refused to."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Iterable

import torch

from .notes import GRAIN, Notes

OF_SPECS = (
    "num_kv_heads",
    "head_size",
    "head_size_v",
    "sliding_window",
    "page_size_padded",
    "attention_chunk_size",
    "mamba_type",
    "mamba_cache_mode",
    "num_speculative_blocks",
    "cache_dtype_str",
    "tokens_per_state",
)
MESSAGE_LIMIT = 2000


def collect(out: dict[str, Any], notes: Notes, config: Any) -> None:
    out["settings"] = settings_of(config)
    if notes.worker is not None:
        of_worker(out, notes, config)
    notes.memory["final"] = notes.stats()
    free, total = torch.cuda.mem_get_info()
    notes.memory["final"]["device_used"] = total - free
    if notes.kv is not None:
        out["kv"] = cache_of(notes.kv, config)
    if notes.top:
        out["top_at_peak"] = notes.top


def settings_of(config: Any) -> dict[str, Any]:
    """What the engine resolved."""
    cache, sched, model, compilation = (
        config.cache_config,
        config.scheduler_config,
        config.model_config,
        config.compilation_config,
    )
    return {
        "max_model_len": model.max_model_len,
        "dtype": dtype_name(model.dtype),
        "quantization": model.quantization,
        "max_num_batched_tokens": sched.max_num_batched_tokens,
        "max_num_seqs": sched.max_num_seqs,
        "max_in_flight_tokens": config.max_in_flight_tokens,
        "async_scheduling": bool(sched.async_scheduling),
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "block_size": cache.block_size,
        "cache_dtype": cache.cache_dtype,
        "mamba_cache_mode": getattr(cache, "mamba_cache_mode", None),
        "prefix_caching": bool(cache.enable_prefix_caching),
        "hybrid_manager": not sched.disable_hybrid_kv_cache_manager,
        "layout": str(cache.kv_cache_layout),
        "runner": "v2" if config.use_v2_model_runner else "v1",
        "compile": int(compilation.mode),
        "cudagraph_mode": str(compilation.cudagraph_mode),
        "capture_sizes": list(compilation.cudagraph_capture_sizes or []),
        "encoder_budget": sched.max_num_encoder_input_tokens,
        "encoder_cache": sched.encoder_cache_size,
    }


def of_worker(out: dict[str, Any], notes: Notes, config: Any) -> None:
    worker, memory = notes.worker, notes.memory
    snapshot = getattr(worker, "init_snapshot", None)
    if snapshot is not None:
        memory["total"], memory["free_at_start"] = snapshot.total_memory, snapshot.free_memory
        memory["requested"] = int(worker.requested_memory)
    runner = worker.model_runner
    memory["model_bytes"] = int(getattr(runner, "model_memory_usage", 0))
    for key in ("cudagraph_memory_estimate", "total_consumed", "peak_activation_memory"):
        if hasattr(worker, key):
            memory[key] = int(getattr(worker, key))
    model = getattr(runner, "model", None)
    if model is not None:
        parameters, buffers = list(model.parameters()), list(model.buffers())
        weight, rounded = storage_bytes(parameters)
        out["weights"] = {
            "count": sum(p.numel() for p in {id(p): p for p in parameters}.values()),
            "bytes": weight,
            "rounded": rounded,
            "buffers": storage_bytes(buffers)[0],
        }
    with contextlib.suppress(Exception):
        layers = config.compilation_config.static_forward_context.values()
        out["settings"]["attention"] = sorted(
            {layer.get_attn_backend().get_name() for layer in layers if hasattr(layer, "get_attn_backend")}
        )


def storage_bytes(tensors: Iterable[Any]) -> tuple[int, int]:
    """Bytes of the storages on the device, as they are and as blocks."""
    seen: dict[int, int] = {}
    for t in tensors:
        if t is not None and t.is_cuda:
            s = t.untyped_storage()
            seen[s.data_ptr() or id(t)] = s.nbytes()
    return sum(seen.values()), sum(-(-n // GRAIN) * GRAIN for n in seen.values())


def cache_of(kv: Any, config: Any) -> dict[str, Any]:
    groups = []
    for g in kv.kv_cache_groups:
        spec = g.kv_cache_spec
        specs = getattr(spec, "kv_cache_specs", None)
        row = {"layers": len(g.layer_names)} | kind_of(next(iter(specs.values())) if specs else spec)
        if specs:
            row["kinds"] = [dict(kind_of(s), layers=n) for s, n in counted(specs.values())]
            row["group_page_bytes"] = spec.page_size_bytes
        row["blocks_per_request"] = -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes)
        groups.append(row)
    size = kv.kv_cache_tensors[0].size if kv.kv_cache_tensors else 0
    return {
        "num_blocks": kv.num_blocks,
        "bytes": size,
        "block_bytes": size // kv.num_blocks if kv.num_blocks else 0,
        "groups": groups,
        "capacity_tokens": getattr(config.cache_config, "kv_cache_size_tokens", None),
        "max_concurrency": getattr(config.cache_config, "kv_cache_max_concurrency", None),
    }


def kind_of(spec: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": type(spec).__name__,
        "block_size": spec.block_size,
        "page_bytes": spec.page_size_bytes,
    }
    for key in OF_SPECS:
        value = getattr(spec, key, None)
        if value is not None:
            out[key] = value if isinstance(value, (int, float, str)) else str(value)
    if getattr(spec, "dtype", None) is not None:
        out["dtype"] = dtype_name(spec.dtype)
    if getattr(spec, "shapes", None):
        out["shapes"], out["dtypes"] = [list(s) for s in spec.shapes], [dtype_name(d) for d in spec.dtypes]
    return out


def dtype_name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def counted(specs: Iterable[Any]) -> list[tuple[Any, int]]:
    seen: dict[Any, int] = {}
    for s in specs:
        seen[s] = seen.get(s, 0) + 1
    return list(seen.items())


def without_paths(text: str) -> str:
    """No path of the machine that measured."""
    return re.sub(r"/[\w./@+-]*/(?=[\w.-]+)", "", text)[:MESSAGE_LIMIT]
