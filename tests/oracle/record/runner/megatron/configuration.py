# SPDX-License-Identifier: Apache-2.0
"""config.json as Megatron's configuration.

gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, olmoe, deepseek v2 and v3 shapes; sliding windows, rope
scaling and the QK norms of OLMo are left out.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Case
from ...catalogue import Config
from ...plans import Megatron
from ..models import DTYPES


def transformer_config(config: Config, case: Case) -> Any:
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    plan = case.parallel
    assert isinstance(plan, Megatron)
    kind = config["model_type"]
    options = shape_of_gpt2(config) if kind == "gpt2" else shape_of_llama(config)
    options |= experts_of(config, plan)
    options |= layout_of(case, plan)
    options |= layers_of(plan, kind)
    if case.dropout is not None:
        options |= {"hidden_dropout": case.dropout, "attention_dropout": case.dropout}
    if kind.startswith("deepseek"):
        return MLATransformerConfig(**{**options, **shape_of_mla(config)})
    return TransformerConfig(**options)


def layout_of(case: Case, plan: Megatron) -> dict[str, Any]:
    """How the model is cut, and what the schedule does."""
    dtype = DTYPES[case.dtype]
    overlaps = bool(plan.virtual_stages) and plan.overlap_p2p
    return {
        "params_dtype": dtype,
        "bf16": dtype == torch.bfloat16,
        "fp16": dtype == torch.float16,
        "pipeline_dtype": dtype,
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        "virtual_pipeline_model_parallel_size": plan.virtual_stages,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "expert_tensor_parallel_size": plan.etp,
        "sequence_parallel": plan.sequence_parallel,
        "num_layers_in_first_pipeline_stage": plan.first_stage_layers,
        "num_layers_in_last_pipeline_stage": plan.last_stage_layers,
        "account_for_embedding_in_pipeline_split": plan.account_embedding,
        "account_for_loss_in_pipeline_split": plan.account_loss,
        "overlap_p2p_comm": overlaps,
        "batch_p2p_comm": not overlaps,
        "deallocate_pipeline_outputs": True,
        "cp_comm_type": plan.cp_comm_type if plan.cp > 1 else None,
    }


def layers_of(plan: Megatron, kind: str) -> dict[str, Any]:
    """Which fusions, attention and recomputation the layers have."""
    from megatron.core.transformer.enums import AttnBackend

    te = plan.impl == "te"
    return {
        "gradient_accumulation_fusion": plan.wgrad_fusion,
        "bias_activation_fusion": plan.fusions,
        "bias_dropout_fusion": plan.fusions,
        "masked_softmax_fusion": plan.fusions and te,
        "apply_rope_fusion": plan.rope_fusion and te and not kind.startswith(("gpt2", "deepseek")),
        "attention_softmax_in_fp32": plan.softmax_fp32,
        "cross_entropy_loss_fusion": bool(plan.cross_entropy_fusion),
        "cross_entropy_fusion_impl": (plan.cross_entropy_fusion or "native").removesuffix("_in_place"),
        "recompute_granularity": plan.recompute,
        "recompute_method": plan.recompute_method,
        "recompute_num_layers": plan.recompute_layers,
        "recompute_modules": plan.recompute_modules,
        "distribute_saved_activations": plan.distribute_saved_activations,
        "attention_backend": AttnBackend[plan.attention_backend if te else "local"],
        "transformer_impl": "transformer_engine" if te else "local",
        "perform_initialization": False,
    }


def shape_of_gpt2(config: Config) -> dict[str, Any]:
    return {
        "num_layers": config["n_layer"],
        "hidden_size": config["n_embd"],
        "num_attention_heads": config["n_head"],
        "ffn_hidden_size": config.get("n_inner") or 4 * config["n_embd"],
        "normalization": "LayerNorm",
        "activation_func": F.gelu,
        "add_bias_linear": True,
        "hidden_dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
    }


def shape_of_llama(config: Config) -> dict[str, Any]:
    heads, kind = config["num_attention_heads"], config["model_type"]
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_attention_heads": heads,
        "num_query_groups": config.get("num_key_value_heads") or heads,
        "ffn_hidden_size": config["intermediate_size"],
        "kv_channels": config.get("head_dim") or config["hidden_size"] // heads,
        "normalization": "RMSNorm",
        "gated_linear_unit": True,
        "activation_func": F.silu,
        "add_bias_linear": False,
        "add_qkv_bias": kind.startswith("qwen2"),
        "qk_layernorm": kind.startswith("qwen3"),
        "hidden_dropout": 0.0,
        "attention_dropout": config.get("attention_dropout") or 0.0,
    }


def experts_of(config: Config, plan: Megatron) -> dict[str, Any]:
    """Mixture of experts: how many, how large, and how tokens come to them."""
    count = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts")
    if not count:
        return {}
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    dense, layers = config.get("first_k_dense_replace", 0), config["num_hidden_layers"]
    shared, kind = config.get("n_shared_experts") or 0, config["model_type"]
    return {
        "num_moe_experts": count,
        "moe_ffn_hidden_size": width,
        "moe_router_topk": config["num_experts_per_tok"],
        "moe_layer_freq": [0] * dense + [1] * (layers - dense) if dense else 1,
        "moe_shared_expert_intermediate_size": shared * width or None,
        "moe_router_load_balancing_type": plan.load_balancing,
        "moe_aux_loss_coeff": 1e-2 if plan.load_balancing not in ("none", "sinkhorn") else 0.0,
        "moe_grouped_gemm": plan.grouped_gemm,
        "moe_token_dispatcher_type": plan.dispatcher,
        "moe_expert_capacity_factor": plan.capacity_factor,
        "moe_pad_expert_input_to_capacity": plan.pad_to_capacity,
        "moe_permute_fusion": plan.permute_fusion,
        "moe_router_dtype": plan.router_dtype,
        "moe_router_score_function": "sigmoid" if kind == "deepseek_v3" else "softmax",
        "moe_router_pre_softmax": kind == "deepseek_v2",
        "moe_router_num_groups": plan.router_groups,
        "moe_router_group_topk": plan.router_group_topk,
        "moe_router_enable_expert_bias": kind == "deepseek_v3",
    }


def shape_of_mla(config: Config) -> dict[str, Any]:
    return {
        "q_lora_rank": config["q_lora_rank"],
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_head_dim": config["qk_nope_head_dim"],
        "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
        "rope_type": "rope",
        "multi_latent_attention": True,
        "qk_layernorm": True,
        "num_query_groups": None,
        "kv_channels": None,
    }


def padded_vocabulary(size: int, tp: int) -> int:
    """As the training script pads it (--make-vocab-size-divisible-by): to a multiple of 128 per tensor parallel
    rank."""
    unit = 128 * tp
    return -(-size // unit) * unit


def rotary_base(config: Config) -> int:
    return int(config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta") or 10000)
