# SPDX-License-Identifier: Apache-2.0
"""config.json as Megatron's configuration.

gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, deepseek v2 and v3 shapes, and the families of bridge.py; rope
scaling (but YaRN of latent attention with rope_type) and the windows of Mistral are left out. One of model_type
gpt_model has fields of TransformerConfig itself, as the training script's arguments make them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Case
from ...catalogue import Config
from ...plans import Megatron
from ..models import DTYPES
from . import bridge

OF_MODEL = ("share_embeddings_and_output_weights", "rotary_base", "rotary_percent", "position_embedding_type")  # GPTModel's own
SIGMOID = ("deepseek_v3", "kimi_k2", "glm4_moe", "glm4_moe_lite", "ernie4_5_moe")  # scores of experts, and a bias of them


def transformer_config(config: Config, case: Case) -> Any:
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    plan = case.parallel
    assert isinstance(plan, Megatron)
    kind = config["model_type"]
    if kind == "gpt_model":
        return given_fields(config, case, plan)
    options = shape_of_gpt2(config) if kind == "gpt2" else shape_of_llama(config)
    options |= experts_of(config, plan)
    bridged = bridge.options_of(config)
    options |= {name: value for name, value in bridged.items() if name not in OF_MODEL}
    options |= layout_of(case, plan)
    options |= layers_of(plan, config)
    options["bias_activation_fusion"] &= is_fused(options["activation_func"])
    if case.dropout is not None:
        options |= {"hidden_dropout": case.dropout, "attention_dropout": case.dropout}
    if "kv_lora_rank" in config:
        return MLATransformerConfig(**{**options, **shape_of_mla(config)})
    if kind in bridge.PROVIDERS:
        return bridge.settings_of(kind, options | bridged | {"vocab_size": vocabulary_of(config, plan)})
    return TransformerConfig(**options)


def given_fields(config: Config, case: Case, plan: Megatron) -> Any:
    """TransformerConfig, or with latent attention MLATransformerConfig, of its own fields."""
    from megatron.core.activations import quick_gelu, squared_relu
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    kind: Any = MLATransformerConfig if config.get("multi_latent_attention") else TransformerConfig
    activations = {"gelu": F.gelu, "silu": F.silu, "squared_relu": squared_relu, "quick_gelu": quick_gelu}
    options = layout_of(case, plan) | layers_of(plan, config) | (routing_of(plan) if config.get("num_moe_experts") else {})
    options["activation_func"] = activations[config.get("activation", "gelu")]
    options["bias_activation_fusion"] &= is_fused(options["activation_func"])
    names = {field.name for field in dataclasses.fields(kind)}
    if "moe_layer_pattern" in config:
        options["moe_layer_freq"] = config["moe_layer_pattern"]
    if case.dropout is not None:
        config = config | {"hidden_dropout": case.dropout, "attention_dropout": case.dropout}
    return kind(**options | {name: value for name, value in config.items() if name in names})


def is_fused(activation: Any) -> bool:
    """Does bias_activation_fusion know it?"""
    from megatron.core.fusions.fused_bias_geglu import quick_gelu

    return activation in (F.gelu, F.silu, quick_gelu)


def model_options(config: Config, case: Case) -> dict[str, Any]:
    """What GPTModel is given beside its TransformerConfig."""
    learned, plan = config["model_type"] == "gpt2", case.parallel
    assert isinstance(plan, Megatron)
    given = {
        "max_sequence_length": case.seq,
        "vocab_size": vocabulary_of(config, plan),
        "share_embeddings_and_output_weights": bool(config.get("tie_word_embeddings", learned)),
        "position_embedding_type": "learned_absolute" if learned else "rope",
        "rotary_base": rotary_base(config),
    }
    bridged = config if config["model_type"] == "gpt_model" else bridge.options_of(config)
    return given | {name: bridged[name] for name in OF_MODEL if name in bridged and name != "rotary_base"}


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
        "deallocate_pipeline_outputs": plan.deallocate_pipeline_outputs,
        "cp_comm_type": plan.cp_comm_type if plan.cp > 1 else None,
        "microbatch_group_size_per_vp_stage": plan.microbatch_group or plan.pp,
        "calculate_per_token_loss": plan.per_token_loss,
    }


def layers_of(plan: Megatron, config: Config) -> dict[str, Any]:
    """Which fusions, attention and recomputation the layers have."""
    from megatron.core.transformer.enums import AttnBackend

    te = plan.impl == "te"
    rotates = config["model_type"] != "gpt2" and "kv_lora_rank" not in config
    if config["model_type"] == "gpt_model":  # validate_args(): any other embedding fuses nothing
        rotates = config.get("position_embedding_type") == "rope"
    return {
        "gradient_accumulation_fusion": plan.wgrad_fusion,
        "bias_activation_fusion": plan.fusions if plan.bias_activation_fusion is None else plan.bias_activation_fusion,
        "bias_dropout_fusion": plan.fusions if plan.bias_dropout_fusion is None else plan.bias_dropout_fusion,
        "masked_softmax_fusion": plan.fusions and te and config["model_type"] != "gemma2",  # whose kernel is Apex's
        "apply_rope_fusion": plan.rope_fusion and te and rotates,
        "attention_softmax_in_fp32": plan.softmax_fp32,
        "apply_query_key_layer_scaling": plan.query_key_layer_scaling,
        "cross_entropy_loss_fusion": bool(plan.cross_entropy_fusion),
        "cross_entropy_fusion_impl": (plan.cross_entropy_fusion or "native").removesuffix("_in_place"),
        "recompute_granularity": plan.recompute,
        "recompute_method": plan.recompute_method,
        "recompute_num_layers": plan.recompute_layers,
        "recompute_modules": plan.recompute_modules,
        "distribute_saved_activations": plan.distribute_saved_activations,
        "attention_backend": AttnBackend[plan.attention_backend if te else "local"],
        "transformer_impl": "transformer_engine" if te else "local",
        "fp8": "hybrid" if plan.fp8 else None,
        "fp8_recipe": plan.fp8 or "delayed",
        "fp8_param": plan.fp8_param,
        "perform_initialization": True,
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
    count = first_of(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if not count:
        return {}
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    dense, layers = first_of(config, "first_k_dense_replace", "moe_layer_start_index"), config["num_hidden_layers"]
    shared, kind = first_of(config, "n_shared_experts", "moe_num_shared_experts"), config["model_type"]
    has_sigmoid = kind in SIGMOID
    return routing_of(plan) | {
        "num_moe_experts": count,
        "moe_ffn_hidden_size": width,
        "moe_router_topk": first_of(config, "num_experts_per_tok", "moe_k"),
        "moe_layer_freq": [0] * dense + [1] * (layers - dense) if dense else 1,
        "moe_shared_expert_intermediate_size": shared * width or None,
        "moe_router_score_function": "sigmoid" if has_sigmoid else "softmax",
        "moe_router_pre_softmax": kind == "deepseek_v2",
        "moe_router_enable_expert_bias": has_sigmoid,
    }


def routing_of(plan: Megatron) -> dict[str, Any]:
    """How tokens come to experts, and how these multiply."""
    coefficient = 1e-2 if plan.load_balancing not in ("none", "sinkhorn") else 0.0
    return {
        "moe_router_load_balancing_type": plan.load_balancing,
        "moe_aux_loss_coeff": coefficient if plan.aux_loss_coeff is None else plan.aux_loss_coeff,
        "moe_grouped_gemm": plan.grouped_gemm,
        "moe_token_dispatcher_type": plan.dispatcher,
        "moe_expert_capacity_factor": plan.capacity_factor,
        "moe_pad_expert_input_to_capacity": plan.pad_to_capacity,
        "moe_permute_fusion": plan.permute_fusion,
        "moe_router_dtype": plan.router_dtype,
        "moe_router_num_groups": plan.router_groups,
        "moe_router_group_topk": plan.router_group_topk,
        "moe_shared_expert_overlap": plan.shared_expert_overlap,
        "moe_input_jitter_eps": plan.input_jitter_eps,
        "moe_router_force_load_balancing": plan.force_load_balancing,
    }


def first_of(config: Config, *names: str) -> int:
    """A number by the first name that the family has for it; 0 without."""
    return next((config[name] for name in names if config.get(name)), 0)


def shape_of_mla(config: Config) -> dict[str, Any]:
    return {
        "q_lora_rank": config["q_lora_rank"],
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_head_dim": config["qk_nope_head_dim"],
        "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
        "rope_type": config.get("rope_type", "rope"),
        "multi_latent_attention": True,
        "qk_layernorm": True,
        "num_query_groups": None,
        "kv_channels": None,
    }


def vocabulary_of(config: Config, plan: Megatron) -> int:
    """As the training script pads it."""
    unit = plan.make_vocab_size_divisible_by * plan.tp
    return -(-(config["vocab_size"] + plan.extra_tokens) // unit) * unit


def rotary_base(config: Config) -> int:
    return int(config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta") or 10000)
