# SPDX-License-Identifier: Apache-2.0
"""Quantised linear layers: bitsandbytes' modules in place of nn.Linear, torchao's weights on the device."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

import torch
from torch import nn

from ..case import Case

BITSANDBYTES = ("nf4", "fp4", "int8")
TORCHAO = {"int8wo": "Int8WeightOnlyConfig", "int4wo": "Int4WeightOnlyConfig", "float8wo": "Float8WeightOnlyConfig"}


# ---- bitsandbytes ----


def replace_layers(model: Any, case: Case, dtype: Any) -> None:
    """Replaces linear layers by bitsandbytes' ones, weights still on the host.  By hand: all but the output head;
    from_pretrained: what transformers' quantizer chooses."""
    kept = kept_by_transformers(model, case) if case.from_pretrained else kept_by_hand(model, case)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if is_replaced(child, case) and child not in kept:
                parent._modules[name] = layer(child, case, dtype)
    if hasattr(model, "config"):
        model.config._is_quantized = True  # HfQuantizer, _assign_is_quantized: some mixers ask
    if case.from_pretrained or (case.lora and case.lora.kbit_layers):
        model.is_loaded_in_4bit = case.quant != "int8"  # what peft looks at for its classes over bitsandbytes
        model.is_loaded_in_8bit = case.quant == "int8"


def is_replaced(module: Any, case: Case) -> bool:
    """replace_with_bnb_linear takes transformers' Conv1D too, whose weight it transposes."""
    return type(module) is nn.Linear or (case.from_pretrained and is_conv1d(module))


def is_conv1d(module: Any) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def kept_by_hand(model: Any, case: Case) -> set[Any]:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    ends = ("lm_head", *case.quant_skip)
    return {head} | {m for name, m in model.named_modules() if name.rpartition(".")[2] in ends}


def kept_by_transformers(model: Any, case: Case) -> set[Any]:
    """HfQuantizer.get_modules_to_not_convert, as replace_with_bnb_linear uses it."""
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    names = HfQuantizer.get_modules_to_not_convert(model, case.quant_skip or None, model._keep_in_fp32_modules)
    return {m for name, m in model.named_modules() if not should_convert_module(name, names)}


def layer(linear: Any, case: Case, dtype: Any) -> Any:
    """The bitsandbytes layer that stands for an nn.Linear or Conv1D of the meta device."""
    import bitsandbytes as bnb

    has_bias = linear.bias is not None
    out_features, in_features = reversed(linear.weight.shape) if is_conv1d(linear) else linear.weight.shape
    if case.quant == "int8":
        made = bnb.nn.Linear8bitLt(1, 1, bias=has_bias, has_fp16_weights=False, threshold=6.0, device="meta")
        made.weight = bnb.nn.Int8Params(
            torch.empty(out_features, in_features, dtype=torch.float16), requires_grad=False, has_fp16_weights=False
        )
    else:
        from .models import DTYPES

        compute = DTYPES[case.quant_compute_dtype] if case.quant_compute_dtype else dtype
        how: dict[str, Any] = {"quant_type": case.quant, "compress_statistics": case.quant_double}
        if case.quant_storage:
            how["quant_storage"] = DTYPES[case.quant_storage]
        made = bnb.nn.Linear4bit(1, 1, bias=has_bias, compute_dtype=compute, device="meta", **how)
        if case.quant_blocksize != 64:
            how["blocksize"] = case.quant_blocksize
        made.weight = bnb.nn.Params4bit(
            torch.empty(out_features, in_features, dtype=dtype), requires_grad=False, module=made, **how
        )
    made.in_features, made.out_features = in_features, out_features
    if has_bias:
        made.bias = nn.Parameter(torch.empty_like(linear.bias), requires_grad=False)
    return made


class Int8Parametrization(nn.Module):
    """axolotl's: rows of all experts, dequantised when the parameter is read."""

    def __init__(self, row_stats: Any) -> None:
        super().__init__()
        self.register_buffer("row_stats", row_stats)

    @torch.no_grad()
    def forward(self, quantized: Any) -> Any:
        import bitsandbytes as bnb

        rows = quantized.reshape(-1, quantized.shape[-1])
        return bnb.functional.int8_vectorwise_dequant(rows, self.row_stats).reshape(quantized.shape)


def replace_parameter_8bit(module: Any, name: str) -> None:
    """What axolotl does: bitsandbytes has replace_parameter_4bit alone."""
    import bitsandbytes as bnb
    from bitsandbytes.nn import parametrize
    from torch.nn.utils.parametrize import register_parametrization

    data, row_stats, _ = bnb.functional.int8_vectorwise_quant(getattr(module, name).data.to(torch.float16))
    setattr(module, name, nn.Parameter(data, requires_grad=False))
    register_parametrization(module, name, Int8Parametrization(row_stats), unsafe=True)
    if len(module.parametrizations) == 1:
        module.register_forward_pre_hook(parametrize._enable_parametrization_cache)
        module.register_forward_hook(parametrize._disable_parametrization_cache)


def of_experts(model: Any, case: Case) -> Callable[[Any, str], bool] | None:
    """axolotl's patch_moe_quantization_on_load: quantises parameters of experts as they arrive."""
    if not case.quant_experts:
        return None
    names = {module: name for name, module in model.named_modules()}

    def replace(module: Any, name: str) -> bool:
        from bitsandbytes.nn import parametrize

        loaded = module._parameters[name]
        if loaded.ndim < 3 or "expert" not in f"{names[module]}.{name}".lower():
            return False
        if case.quant == "int8":
            replace_parameter_8bit(module, name)
        else:
            parametrize.replace_parameter_4bit(
                module, name, compress_statistics=case.quant_double, quant_type=case.quant, blocksize=case.quant_blocksize
            )
        loaded.data = torch.empty(0, device="cpu")
        torch.cuda.empty_cache()
        return True

    return replace


def state_of_experts(model: Any, name: str) -> Any:
    """The QuantState of the parameter of this name, "...experts.parametrizations.down_proj.original"."""
    path, _, leaf = name.rpartition(".")
    return getattr(model.get_submodule(path)[0], "quant_state", None) if leaf == "original" else None


def bytes_on_device(p: Any) -> float:
    """Of a parameter that may still be on the host, in its type: HfQuantizer.param_element_size."""
    per_weight = {"Params4bit": 0.5, "Int8Params": 1.0}.get(type(p).__name__, p.element_size())
    return float(p.numel() * per_weight)


# ---- torchao ----


def use_torchao() -> Any:
    """The library touches the device when it is imported, and peft imports what it finds: it lives in a folder of its
    own, APART_PATH, that only the process of a case that needs it looks into."""
    at = os.environ.get("APART_PATH")
    if at and at not in sys.path:
        sys.path.insert(0, at)
    import torchao

    return torchao


def linear_layers(model: Any) -> Callable[[Any, str], bool]:
    """Which modules torchao converts: linear layers whose sides are multiples of 16, but neither head nor adapters."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None

    def wanted(module: Any, name: str) -> bool:
        return (
            type(module) is nn.Linear
            and module is not head
            and "lm_head" not in name
            and "lora_" not in name
            and module.in_features % 16 == 0
            and module.out_features % 16 == 0
        )

    return wanted


def convert_weights(model: Any, kind: str) -> None:
    """Weight-only formats, on the device, in place: weights of the case's dtype come and go one by one."""
    use_torchao()
    from torchao import quantization

    quantization.quantize_(model, getattr(quantization, TORCHAO[kind])(), filter_fn=linear_layers(model))


def convert_to_float8(model: Any, recipe: str) -> None:
    use_torchao()
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(
        model, config=Float8LinearConfig.from_recipe_name(recipe), module_filter_fn=linear_layers(model)
    )
