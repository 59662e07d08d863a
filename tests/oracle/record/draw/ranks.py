# SPDX-License-Identifier: Apache-2.0
"""Cases of one rank of a distributed job: a few options of its kind, drawn from tables."""

from __future__ import annotations

import random
from typing import Any

from .. import catalogue
from ..case import Given
from ..catalogue import Config
from .kinds import has_experts, has_separate_projections

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
AUTO_TP_OR_ULYSSES: Table = {
    "tp": [2, 4],
    "sequence_parallel_size": [2, 4],
    "seq_parallel_communication_data_type": ["bf16"],
}
SCHEDULES = ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"]
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
    "zero0": {k: ZERO[k] for k in ("half", "grad_accum_dtype", "communication_data_type")} | AUTO_TP_OR_ULYSSES,
    "zero1": {**ZERO, **AUTO_TP_OR_ULYSSES},
    "zero2": {**ZERO, **AUTO_TP_OR_ULYSSES},
    "zero3": {
        **ZERO,
        **AUTO_TP_OR_ULYSSES,
        "offload_param": ["cpu"],
        "zero_hpz_partition_size": [2],
        "zero_init": [True],
        "stage3_prefetch_bucket_size": [0, 1_000_000],
        "stage3_param_persistence_threshold": [0, 1000],
        "stage3_max_live_parameters": [20_000_000],
        "stage3_max_reuse_distance": [0, 50_000_000],
        "sub_group_size": [10_000_000],
    },
    "tp": {
        **MIXED,
        "meta_init": [True],
        "sequence_parallel": [True],
        "loss_parallel": [True],
        "tp_plan": ["auto"],
        "ep": [2, 4],
        "imbalance": [1.25],
    },
    "pp": {"meta_init": [True], "schedule": SCHEDULES},
    "native": {
        **MIXED,
        "meta_init": [True],
        "sequence_parallel": [True],
        "loss_parallel": [True],
        "cp": [2, 4],
        "ep": [2, 4],
        "spmd_backend": ["spmd_types"],
        "imbalance": [1.25],
        "ac": ["full", "op", "every2"],
        "sync_each": [False],
        "reshard_after_forward": [True],
        "rotate": ["alltoall"],
        "schedule": SCHEDULES,
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
        "cp": [2, 4],
        "ep": [2, 4],
        "etp": [1, 2],
        "dispatcher": ["allgather"],
        "grouped_gemm": [False],
        "permute_fusion": [True],
        "capacity_factor": [1.0, 1.5],
        "pad_to_capacity": [True],
        "load_balancing": ["seq_aux_loss", "global_aux_loss", "sinkhorn", "none"],
        "router_dtype": ["fp32", "fp64"],
        "imbalance": [1.25],
        "virtual_stages": [2, 4],
        "overlap_p2p": [False],
        "overlap_param_gather": [True],
        "deallocate_pipeline_outputs": [False],
        "account_embedding": [True],
        "account_loss": [True],
        "make_vocab_size_divisible_by": [1],
        "extra_tokens": [3],
        "fp8": ["delayed", "tensorwise", "blockwise"],
        "jit": [True],
        "attention_backend": ["unfused"],
        "softmax_fp32": [False],
        "wgrad_fusion": [False],
        "bias_activation_fusion": [False],
        "bias_dropout_fusion": [False],
        "distribute_saved_activations": [True],
        "bucket_size": [1_000_000, 20_000_000],
        "align_grad_reduce": [False],
        "main_grads_dtype": ["bf16"],
        "main_params_dtype": ["fp16"],
        "first_stage_layers": [2, 3],
        "router_groups": [2],
        "shared_expert_overlap": [True],
        "input_jitter_eps": [0.001],
        "force_load_balancing": [True],
        "optimizer_instances": [2],
        "microbatch_group": [4, 6],
        "per_token_loss": [True],
        "decoupled_lr": [0.001],
        "empty_unused_memory_level": [1, 2],
        "packed_sequences": [1, 4, 16],
    },
}
OF_EXPERTS = {
    "ep",
    "etp",
    "dispatcher",
    "grouped_gemm",
    "permute_fusion",
    "capacity_factor",
    "pad_to_capacity",
    "load_balancing",
    "router_dtype",
    "router_groups",
    "imbalance",
    "spmd_backend",
    "shared_expert_overlap",
    "input_jitter_eps",
    "force_load_balancing",
}
MODELS = {
    "megatron": ["llama-2-7b", "qwen2.5-0.5b", "smollm2-135m"],
    "tp": ["llama-2-7b", "tinyllama-1.1b"],
    "pp": ["llama-2-7b", "tinyllama-1.1b"],
    "native": ["llama-2-7b", "tinyllama-1.1b"],
}
NEEDS = {  # more than so many of another
    "sequence_parallel": ("tp", 1),
    "loss_parallel": ("tp", 1),
    "virtual_stages": ("pp", 1),
    "deallocate_pipeline_outputs": ("pp", 1),
    "account_embedding": ("pp", 1),
    "microbatch_group": ("virtual_stages", 1),
    "optimizer_instances": ("dp", 1),
    "account_loss": ("pp", 1),
    "overlap_p2p": ("virtual_stages", 1),
    "rotate": ("cp", 1),
    "cp_comm_type": ("cp", 1),
    "spmd_backend": ("ep", 1),
    "imbalance": ("ep", 1),
    "seq_parallel_communication_data_type": ("sequence_parallel_size", 1),
    "pad_to_capacity": ("capacity_factor", 0),
    "exp_avg_dtype": ("precision_aware", 0),
    "exp_avg_sq_dtype": ("precision_aware", 0),
    "overlap_param_gather": ("overlap_grad_reduce", 0),
    "bucket_size": ("overlap_grad_reduce", 0),
    "align_grad_reduce": ("virtual_stages", 1),
    "first_stage_layers": ("pp", 1),
    "main_grads_dtype": ("precision_aware", 0),
    "main_params_dtype": ("precision_aware", 0),
}
DISTRIBUTED = ("fsdp1", "fsdp2", "tp", "native")  # parameters are not plain tensors
FULL_PRECISION = ("ddp", "fsdp1", "fsdp2", "native")
CHUNKED = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
OPTIMIZERS = [
    "adamw_fused",
    "adamw_single",
    "adam_single",
    "nadam_single",
    "radam_single",
    "adamax_single",
    "sgd_single",
    "rmsprop_single",
    "adagrad_single",
    "adadelta_single",
    "adamw_schedulefree",
    "sgd_schedulefree",
    "adamw_amsgrad",
    "adam",
    "adam_fused",
    "nadam",
    "radam",
    "adamax",
    "sgd",
    "sgd_momentum",
    "sgd_nesterov",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adafactor",
    "adafactor_hf",
]
EIGHT_BITS = ["adamw8bit", "paged_adamw8bit", "lion8bit", "ademamix8bit"]  # of plain tensors on the device
SETTINGS: Table = {
    "checkpointing": ["full", "full_reentrant"],
    "grad_accum": [2, 3],
    "clip": [1.0],
    "param_groups": ["trainer"],
    "optimizer": OPTIMIZERS + EIGHT_BITS,
    "autocast": ["bf16"],
    "zero_grad": ["zero"],
    "lora": [],  # an adapter
    "scaler": [True],  # with autocast in fp16
}
NOT_READ: dict[str, tuple[str, ...]] = {  # settings that a kind has otherwise, or not at all
    "megatron": ("checkpointing", "grad_accum", "param_groups", "autocast", "zero_grad", "lora", "scaler"),
    "native": ("checkpointing", "grad_accum", "autocast", "scaler"),
    "pp": ("grad_accum", "autocast", "scaler"),
    "tp": ("scaler",),
    "fsdp1": ("scaler",),
    **dict.fromkeys(("zero0", "zero1", "zero2", "zero3"), ("autocast", "zero_grad", "scaler")),
}
ADAPTER: Table = {
    "r": [4, 64],
    "dropout": [0.05],
    "bias": ["all", "lora_only"],
    "dora": [True],
    "rslora": [True],
    "lora_bias": [True],
    "layers_to_transform": [[0, 1]],
    "autocast_adapter_dtype": [False],
}
OF_ANY_ADAPTER: Table = {"modules_to_save": [["lm_head"], ["embed_tokens"]]}
FEED_FORWARD: Given = {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}


def some(rng: random.Random, table: Table, most: int) -> dict[str, Any]:
    names = rng.sample(sorted(table), rng.randint(0, min(most, len(table))))
    return {name: rng.choice(table[name]) for name in names}


def draw(kind: str, rng: random.Random, models: list[str]) -> Given:
    """One case, which may contradict itself."""
    model = rng.choice(models or MODELS.get(kind, ["llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m"]))
    config = catalogue.find(model, []).config
    options = {k: v for k, v in OPTIONS[kind].items() if k not in OF_EXPERTS or has_experts(config)}
    plan: dict[str, Any] = {"kind": kind, **some(rng, options, max(5, len(options) // 4))}
    case: Given = {
        "model": model,
        "overrides": of_layers(config, rng.choice([3, 4, 6, 8])),
        "batch": rng.choice([1, 2, 3]),
        "seq": rng.choice([512, 768, 1024, 2048]),
        "steps": 3,
        "use_cache": False,
    }
    if kind in FULL_PRECISION and rng.random() < 0.5:
        case["dtype"] = "fp32"
    case |= settings(rng, kind, config)
    if "scaler" in case:
        case |= {"dtype": "fp32", "autocast": "fp16"}
    layout(rng, kind, plan, case)
    if kind == "megatron":
        of_megatron(rng, plan, case, config)
    drop_unread(plan)
    if plan.get("pp", 1) > 1:
        counted = plan.get("account_embedding", False) + plan.get("account_loss", False)  # as layers of their stages
        case["overrides"] = of_layers(config, 4 * plan["pp"] - counted)
    world = 1
    for name in ("dp", "tp", "pp", "cp", "sequence_parallel_size"):
        world *= plan.get(name, 1)
    plan["rank"] = rng.choice([0, world - 1, rng.randrange(world)])
    return {**case, "parallel": plan}


def of_layers(config: Config, count: int) -> Given:
    """A model of that many layers, each of its kind."""
    name = next((n for n in ("n_layer", "n_layers", "num_layers") if n in config), "num_hidden_layers")
    types = config.get("layer_types")
    return {name: count, **({"layer_types": types[:count]} if types else {})}


def settings(rng: random.Random, kind: str, config: Config) -> Given:
    """What is not of the ranks: optimizer, checkpointing, adapters."""
    table = {k: v or [adapter(rng, config)] for k, v in SETTINGS.items() if k not in NOT_READ.get(kind, ())}
    if kind == "megatron":
        table["optimizer"] = ["adamw", "adamw", "sgd", "sgd_momentum"]
    elif kind in DISTRIBUTED:
        table["optimizer"] = OPTIMIZERS
    return some(rng, table, 3)


def adapter(rng: random.Random, config: Config) -> Given:
    """LoRA (three of five), IA3 or OFT."""
    method = rng.choice(["lora", "lora", "lora", "ia3", "oft"])
    names = ["q_proj", "v_proj"] if has_separate_projections(config) else "all-linear"
    if method == "ia3":
        return {"method": method, **FEED_FORWARD, **some(rng, OF_ANY_ADAPTER, 1)}
    made: Given = {"target_modules": rng.choice([names, "all-linear"]), **some(rng, OF_ANY_ADAPTER, 1)}
    if method == "oft":
        return {"method": method, "oft_block_size": rng.choice([16, 32]), **made}
    return {"r": 8, **some(rng, ADAPTER, 3), **made}


def layout(rng: random.Random, kind: str, plan: dict[str, Any], case: Given) -> None:
    """How many ranks there are of each sort, and how a batch is cut."""
    plan["dp"] = rng.choice([2, 4, 8, 64])
    if kind == "tp":
        plan |= {"tp": rng.choice([2, 4, 8]), "dp": rng.choice([1, 2, 4])}
    if kind in ("native", "megatron"):
        plan |= {"tp": rng.choice([1, 2, 4]), "pp": rng.choice([1, 2, 2, 4]), "dp": rng.choice([1, 2, 4])}
        case |= {"dtype": "fp32" if kind == "native" else "bf16", "batch": 1, "steps": 2}
    if "cp_comm_type" in plan:
        plan.setdefault("cp", rng.choice([2, 4]))
    if kind == "pp":
        plan |= {"pp": rng.choice([2, 4]), "dp": rng.choice([1, 2])}
    if plan.get("pp", 1) > 1:
        plan["microbatches"] = 2 * plan["pp"]
        if plan.get("schedule") in CHUNKED:
            plan["chunks"] = 2
    if kind == "pp":
        case["batch"] = plan["microbatches"] * rng.choice([1, 2])
    of_experts(kind, plan)


def of_experts(kind: str, plan: dict[str, Any]) -> None:
    """Experts are cut over ranks that are there already."""
    if kind == "native" and "ep" in plan:
        plan |= {"meta_init": True, "dp": max(plan["dp"], plan["ep"])}
    if kind == "tp" and "ep" in plan:
        plan |= {"tp_plan": "auto", "ep": plan["tp"]}
    if kind == "megatron" and "ep" in plan:
        plan["dp"] = max(plan["dp"], plan["ep"])


def of_megatron(rng: random.Random, plan: dict[str, Any], case: Given, config: Config) -> None:
    """What Megatron-Core asks for: SGD is not distributed, and mixtures cut sequences over tensor parallel ranks."""
    if case.get("optimizer", "adamw") != "adamw":
        plan["distributed_optimizer"] = False
    if not plan.get("distributed_optimizer", True):
        for name in ("precision_aware", "offload_fraction", "overlap_param_gather"):
            plan.pop(name, None)
    if has_experts(config):
        plan["sequence_parallel"] = True
    case |= {"batch": rng.choice([1, 1, 2, 3]), "dtype": rng.choice(["bf16", "bf16", "bf16", "fp16"])}
    if rng.random() < 0.2:
        case["dropout"] = 0.1
    if plan.get("pp", 1) > 1:
        plan["microbatches"] = plan["pp"] * rng.choice([1, 2, 3])
    if plan.get("recompute") == "selective":
        modules = ["core_attn", "layernorm", "mlp"]
        modules += ["moe_act", "moe", "shared_experts"] if has_experts(config) else []
        modules += ["mla_up_proj"] if config.get("kv_lora_rank") else []
        plan["recompute_modules"] = rng.sample(modules, rng.choice([1, 2, 2, 3]))
    if plan.get("recompute") == "full":
        plan |= {"recompute_method": rng.choice(["uniform", "block"]), "recompute_layers": rng.choice([1, 2])}
    else:
        plan.pop("distribute_saved_activations", None)
    if plan.get("router_groups"):
        plan["router_group_topk"] = 1
    if "first_stage_layers" in plan:
        for name in ("account_embedding", "account_loss"):
            plan.pop(name, None)
        if plan["pp"] > 2:
            plan["last_stage_layers"] = 8 - plan["first_stage_layers"]
    if config["model_type"] == "gpt_oss":  # flash attention 2 has no learnable softmax
        plan["attention_backend"] = "unfused"
    if plan.get("attention_backend") == "unfused":
        plan.pop("cp", None)
    if plan.get("impl") == "local":  # without Transformer Engine
        for name in ("cp", "fp8", "precision_aware", "offload_fraction", "sequence_parallel"):
            plan.pop(name, None)


def drop_unread(plan: dict[str, Any]) -> None:
    """Options that are nothing without another."""
    for name, other in NEEDS.items():
        if name in plan and not plan.get(other[0], 0) > other[1]:
            del plan[name]
    if plan.get("sequence_parallel_size", 1) > 1:
        plan.pop("tp", None)
    if plan["kind"] == "tp" and plan.get("tp_plan") == "auto":
        for name in ("sequence_parallel", "loss_parallel"):
            plan.pop(name, None)
