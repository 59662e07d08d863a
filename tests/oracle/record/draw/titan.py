# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own models by its trainer: dense ones and mixtures of experts, over ranks of every kind."""

from __future__ import annotations

import random
from typing import Any

from .. import catalogue
from ..case import Given
from .kinds import has_experts

SMALL: Given = {"hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 32000}
MODELS: dict[str, Given] = {  # with sizes that leave room for several layers
    "llama-3.1-8b": {"vocab_size": 32000},
    "qwen3-8b": {"vocab_size": 32000},
    "qwen3-30b-a3b": {"vocab_size": 32000},
    "deepseek-v2-lite": {"vocab_size": 32000},
    "deepseek-v3": {**SMALL, "intermediate_size": 4096, "moe_intermediate_size": 512, "q_lora_rank": 512,
                    "first_k_dense_replace": 1},
    "llama-4-scout-text": {**SMALL, "intermediate_size": 1024, "intermediate_size_mlp": 2048},
    "llama-4-maverick-text": {**SMALL, "intermediate_size": 1536, "intermediate_size_mlp": 2560},
}
EXPERTS = {"qwen3_moe": "num_experts", "llama4_text": "num_local_experts"}  # else n_routed_experts
SINGLE_STAGES, LOOPED = ["1F1B", "GPipe"], ["Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"]


def draw(rng: random.Random, models: list[str]) -> Given:
    name = rng.choice(models or list(MODELS))
    config = catalogue.find(name, []).config
    plan = layout(rng, config["model_type"])
    kernels = ["cudnn", "cudnn", "flash", "math"]
    if plan["cp"] > 1:  # DTensors have no math kernel, which heads of two widths take where cuDNN is left out
        kernels = ["cudnn"] if "kv_lora_rank" in config else ["cudnn", "flash"]
    elif config["model_type"].startswith("qwen3") and plan["tp"] > 1:
        kernels.remove("math")
    overrides = {**MODELS.get(name, {}), "num_hidden_layers": 4 * plan["pp"] if plan["pp"] > 1 else rng.randint(2, 5)}
    if has_experts(config):
        overrides[EXPERTS.get(config["model_type"], "n_routed_experts")] = rng.choice([16, 24, 32])
        cut_experts(rng, plan)
    return {
        "model": name,
        "overrides": overrides,
        "batch": rng.choice([1, 1, 2, 3]),
        "seq": rng.choice([512, 1024, 1536, 2048]),
        "steps": 2,
        "dtype": "fp32",
        "optimizer": rng.choice(["adamw_fused", "adamw_fused", "adamw", "adam_fused", "adamw_single"]),
        "clip": 1.0,
        "sdpa_backend": rng.choice(kernels),
        "parallel": plan,
    }


def layout(rng: random.Random, model_type: str) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "kind": "native",
        "models": "torchtitan",
        "meta_init": True,
        "param_dtype": "bf16",
        "reduce_dtype": "fp32",
        "dp": rng.choice([1, 2, 2, 4, 8]),
        "tp": rng.choice([1, 1, 2, 4]),
        "cp": rng.choice([1, 1, 1, 2]),
        "pp": 1 if model_type.startswith("qwen3") else rng.choice([1, 1, 2]),
    }
    if model_type.startswith("qwen3") and plan["tp"] > 1:  # whose attention is of DTensors
        plan["cp"] = 1
    if plan["pp"] > 1:
        plan["schedule"] = rng.choice(SINGLE_STAGES + LOOPED)
        plan |= {"microbatches": 2 * plan["pp"], "chunks": 2 if plan["schedule"] in LOOPED else 1}
    else:
        plan["microbatches"] = rng.choice([1, 1, 2, 3])
    if plan["tp"] > 1:
        plan["loss_parallel"] = rng.random() < 0.7
    ac = rng.choice([None, None, "full", "op", "every2", "every3"])
    if ac and not (ac == "op" and plan.get("schedule") in LOOPED[1:]):
        plan["ac"] = ac
    if rng.random() < 0.2:
        plan["reshard_after_forward"] = rng.random() < 0.5
    plan["rank"] = rng.randrange(plan["dp"] * plan["tp"] * plan["cp"] * plan["pp"])
    return plan


def cut_experts(rng: random.Random, plan: dict[str, Any]) -> None:
    """Expert parallel ranks are data, context and tensor parallel ones; within an expert those of tensor parallelism
    are cut apart or not."""
    within = plan["tp"] if rng.random() < 0.4 else 1
    whole = plan["dp"] * plan["cp"] * plan["tp"] // within
    choices = [n for n in (2, 4, 8) if whole % n == 0 and plan["dp"] * plan["cp"] > 1]
    if choices and rng.random() < 0.5:
        plan |= {"ep": rng.choice(choices), **({"etp": within} if within > 1 else {})}
        if plan.get("ac") == "op":  # experts are gathered within their block
            plan["ac"] = "full"
        if rng.random() < 0.3:
            plan["imbalance"] = 1.25
