# SPDX-License-Identifier: Apache-2.0
"""Families as Megatron-Bridge 0.3.1 converts them: what its bridges set in TransformerConfig, and modules of its own.

Its package is imported module by module, for as a whole it wants half of NeMo: GPTModelProvider, which the providers of
its families extend, has here what they read.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import types
from typing import Any, Callable

from ...catalogue import Config
from ...plans import Lora
from ..libraries import use_apart

Options = dict[str, Any]


def options_of(config: Config) -> Options:
    """What the family's bridge sets beside the sizes that all have."""
    family = FAMILIES.get(config["model_type"])
    return family(config) if family else {}


def gemma(config: Config) -> Options:
    from megatron.core.activations import fast_gelu

    return {
        "activation_func": fast_gelu,
        "layernorm_zero_centered_gamma": True,
        "share_embeddings_and_output_weights": True,
    }


def gemma2(config: Config) -> Options:
    return gemma(config) | {
        "query_pre_attn_scalar": config["query_pre_attn_scalar"],
        "attn_logit_softcapping": config["attn_logit_softcapping"],
        "final_logit_softcapping": config["final_logit_softcapping"],
        "window_size": (config["sliding_window"], 0),
    }


def gemma3(config: Config) -> Options:
    return gemma(config) | {
        "qk_layernorm": True,
        "rotary_base": (10_000, 1_000_000),
        "softmax_scale": 1.0 / config["query_pre_attn_scalar"] ** 0.5,
        "window_size": config["sliding_window"],
    }


def glm4_moe(config: Config) -> Options:
    return {
        "rotary_percent": config["partial_rotary_factor"],
        "qk_layernorm": bool(config.get("use_qk_norm")),
        "add_qkv_bias": bool(config.get("attention_bias")),
        "moe_shared_expert_intermediate_size": config["moe_intermediate_size"],
    }


def ernie4_5_moe(config: Config) -> Options:
    return {"rotary_interleaved": True}


def gpt_oss(config: Config) -> Options:
    from megatron.core.fusions.fused_bias_geglu import quick_gelu

    return {
        "add_bias_linear": True,
        "bias_dropout_fusion": False,
        "activation_func": quick_gelu,
        "activation_func_clamp_value": 7.0,
        "glu_linear_offset": 1.0,
        "softmax_type": "learnable",
        "window_size": (128, 0),
        "window_attn_skip_freq": 2,
        "position_embedding_type": "yarn",
        "moe_ffn_hidden_size": config["intermediate_size"],
    }


def nemotron(config: Config) -> Options:
    from megatron.core.activations import squared_relu

    return {
        "normalization": "LayerNorm",
        "activation_func": squared_relu,
        "gated_linear_unit": False,
        "layernorm_zero_centered_gamma": True,
        "rotary_percent": config["partial_rotary_factor"],
    }


def olmoe(config: Config) -> Options:
    return {
        "qk_layernorm": True,
        "moe_ffn_hidden_size": config["intermediate_size"],
        "moe_router_pre_softmax": True,
    }


FAMILIES: dict[str, Callable[[Config], Options]] = {
    "ernie4_5_moe": ernie4_5_moe,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm4_moe": glm4_moe,
    "gpt_oss": gpt_oss,
    "nemotron": nemotron,
    "olmoe": olmoe,
}

# Modules with a provider, or a layer's specification, of the family's own.
PROVIDERS = {
    "gemma": ("gemma.gemma_provider", "GemmaModelProvider"),
    "gemma2": ("gemma.gemma2_provider", "Gemma2ModelProvider"),
    "gemma3_text": ("gemma.gemma3_provider", "Gemma3ModelProvider"),
    "gpt_oss": ("gpt_oss.gpt_oss_provider", "GPTOSSProvider"),
    "olmoe": ("olmoe.olmoe_provider", "OlMoEModelProvider"),
}


def settings_of(kind: str, options: Options) -> Any:
    """The provider of a family that has its own: a TransformerConfig with provide()."""
    name, provider = PROVIDERS[kind]
    found = getattr(module(name), provider)
    known = {field.name for field in dataclasses.fields(found)}
    return found(**{key: value for key, value in options.items() if key in known})


def use_packages(*names: str) -> None:
    """Packages of Megatron-Bridge, without what they import as a whole."""
    use_apart()
    folder = next(p for p in sys.path if os.path.isdir(f"{p}/megatron/bridge"))
    for name in names:
        package: Any = types.ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        sys.modules.setdefault(name, package)


def add_adapters(chunks: list[Any], lora: Lora) -> None:
    """training/setup.py: _apply_peft_transformation(), before the chunks are on the device."""
    use_packages("megatron.bridge", "megatron.bridge.utils", "megatron.bridge.peft")
    adapters = importlib.import_module("megatron.bridge.peft.lora")
    options: dict[str, Any] = {"dim": lora.r, "alpha": lora.alpha, "dropout": lora.dropout}
    if isinstance(lora.target_modules, list):
        options["target_modules"] = lora.target_modules
    adapters.LoRA(**options)(chunks, training=True)


def module(name: str) -> Any:
    """megatron.bridge.models.NAME"""
    use_packages("megatron.bridge", "megatron.bridge.models", f"megatron.bridge.models.{name.split('.')[0]}")
    provider: Any = types.ModuleType("megatron.bridge.models.gpt_provider")
    provider.GPTModelProvider = gpt_provider()
    provider.default_layer_spec = default_layer_spec
    sys.modules.setdefault(provider.__name__, provider)
    return importlib.import_module(f"megatron.bridge.models.{name}")


def gpt_provider() -> type:
    """A TransformerConfig with what Megatron-Bridge's GPTModelProvider adds for its families."""
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig

    @dataclasses.dataclass
    class GPTModelProvider(TransformerConfig):
        seq_length: int = 1024
        vocab_size: int | None = None
        position_embedding_type: str = "rope"
        rotary_base: Any = 10000
        rotary_percent: float = 1.0
        rope_scaling_factor: float = 1.0
        seq_len_interpolation_factor: float | None = None
        share_embeddings_and_output_weights: bool = False
        scatter_embedding_sequence_parallel: bool = True
        transformer_layer_spec: Any = default_layer_spec
        make_model: Any = None  # of a layer's specification

        def provide(self, pre_process: Any = None, post_process: Any = None, vp_stage: Any = None) -> Any:
            vars(self).pop("_pg_collection", None)  # layers copy their configuration, and groups cannot be copied
            model = self.make_model(self.transformer_layer_spec(self))
            self._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
            return model

    return GPTModelProvider


def default_layer_spec(config: Any) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec

    return get_gpt_layer_with_transformer_engine_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=config.moe_grouped_gemm,
        qk_layernorm=config.qk_layernorm,
    )
