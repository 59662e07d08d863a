# SPDX-License-Identifier: Apache-2.0
"""Cases of torch.compile, kernels and serving engines."""

from __future__ import annotations

import random

from ..case import Given
from .ranks import Table, some
from .trainers import SMALL

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
