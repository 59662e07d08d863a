# SPDX-License-Identifier: Apache-2.0
"""Starts one engine, up to its cache, and says what it decided."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from ... import phantom
from ...serving_case import GPUS, MIB, ServingCase
from . import folder, notes
from .collect import collect, without_paths


def import_libraries() -> None:
    """Before the fork; nothing here may touch the device."""
    for name, value in (
        ("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("HF_HUB_OFFLINE", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        os.environ.setdefault(name, value)
    import vllm.model_executor.models.llama
    import vllm.v1.engine.core
    import vllm.v1.worker.gpu.model_runner
    import vllm.v1.worker.gpu_model_runner
    import vllm.v1.worker.gpu_worker

    gc.collect()
    gc.freeze()


def versions() -> dict[str, str]:
    import torch
    import transformers
    import vllm

    return {"vllm": vllm.__version__, "torch": torch.__version__, "transformers": transformers.__version__}


def run(case: ServingCase, folders: list[Path]) -> dict[str, Any]:
    """The result: outcome "ok"; "refused": the engine or the allocator said no; "error": did not run here."""
    import torch

    began = time.monotonic()
    out: dict[str, Any] = {"outcome": "error"}
    try:
        start(case, folders, out)
    except BaseException as e:  # an engine that gives up may call exit(): that is its answer
        traceback.print_exc()
        out["outcome"] = "refused" if isinstance(e, (ValueError, torch.OutOfMemoryError)) else "error"
        out["message"] = without_paths(f"{type(e).__name__}: {e}")
    out["wall_s"] = round(time.monotonic() - began, 1)
    return out


def start(case: ServingCase, folders: list[Path], out: dict[str, Any]) -> None:
    gpu = GPUS[case.gpu]
    phantom.become(
        case.device_bytes,
        case.capability or gpu.capability,
        max(case.ranks, 1),
        case.context_mib * MIB,
        case.sms or gpu.multiprocessors,
        gpu.name,
    )
    os.environ.update(case.env)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    type(current_platform).get_device_capability.__func__.cache_clear()  # of the card at the import
    where = Path(tempfile.gettempdir()) / "tidemark-record-serving" / case.folder_key
    model = folder.make(case, folders, where)
    usage = UsageContext.LLM_CLASS if case.usage == "llm" else UsageContext.OPENAI_API_SERVER
    arguments = engine_arguments(case, folders, where, model)
    config = EngineArgs(model=str(model), load_format="dummy", **arguments).create_engine_config(usage)
    seen = notes.Notes(case)
    seen.install()
    notes.first_of_each_tuning()
    out["memory"] = seen.memory
    try:
        from vllm.v1.engine.core import EngineCore

        EngineCore(config, UniProcExecutor, log_stats=False)
        out["outcome"] = "ok"
    finally:
        with contextlib.suppress(Exception):
            collect(out, seen, config)


def engine_arguments(case: ServingCase, folders: list[Path], where: Path, model: Path) -> dict[str, Any]:
    from vllm.model_executor.models import registry

    arguments = dict(case.arguments)
    if case.draft:
        draft = folder.make(case, folders, where, case.draft)
        arguments["speculative_config"] = dict(arguments.get("speculative_config", {}), model=str(draft))
    if isinstance(arguments.get("compilation_config"), dict):
        from vllm.config import CompilationConfig

        arguments["compilation_config"] = CompilationConfig(**arguments["compilation_config"])
    if case.ranks > 1:
        from . import ranks

        ranks.be_one_of_many(case.rank)
        arguments.setdefault("disable_custom_all_reduce", True)  # its kernels read peers' memory on the host side
    if not (model / "tokenizer.json").exists():
        arguments.setdefault("skip_tokenizer_init", True)
    registry._run_in_subprocess = lambda inspect: inspect()  # saves a second interpreter's start
    return arguments
