# SPDX-License-Identifier: Apache-2.0
"""A case of a serving engine: what is the recorder's own of it; every other key is an argument of the engine."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any, Literal, Mapping

from . import schema
from .schema import mapped

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    name: str  # as the driver tells it
    gib: float  # a typical figure, not a constant of the card
    capability: int  # times ten
    multiprocessors: int


GPUS = {
    "h100": Gpu("NVIDIA H100 80GB HBM3", 79.18, 90, 132),
    "h200": Gpu("NVIDIA H200", 139.80, 90, 132),
    "a100-80": Gpu("NVIDIA A100-SXM4-80GB", 79.25, 80, 108),
    "a100-40": Gpu("NVIDIA A100-SXM4-40GB", 39.50, 80, 108),
    "l40s": Gpu("NVIDIA L40S", 44.40, 89, 142),
    "l4": Gpu("NVIDIA L4", 22.05, 89, 58),
    "a10": Gpu("NVIDIA A10G", 22.05, 86, 80),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", 23.53, 89, 128),
    "rtx3090": Gpu("NVIDIA GeForce RTX 3090", 23.57, 86, 82),
    "b200": Gpu("NVIDIA B200", 178.35, 100, 148),
}


@dataclass(frozen=True)
class ServingCase:
    model: str
    engine: Literal["vllm", "transformers"] = "vllm"  # transformers: its continuous batching
    id: str = ""
    note: str = ""  # not read; compiled cases come twice, the first start with an empty cache
    gpu: str = "h100"  # GPUS
    gpu_gib: float | None = None  # memory of the device, GiB
    gpu_bytes: int | None = None
    capability: int | None = None  # times ten
    sms: int | None = None  # multiprocessors
    context_mib: int = 0  # in use on the device before the engine starts
    usage: Literal["server", "llm"] = "server"  # whose defaults (vllm)
    rank: int = 0  # with several ranks: which one; the others are imagined
    config: dict[str, Any] | None = None  # config.json itself, in place of the model's
    overrides: dict[str, Any] = mapped()  # entries of it, dots for nesting; null removes one
    draft: str | None = None  # a draft model, with speculative_config
    top: int = 0  # list so many of the largest groups of blocks at the profile's peak
    warm_up: bool = False  # also run kernel tuning after the cache is there (needs a CUDA toolkit for some)
    env: dict[str, str] = mapped()
    arguments: dict[str, Any] = mapped()  # the engine's own, under its own names

    @property
    def ranks(self) -> int:
        sizes = (self.arguments.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline", "data"))
        product = 1
        for size in sizes:
            product *= size
        return product

    @property
    def device_bytes(self) -> int:
        return int(self.gpu_bytes or int((self.gpu_gib or GPUS[self.gpu].gib) * 1024) * MIB)

    @property
    def folder_key(self) -> str:
        """The same for the same configuration: vLLM's compile cache knows a model by its path."""
        parts = [self.model, self.config, self.overrides, self.draft]
        return f"{zlib.crc32(json.dumps(parts, sort_keys=True).encode()):08x}"


# Keys that only cases of engines have; one that has none of them says its engine.
TELLING = {
    "engine",
    "gpu",
    "gpu_bytes",
    "sms",
    "context_mib",
    "usage",
    "draft",
    "top",
    "enforce_eager",
    "max_model_len",
}


def is_one(given: Mapping[str, Any]) -> bool:
    return not TELLING.isdisjoint(given)


def read(given: Mapping[str, Any]) -> ServingCase:
    """Raises CaseError."""
    own = {k: v for k, v in given.items() if k in schema.fields_of(ServingCase) and k != "arguments"}
    rest = {k: v for k, v in given.items() if k not in own}
    case = schema.read(ServingCase, {"id": name_of(given), **own, "arguments": rest})
    if case.gpu not in GPUS:
        raise schema.CaseError(f"no GPU {case.gpu}; there are {', '.join(GPUS)}")
    return case


def name_of(given: Mapping[str, Any]) -> str:
    rest = [f"{k}={v}" for k, v in given.items() if k not in ("model", "engine", "id", "note", "top")]
    return re.sub(r"[^\w.=-]+", "_", "-".join([str(given.get("model")), *rest]))[:150]
