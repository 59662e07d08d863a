# SPDX-License-Identifier: Apache-2.0
"""A case as torchtitan's JobConfig and its model's arguments."""

from __future__ import annotations

import math
from typing import Any

from ...case import Case
from ...catalogue import Config
from ...plans import Native

DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
MODULES = {
    "llama": "llama3",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "deepseek_v2": "deepseek_v3",
    "deepseek_v3": "deepseek_v3",
    "llama4_text": "llama4",
}
IMPLEMENTATIONS = {"_single": "for-loop", "_fused": "fused", "": "foreach"}
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "math": "MATH"}  # as torchtitan tries them


def job_config(case: Case) -> Any:
    from torchtitan.config import JobConfig

    plan = case.parallel
    assert isinstance(plan, Native)
    micro = plan.microbatches or 2 * plan.pp
    replicas = plan.dp
    job = JobConfig()
    job.model.name = job.model.flavor = "recorded"
    job.training.local_batch_size = case.batch * (micro if plan.pp > 1 else 1)
    job.training.global_batch_size = case.batch * micro * replicas
    job.training.seq_len = case.seq
    job.training.max_norm = case.clip or 1.0
    job.training.dtype = DTYPES[case.dtype]
    job.training.mixed_precision_param = DTYPES[plan.param_dtype or case.dtype]
    job.training.mixed_precision_reduce = DTYPES[plan.reduce_dtype or "fp32"]
    settle_ranks(job.parallelism, case, plan)
    settle_optimizer(job.optimizer, case.optimizer)
    settle_checkpoints(job.activation_checkpoint, plan)
    return job


def settle_ranks(to: Any, case: Case, plan: Native) -> None:
    to.data_parallel_shard_degree = plan.dp
    to.tensor_parallel_degree = plan.tp
    to.pipeline_parallel_degree = plan.pp
    to.context_parallel_degree = plan.cp
    to.expert_parallel_degree = plan.ep
    to.expert_tensor_parallel_degree = plan.etp
    to.disable_loss_parallel = not plan.loss_parallel
    to.pipeline_parallel_schedule = plan.schedule
    to.pipeline_parallel_microbatch_size = case.batch
    if plan.reshard_after_forward is not None:
        to.fsdp_reshard_after_forward = "always" if plan.reshard_after_forward else "never"
    if plan.stage_layers:
        to.module_fqns_per_model_part = stages_of(plan.stage_layers)


def stages_of(layers: list[int]) -> list[list[str]]:
    """The embedding is in the first stage, norm and head in the last."""
    stages, begin = [], 0
    for count in layers:
        stages.append([f"layers.{i}" for i in range(begin, begin + count)])
        begin += count
    return [["tok_embeddings", *stages[0]], *stages[1:-1], [*stages[-1], "norm", "output"]]


def settle_optimizer(to: Any, name: str) -> None:
    suffix = next(end for end in IMPLEMENTATIONS if name.endswith(end))
    to.name = {"adamw": "AdamW", "adam": "Adam"}[name.removesuffix(suffix)]
    to.implementation = IMPLEMENTATIONS[suffix]


def settle_checkpoints(to: Any, plan: Native) -> None:
    if plan.ac in (None, "full"):
        to.mode = plan.ac or "none"
        return
    to.mode = "selective"
    to.selective_ac_option = plan.ac.removeprefix("every")


def model_args(config: Config, case: Case) -> tuple[str, Any]:
    """The module of torchtitan.models, and what its model is made of."""
    module = MODULES[config["model_type"]]
    common = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "vocab_size": config["vocab_size"],
    }
    return module, globals()[f"args_of_{module}"](config, common)


def args_of_llama3(config: Config, common: dict[str, Any]) -> Any:
    from torchtitan.models.llama3 import TransformerModelArgs

    inner = config["intermediate_size"]
    return TransformerModelArgs(
        **common, n_kv_heads=config["num_key_value_heads"], multiple_of=inner, ffn_dim_multiplier=1 / 64
    )


def args_of_qwen3(config: Config, common: dict[str, Any]) -> Any:
    from torchtitan.models.moe import MoEArgs
    from torchtitan.models.qwen3 import Qwen3ModelArgs

    experts = {}
    if config["model_type"] == "qwen3_moe":
        experts = {
            "moe_enabled": True,
            "moe_inter_dim": config["moe_intermediate_size"],
            "moe_args": MoEArgs(
                num_experts=config["num_experts"],
                num_shared_experts=0,
                top_k=config["num_experts_per_tok"],
                score_func="softmax",
                route_norm=True,
                route_scale=1.0,
                score_before_experts=False,
            ),
        }
    return Qwen3ModelArgs(
        **common,
        **experts,
        n_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        hidden_dim=config["intermediate_size"],
        enable_weight_tying=bool(config.get("tie_word_embeddings")),
    )


def args_of_deepseek_v3(config: Config, common: dict[str, Any]) -> Any:
    from torchtitan.models.deepseek_v3 import DeepSeekV3ModelArgs
    from torchtitan.models.moe import MoEArgs

    is_v3 = config["model_type"] == "deepseek_v3"
    groups = config.get("n_group") or 1
    return DeepSeekV3ModelArgs(
        **common,
        inter_dim=config["intermediate_size"],
        moe_inter_dim=config["moe_intermediate_size"],
        n_dense_layers=config["first_k_dense_replace"],
        moe_args=MoEArgs(
            num_experts=config["n_routed_experts"],
            num_shared_experts=config["n_shared_experts"],
            top_k=config["num_experts_per_tok"],
            num_expert_groups=groups if groups > 1 else None,
            num_limited_groups=config["topk_group"] if groups > 1 else None,
            score_func="sigmoid" if is_v3 else "softmax",
            route_norm=is_v3,
            route_scale=config.get("routed_scaling_factor", 1.0),
            score_before_experts=False,
        ),
        q_lora_rank=config.get("q_lora_rank") or 0,
        kv_lora_rank=config["kv_lora_rank"],
        qk_nope_head_dim=config["qk_nope_head_dim"],
        qk_rope_head_dim=config["qk_rope_head_dim"],
        v_head_dim=config["v_head_dim"],
    )


def args_of_llama4(config: Config, common: dict[str, Any]) -> Any:
    from torchtitan.models.llama4 import TransformerModelArgs
    from torchtitan.models.llama4.model.args import RoPEScalingArgs
    from torchtitan.models.moe import MoEArgs

    return TransformerModelArgs(
        **common,
        **inner_of_llama4(config),
        n_kv_heads=config["num_key_value_heads"],
        moe_args=MoEArgs(num_experts=config["num_local_experts"], top_k=config["num_experts_per_tok"]),
        interleave_moe_layer_step=config["interleave_moe_layer_step"],
        rope_scaling_args=RoPEScalingArgs() if config.get("rope_scaling") else None,
    )


def inner_of_llama4(config: Config) -> dict[str, Any]:
    """Widths are a multiple of the model's, rounded up: of an expert for each that a token meets."""
    dense, experts = config["intermediate_size_mlp"], config["intermediate_size"]
    each, met = math.gcd(dense, experts), config["num_experts_per_tok"] + 1
    width = min(dense, met * experts)
    assert dense - each < width and experts - each < width // met, "no multiple has both of these widths"
    return {"multiple_of": each, "ffn_dim_multiplier": (width + 0.5) / (8 * config["hidden_size"] // 3)}
