# SPDX-License-Identifier: Apache-2.0
"""Cases of one rank of a distributed job: a few options of its kind, drawn from tables."""

from __future__ import annotations

import random
from typing import Any

from ..case import Given

Table = dict[str, list[Any]]
MIXED: Table = {"param_dtype": ["bf16"], "reduce_dtype": ["fp32", "bf16"]}
SHARDED: Table = {
    **MIXED,
    "wrap": ["layer", "root", "pairs", "fine"],
    "hybrid": [2, 4],
    "offload": [True],
    "sync_each": [True],
}
ZERO: Table = {
    "half": ["fp16", None],
    "hf_auto": [True],
    "contiguous_gradients": [False],
    "overlap_comm": [True, False],
    "reduce_scatter": [False],
    "reduce_bucket_size": [10_000_000, 50_000_000],
    "allgather_bucket_size": [20_000_000],
    "round_robin_gradients": [True],
    "use_multi_rank_bucket_allreduce": [False],
    "check_grad_overflow": [False],
    "grad_accum_dtype": ["fp32"],
    "communication_data_type": ["fp32"],
    "offload_optimizer": ["cpu"],
}
OPTIONS: dict[str, Table] = {
    "ddp": {
        "bucket_cap_mb": [1, 5, 200],
        "gradient_as_bucket_view": [True],
        "static_graph": [True],
        "hook": ["bf16", "fp16"],
        "find_unused_parameters": [True],
        "broadcast_buffers": [False],
    },
    "fsdp1": {
        **{k: v for k, v in SHARDED.items() if k != "hybrid"},
        "wrap": ["layer", "root"],
        "strategy": ["SHARD_GRAD_OP", "NO_SHARD"],
        "use_orig_params": [True],
        "limit_all_gathers": [False],
        "forward_prefetch": [True],
        "backward_prefetch": ["BACKWARD_POST", None],
    },
    "fsdp2": {
        **SHARDED,
        "reshard_after_forward": [False, 2],
        "root_reshard": [True],
        "prefetch": [1, 2],
        "output_dtype": ["bf16"],
    },
    "zero1": ZERO,
    "zero2": ZERO,
    "zero3": {
        **ZERO,
        "zero_init": [True],
        "stage3_prefetch_bucket_size": [0, 1_000_000],
        "stage3_param_persistence_threshold": [0, 1000],
        "stage3_max_live_parameters": [20_000_000],
        "stage3_max_reuse_distance": [0, 50_000_000],
        "sub_group_size": [10_000_000],
    },
    "tp": {**MIXED, "sequence_parallel": [True], "loss_parallel": [True]},
    "pp": {"schedule": ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"]},
    "native": {
        "ac": ["full", "op", "every2"],
        "sync_each": [False],
        "reshard_after_forward": [True],
        "rotate": ["alltoall"],
        "schedule": ["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"],
    },
    "megatron": {
        "sequence_parallel": [True],
        "distributed_optimizer": [False],
        "grad_reduce_in_fp32": [False],
        "overlap_grad_reduce": [True],
        "precision_aware": [True],
        "cross_entropy_fusion": ["native", "te"],
        "recompute": ["full", "selective"],
        "attention_mask": [True],
        "wrap_on_side_stream": [False],
        "fusions": [False],
        "rope_fusion": [False],
        "impl": ["local"],
        "offload_fraction": [0.5, 1.0],
        "exp_avg_dtype": ["bf16", "fp16", "fp8"],
        "exp_avg_sq_dtype": ["bf16", "fp16", "fp8"],
        "cp_comm_type": ["p2p", "all_gather", "a2a"],
    },
}
MODELS = {
    "megatron": ["llama-2-7b", "qwen2.5-0.5b", "smollm2-135m"],
    "tp": ["llama-2-7b", "tinyllama-1.1b"],
    "pp": ["llama-2-7b", "tinyllama-1.1b"],
    "native": ["llama-2-7b", "tinyllama-1.1b"],
}
FULL_PRECISION = ("ddp", "fsdp1", "fsdp2", "native")
CHUNKED = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SETTINGS: Table = {
    "checkpointing": ["full", "full_reentrant"],
    "grad_accum": [2, 3],
    "clip": [1.0],
    "param_groups": ["trainer"],
    "optimizer": ["adamw_fused", "adamw_single", "sgd_momentum"],
}


def some(rng: random.Random, table: Table, most: int) -> dict[str, Any]:
    names = rng.sample(sorted(table), rng.randint(0, min(most, len(table))))
    return {name: rng.choice(table[name]) for name in names}


def draw(kind: str, rng: random.Random, models: list[str]) -> Given:
    """One case, which may contradict itself."""
    plan: dict[str, Any] = {"kind": kind, **some(rng, OPTIONS[kind], 4)}
    case: Given = {
        "model": rng.choice(models or MODELS.get(kind, ["llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m"])),
        "overrides": {"num_hidden_layers": rng.choice([3, 4, 6, 8])},
        "batch": rng.choice([1, 2, 3]),
        "seq": rng.choice([512, 768, 1024, 2048]),
        "steps": 3,
        "use_cache": False,
    }
    layout(rng, kind, plan, case)
    world = 1
    for name in ("dp", "tp", "pp", "cp"):
        world *= plan.get(name, 1)
    plan["rank"] = rng.choice([0, world - 1, rng.randrange(world)])
    case |= {
        k: v for k, v in some(rng, SETTINGS, 3).items() if kind in ("ddp", "fsdp1", "fsdp2") or kind.startswith("zero")
    }
    if kind in FULL_PRECISION and rng.random() < 0.5:
        case["dtype"] = "fp32"
    return {**case, "parallel": plan}


def layout(rng: random.Random, kind: str, plan: dict[str, Any], case: Given) -> None:
    """How many ranks there are of each sort, and how a batch is cut."""
    plan["dp"] = rng.choice([2, 4, 8, 64])
    if kind == "tp":
        plan |= {"tp": rng.choice([2, 4, 8]), "dp": rng.choice([1, 2, 4])}
    if kind in ("native", "megatron"):
        plan |= {"tp": rng.choice([1, 2, 4]), "pp": rng.choice([1, 2]), "dp": rng.choice([1, 2, 4])}
        case |= {"dtype": "fp32" if kind == "native" else "bf16", "batch": 1, "steps": 2}
    if "cp_comm_type" in plan:
        plan["cp"] = rng.choice([2, 4])
    if kind == "pp":
        plan |= {"pp": rng.choice([2, 4]), "dp": 1}
    if plan.get("pp", 1) > 1:
        case["overrides"] = {"num_hidden_layers": 4 * plan["pp"]}
        plan["microbatches"] = 2 * plan["pp"]
        if plan.get("schedule") in CHUNKED:
            plan["chunks"] = 2
    if kind == "pp":
        case["batch"] = plan["microbatches"] * rng.choice([1, 2])
    if plan.get("recompute") == "full":
        plan |= {"recompute_method": "uniform", "recompute_layers": 1}
    if plan.get("recompute") == "selective":
        plan["recompute_modules"] = rng.sample(["core_attn", "layernorm", "mlp"], 2)
    if plan.get("sequence_parallel") and plan.get("tp", 1) == 1:
        plan["sequence_parallel"] = False
