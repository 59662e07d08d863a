# SPDX-License-Identifier: Apache-2.0
"""Starts transformers' continuous batching, and runs the largest batch that it takes, by its own warm-up."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from ... import catalogue, phantom
from ...serving_case import GPUS, MIB, ServingCase
from .. import models
from . import folder
from .collect import without_paths
from .notes import HISTORY_LIMIT, peak_groups

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def import_libraries() -> None:
    """Before the fork; nothing here may touch the device."""
    import transformers.generation.continuous_batching.continuous_api
    import transformers.generation.continuous_batching.model_runner
    import transformers.masking_utils
    import transformers.models.llama.modeling_llama

    transformers.logging.set_verbosity_error()
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()


def versions() -> dict[str, str]:
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__}


def run(case: ServingCase, folders: list[Path]) -> dict[str, Any]:
    """The result: outcome "ok"; "refused": transformers or the allocator said no; "error": did not run here."""
    began = time.monotonic()
    out: dict[str, Any] = {"outcome": "error"}
    try:
        with torch.no_grad():
            start(case, folders, out)
        out["outcome"] = "ok"
    except (ValueError, MemoryError, torch.OutOfMemoryError) as e:
        traceback.print_exc()
        out["outcome"], out["message"] = "refused", without_paths(f"{type(e).__name__}: {e}".split(" If reserved but")[0])
    except Exception as e:
        traceback.print_exc()
        out["message"] = without_paths(f"{type(e).__name__}: {e}")
    out["wall_s"] = round(time.monotonic() - began, 1)
    return out


def start(case: ServingCase, folders: list[Path], out: dict[str, Any]) -> None:
    from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationConfig

    gpu = GPUS[case.gpu]
    phantom.become(
        case.device_bytes,
        case.capability or gpu.capability,
        1,
        case.context_mib * MIB,
        case.sms or gpu.multiprocessors,
        gpu.name,
    )
    arguments = dict(case.arguments)
    flash = arguments.setdefault("auto_switch_to_flash", False)
    if flash:
        from .. import flash_attention

        flash_attention.install(padding=False)
    sampling = {"temperature": 0.5, "do_sample": True} if arguments.pop("has_logit_processors", False) else {}
    net = build(case, folders, arguments.pop("dtype", None), "flash_attention_2" if flash else "sdpa", arguments.pop("load", "to"))
    note(out, "after_load")
    out["weights"] = {"bytes": sum(p.untyped_storage().nbytes() for p in models.unique(net.parameters()))}
    memory = out["memory"] = {"total": torch.cuda.mem_get_info()[1]}
    manager = net.init_continuous_batching(
        generation_config=GenerationConfig(**sampling, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(**arguments),
    )
    watch(memory)
    manager.batch_processor = manager._create_batch_processor()
    note(out, "after_start")
    settings_of(out, manager)
    cache_of(out, manager.batch_processor.cache)
    if not flash:
        largest_batch(case, out, manager, net)


def build(case: ServingCase, folders: list[Path], given: str | None, attention: str, load: str) -> Any:
    config = dict(case.config) if case.config is not None else catalogue.find(case.model, folders).config
    config.pop("quantization_config", None)
    folder.override(config, case.overrides)
    stated = config.get("dtype") or config.get("torch_dtype") or "float32"
    dtype = DTYPES[given] if given else getattr(torch, stated)
    net = models.construct(config, dtype, attention, torch.device("meta"))
    models.keep_in_fp32(net, dtype)
    if load == "warmup":
        models.warm_up(net)
    models.materialise(net, {})
    net.eval()
    net.requires_grad_(False)
    return net


def note(out: dict[str, Any], name: str) -> None:
    out[name], out[f"reserved_{name}"] = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def watch(memory: dict[str, Any]) -> None:
    """What transformers finds available."""
    from transformers.generation.continuous_batching import cache

    handler: Any = cache.PagedAttentionMemoryHandler
    measure = handler.get_available_memory

    def get_available_memory(self: Any) -> Any:
        memory["available_kv_bytes"] = measure(self)
        memory["profile"] = {"total_consumed": torch.cuda.memory_reserved()}
        return memory["available_kv_bytes"]

    handler.get_available_memory = get_available_memory


def settings_of(out: dict[str, Any], manager: Any) -> None:
    config = manager.continuous_batching_config
    out["settings"] = {
        key: getattr(config, key)
        for key in (
            "page_size",
            "max_batch_tokens",
            "max_memory_percent",
            "max_requests_per_batch",
            "max_blocks_per_request",
            "use_async_batching",
            "use_cuda_graph",
        )
    }
    out["settings"]["attention"] = manager.model.config._attn_implementation


def cache_of(out: dict[str, Any], cache: Any) -> None:
    """Blocks are transformers' sectors, the unit that the pool deals out."""
    from transformers.generation.continuous_batching.model_runner import infer_max_single_request_tokens

    out["kv"] = {
        "num_blocks": cache.num_sectors,
        "block_bytes": cache.bytes_per_sector,
        "capacity_tokens": cache.num_blocks * out["settings"]["page_size"],
        "groups": [
            {
                "kind": name,
                "layers": len(allocator.layer_indices),
                "block_size": allocator.tokens_per_page,
                "page_bytes": allocator.bytes_per_page,
                "blocks": allocator.num_blocks,
            }
            for name, allocator in cache.cache_allocators.items()
        ],
    }
    out["longest"] = infer_max_single_request_tokens(cache)


def largest_batch(case: ServingCase, out: dict[str, Any], manager: Any, net: Any) -> None:
    """max_batch_tokens of one request, which read all that the cache holds beside them."""
    processor = manager.batch_processor
    tokens = min(processor.cache.max_batch_tokens, out["longest"])
    with peak(case, out):
        ran = processor.model_runner.run_one_warmup(net, tokens, out["longest"] - tokens)
    if not ran:
        raise RuntimeError("the warm-up did not run")
    out["allocated_peak"], out["reserved_peak"] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    out["memory"]["profile"]["transient_peak"] = out["allocated_peak"] - out["after_start"]


@contextlib.contextmanager
def peak(case: ServingCase, out: dict[str, Any]) -> Any:
    torch.cuda.reset_peak_memory_stats()
    if not case.top:
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=HISTORY_LIMIT, stacks="python")
    yield
    out["top_at_peak"] = peak_groups(torch.cuda.memory._snapshot()["device_traces"][0], case.top)
