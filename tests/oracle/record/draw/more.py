# SPDX-License-Identifier: Apache-2.0
"""Cases of trainers, torch.compile, kernels and serving engines."""

from __future__ import annotations

import random

from ..case import Given
from ..plans import Trainer
from .ranks import Table, some

SMALL = ["smollm2-135m", "llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b"]
OF_TRAINERS: dict[str, Table] = {
    "hf": {},
    "sft": {"packing": [True], "padding_free": [True], "documents": [2, 4], "prompt": [128]},
    "dpo": {"prompt": [128, 256], "reference": ["precomputed"], "loss_type": ["sigmoid", "ipo"]},
    "kto": {"prompt": [128], "reference": ["precomputed"]},
    "reward": {"prompt": [128]},
    "orpo": {"prompt": [128]},
    "cpo": {"prompt": [128]},
    "grpo": {"beta": [0.04], "iterations": [2], "generations": [4, 8]},
    "rloo": {"beta": [0.05], "generations": [4]},
}
SETTINGS: Table = {
    "checkpointing": ["full", "full_reentrant"],
    "grad_accum": [2],
    "clip": [1.0],
    "optimizer": ["adamw_fused", "adamw8bit", "adafactor_hf"],
    "lora": [{"r": 16, "dropout": 0.05}],
    "kernels": ["liger"],
    "padding": ["mask"],  # rows of several lengths come in random order
    "autocast": ["bf16"],
}
COMPILE: Table = {
    "dynamic": [True],
    "fullgraph": [False],
    "optimizer": [True],
    "mode": ["reduce-overhead"],
    "budget": [0.5],
}
KERNELS: list[Given] = [
    {"kernels": "liger"},
    {"kernels": "liger_layers"},
    {"kernels": "cce"},
    {"float8": "tensorwise"},
    {"float8": "rowwise"},
    {"offload_activations": True},
    {"offload_activations": "layers"},
    {"checkpointing": "selective"},
    {"checkpointing": "selective_matmuls"},
    {"attention": "flash_attention_2"},
    {"quant": "int8wo"},
    {"optimizer": "adamw8bit_ao"},
]
ENGINE: Table = {
    "max_model_len": [2048, 8192, 32768],
    "max_num_seqs": [16, 256],
    "max_num_batched_tokens": [2048, 8192],
    "gpu_memory_utilization": [0.8, 0.95],
    "kv_cache_dtype": ["fp8"],
    "tensor_parallel_size": [2, 4],
    "enable_prefix_caching": [False],
    "block_size": [32],
}
GPUS = ["h100", "a100-80", "a100-40", "l40s", "rtx4090"]


def sizes(rng: random.Random, models: list[str]) -> Given:
    return {
        "model": rng.choice(models or SMALL),
        "batch": rng.choice([1, 2, 4]),
        "seq": rng.choice([512, 1024, 2048]),
        "overrides": {"num_hidden_layers": rng.choice([2, 4])},
    }


def trainer(rng: random.Random, models: list[str]) -> Given:
    kind = rng.choice(sorted(OF_TRAINERS))
    plan = {"kind": kind, **some(rng, OF_TRAINERS[kind], 2)}
    case = {**sizes(rng, models), **some(rng, SETTINGS, 3), "trainer": plan}
    if "documents" in plan:
        plan["packing"] = True
    if kind == "kto":  # the KL term pairs each prompt with another's completion
        case["batch"] = max(case["batch"], 2)
    if kind in ("grpo", "rloo"):
        plan |= {"prompt": 64, "completion": 64}
        case["batch"] = plan.get("generations", Trainer.generations)
    return case


def compiled(rng: random.Random, models: list[str]) -> Given:
    return {
        **sizes(rng, models),
        "steps": 3,
        "compile": {"what": rng.choice(["model", "layers"]), **some(rng, COMPILE, 1)},
    }


def kernel(rng: random.Random, models: list[str]) -> Given:
    return {**sizes(rng, models), **rng.choice(KERNELS)}


def serving(rng: random.Random, models: list[str]) -> Given:
    arguments = some(rng, ENGINE, 3)
    return {
        "model": rng.choice(models or ["llama-3.1-8b", "qwen3-8b", "mistral-7b", "gemma-3-4b", "smollm2-135m"]),
        "engine": "vllm",
        "enforce_eager": True,
        "gpu": rng.choice(GPUS),
        **arguments,
    }
