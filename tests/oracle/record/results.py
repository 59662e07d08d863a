# SPDX-License-Identifier: Apache-2.0
"""The recorded runs of the repository: files of JSON lines, one per family of models, or per kind of what runs them.

results/FAMILY.jsonl        one device: training and inference, by the configuration's model_type
results/parallel/KIND.jsonl one rank of a distributed job; KIND_fp8.jsonl of those in FP8,
                            native_experts.jsonl and megatron_experts.jsonl of those with ranks of experts,
                            torchtitan.jsonl of its trainer with its own models, whatever the ranks,
                            native_cp.jsonl and megatron_cp.jsonl of other ones with context parallel ranks,
                            megatron_arguments.jsonl of models that the training script's arguments make
results/trainers/KIND.jsonl a training library's trainer on one device; KIND_ranks.jsonl one rank of its distributed jobs
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterable, Iterator

from . import catalogue, environments, serving_case
from .case import Given
from .environments import HERE

ORACLE = HERE.parent
RESULTS = ORACLE / "results"  # what ./test holds the program against
FILE_LIMIT = 512 << 10  # bytes

# What a kept result says; the rest can be had again by recording its case.
KEPT = (
    "case",
    "outcome",
    "message",
    "parameters",
    "after_load",
    "reserved_after_load",
    "rank",
    "world",
    "peak_wrap",
    "after_wrap",
    "reserved_after_wrap",
    "after_setup",
    "peak_setup",
    "steps",
    "allocated_peak",
    "reserved_peak",
    "step_peak",
    "at_peak",
    "at_step_peak",
    "host_pinned",
    "saved",
    "after_start",
    "reserved_after_start",
    "longest",
    "settings",
    "weights",
    "memory",
    "kv",
)
Result = dict[str, Any]


def family(given: Given, folders: Iterable[Path] = ()) -> str:
    """The family of a case's model: its model_type; of diffusers and timm, the class or architecture without its
    size."""
    config = given.get("config") or catalogue.find(given["model"], list(folders)).config
    if "_class_name" in config:
        return re.sub(r"(2D)?(Condition)?Model$", "", str(config["_class_name"])).lower()
    if "architecture" in config:
        return re.split(r"_?\d", str(config["architecture"]))[0]
    return str(config["model_type"])


KERNELS = ("kernels", "float8", "offload_activations")


def kind_of(plan: Given) -> str:
    """The name of the file of a rank's results."""
    kind: str = plan["kind"]
    if plan.get("fp8"):
        return f"{kind}_fp8"
    if plan.get("models") == "torchtitan":
        return "torchtitan"
    if kind not in ("native", "megatron"):
        return kind
    parts = [part for part, ranks in (("_experts", "ep"), ("_cp", "cp"), ("_pp", "pp")) if plan.get(ranks, 1) > 1]
    return kind + next(iter(parts), "")


def place(given: Given, folders: Iterable[Path] = ()) -> Path:
    """The file of a case's result, below a folder of results."""
    if serving_case.is_one(given):
        return Path("serving") / f"{environments.engine_of(given.get('engine', 'vllm'))}.jsonl"
    if given.get("compile"):
        return Path("compile") / f"{family(given, folders)}.jsonl"
    if given.get("trainer"):
        return Path("trainers") / f"{given['trainer']['kind']}{'_ranks' if given.get('parallel') else ''}.jsonl"
    if given.get("parallel"):
        is_of_arguments = (given.get("config") or {}).get("model_type") == "gpt_model"
        return Path("parallel") / f"{'megatron_arguments' if is_of_arguments else kind_of(given['parallel'])}.jsonl"
    if (
        any(given.get(k) for k in KERNELS)
        or str(given.get("quant", "")).endswith("wo")
        or str(given.get("checkpointing", "")).startswith("selective")
        or str(given.get("optimizer", "")).endswith("_ao")
        or given.get("attention") == "flash_attention_2"
    ):
        return Path("kernels") / f"{family(given, folders)}.jsonl"
    return Path(f"{family(given, folders)}.jsonl")


def trimmed(result: Result) -> Result:
    """A result as it is kept; an engine's groups at its peak only where the case asks for them."""
    kept = KEPT + (("top_at_peak",) if result["case"].get("top") else ())
    kept += ("versions",) if serving_case.is_one(result["case"]) else ()
    return {key: result[key] for key in kept if key in result}


def line_of(result: Result) -> str:
    return json.dumps(result, separators=(",", ":")) + "\n"


def read(path: Path) -> Iterator[Result]:
    with path.open() as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def files(roots: Iterable[Path] = (RESULTS,)) -> list[Path]:
    return [path for root in roots for path in sorted(root.rglob("*.jsonl"))]


def all_of(paths: Iterable[Path]) -> Iterator[tuple[Path, Result]]:
    for path in paths:
        yield from ((path, result) for result in read(path))


def ids(folder: Path) -> set[str]:
    return {str(result["case"].get("id")) for _, result in all_of(files([folder]))}


def append(folder: Path, result: Result, folders: Iterable[Path] = ()) -> Path:
    path = folder / place(result["case"], folders)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(line_of(result))
    return path


def replace(path: Path, new: dict[str, Result]) -> None:
    """Puts results in the place of those with the same ids."""
    path.write_text("".join(line_of(new.get(str(r["case"].get("id")), r)) for r in list(read(path))))


def too_large(roots: Iterable[Path] = (RESULTS,)) -> list[Path]:
    return [path for path in files(roots) if path.stat().st_size > FILE_LIMIT]
