# SPDX-License-Identifier: Apache-2.0
"""From a configuration to the model on the device, as from_pretrained(...).to("cuda") would leave it."""

from __future__ import annotations

import re
from typing import Any, ContextManager, Iterable

import torch
from torch import nn

from ..case import Case
from ..catalogue import Config
from ..schema import CaseError
from . import adapters, quantize

DTYPES: dict[str, Any] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def build(case: Case, config: Config, partition: Any = None, on_host: bool = False) -> Any:
    """The model of a case on the device: weights in the case's dtype, adapters and quantised layers in place.
    partition: a context that cuts parameters and puts them on the device as they are made."""
    dtype = DTYPES[case.dtype]
    model = construct(config, dtype, case.attention, partition or torch.device("meta"))
    keep_in_fp32(model, dtype)
    if case.load == "warmup" and not case.from_pretrained:
        warm_up(model)
    if case.quant in quantize.BITSANDBYTES:
        quantize.replace_layers(model, case, dtype)
    if case.load == "warmup" and case.from_pretrained:
        warm_up(model)
    if is_on_meta(case):
        return prepared(model, case)
    materialise(model, {}, "cpu" if on_host else "cuda", quantize.of_experts(model, case))
    if case.quant in quantize.TORCHAO:
        quantize.convert_weights(model, case.quant)
    return prepared(model, case)


def warm_up(model: Any) -> None:
    """caching_allocator_warmup (transformers/modeling_utils.py): one block of the size of the weights, as they will
    lie on the device, taken and let go of."""
    size = sum(quantize.bytes_on_device(p) for p in unique(model.parameters()))
    torch.empty(int(size) // 2, dtype=torch.float16, device="cuda")


def is_on_meta(case: Case) -> bool:
    """Whether the framework puts the model's parts on the device, once it has cut them."""
    plan = case.parallel
    return bool((getattr(plan, "meta_init", False) and not case.trainer) or getattr(plan, "tp_plan", None))


def prepared(model: Any, case: Case) -> Any:
    """For training: frozen parts, checkpoints and adapters; for inference: adapters, and no gradients."""
    if case.mode == "infer":
        if case.lora:
            model = adapters.add(model, case)
            if case.adapter_merged:
                model = model.merge_and_unload()
        model.eval()
        model.requires_grad_(False)
        return model
    model.train()
    choose_trainable(model, case)
    if case.quant in quantize.BITSANDBYTES and case.kbit_prepare:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if case.checkpointing != "none":
        enable_checkpointing(model, case)
    return adapters.add(model, case) if case.lora else model


def construct(config: Config, dtype: Any, attention: str, where: ContextManager[Any]) -> Any:
    """The module tree, made inside the context `where`: the meta device, usually."""
    before = torch.get_default_dtype()
    if "_class_name" in config:
        import diffusers

        with where:
            torch.set_default_dtype(dtype)
            try:
                made = getattr(diffusers, config["_class_name"]).from_config(config)
            finally:
                torch.set_default_dtype(before)
        put_tables_on_host(made)
        return made
    if "architecture" in config:
        import timm

        return timm.create_model(config["architecture"], num_classes=config["num_classes"]).to(dtype)
    import transformers

    settings = transformers.AutoConfig.for_model(**config)
    hears = attention if config.get("model_type") == "voxtral" else "eager"  # the others' audio has no SDPA
    parts = dict.fromkeys(("", "text_config", "vision_config"), attention) | {"audio_config": hears}
    of_parts = parts if "audio_config" in config else attention
    with where:
        return model_class(config)._from_config(settings, dtype=dtype, attn_implementation=of_parts)


def put_tables_on_host(model: Any) -> None:
    """Tensors that are neither parameters nor buffers are made on the host whatever the model's device is."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, torch.empty_like(value, device="cpu"))


def model_class(config: Config) -> Any:
    """The class that a configuration of transformers names first."""
    import transformers

    return getattr(transformers, config["architectures"][0])


def keep_in_fp32(model: Any, dtype: Any) -> None:
    """What from_pretrained leaves in fp32: the plain list for fp16 only, the strict list for bf16 too."""
    names = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ()) if dtype != torch.float32 else set()
    if dtype == torch.float16:
        names |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    if not names:
        return
    wanted = re.compile("|".join(rf"(^|\.){re.escape(name)}($|\.)" for name in names))
    for name, parameter in model.named_parameters():
        if wanted.search(name):
            parameter.data = parameter.data.float()


def materialise(module: Any, made: dict[int, Any], device: str = "cuda", replace: Any = None) -> None:
    """Gives every meta (or host) tensor storage on the device, in the order in which module.to("cuda") does; replace:
    called with the module and the name of each parameter that has moved."""
    for child in module.children():
        materialise(child, made, device, replace)
    for name, p in list(module._parameters.items()):
        if p is None or p.is_cuda:
            continue
        if id(p) not in made:
            made[id(p)] = move_parameter(p, device)
        module._parameters[name] = made[id(p)]
        if replace and replace(module, name):
            del made[id(p)]
    for name, b in module._buffers.items():
        if b is not None and not b.is_cuda:
            module._buffers[name] = torch.empty_like(b, device=device) if b.is_meta else b.to(device)


def move_parameter(p: Any, device: str) -> Any:
    if type(p) is not nn.Parameter:  # bitsandbytes quantises as it moves
        return p.to(device)
    if p.is_meta:
        return nn.Parameter(torch.empty_like(p, device=device), requires_grad=p.requires_grad)
    p.data = p.data.to(device)
    return p


def named(name: str, prefixes: Iterable[str]) -> bool:
    """Whether a parameter's name, with or without its leading "model.", starts with one of the prefixes."""
    return any(name.startswith(p) or name.removeprefix("model.").startswith(p) for p in prefixes)


def choose_trainable(model: Any, case: Case) -> None:
    for name, p in model.named_parameters():
        if named(name, case.freeze) or (case.train_only and not named(name, case.train_only)):
            p.requires_grad_(False)
    if any("feature_extractor" in prefix for prefix in case.freeze) and hasattr(model, "freeze_feature_encoder"):
        model.freeze_feature_encoder()  # whose input needs a gradient otherwise


def enable_checkpointing(model: Any, case: Case) -> None:
    reentrant = case.checkpointing == "full_reentrant"
    if case.checkpointing.startswith("selective") and hasattr(model, "gradient_checkpointing_enable"):
        from . import kernels

        keep = case.checkpointing.partition("_")[2] or "attention"
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": kernels.selective_contexts(keep)}
        )
    elif hasattr(model, "gradient_checkpointing_enable"):
        some = {"every_n_layers": case.every_n_layers} if case.every_n_layers > 1 else {}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant}, **some)
        if reentrant and (case.lora or case.freeze or case.train_only):
            model.enable_input_require_grads()
    elif case.checkpointing.startswith("selective"):
        raise CaseError(f"no {case.checkpointing} checkpointing of timm and diffusers")
    elif hasattr(model, "set_grad_checkpointing"):
        model.set_grad_checkpointing()
    else:
        model.enable_gradient_checkpointing()


def unique(tensors: Iterable[Any]) -> Iterable[Any]:
    return {id(t): t for t in tensors}.values()


def modality(name: str) -> str:
    """The top-level part of a model that a parameter belongs to: vision_tower, language_model, lm_head, ..."""
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in ("base_model", "model"):
        parts = parts[1:]
    return parts[0]


def count_parameters(model: Any) -> dict[str, Any]:
    """Numbers (not bytes) of parameters; quantised ones count as the weights they stand for."""
    total = trainable = 0
    parts: dict[str, int] = {}
    for name, p in model.named_parameters():
        state = getattr(p, "quant_state", None) or quantize.state_of_experts(model, name)
        n = state.shape.numel() if state is not None else getattr(p, "ds_numel", p.numel())
        total += n
        trainable += n if p.requires_grad else 0
        parts[modality(name)] = parts.get(modality(name), 0) + n
    return {"total": total, "trainable": trainable, "by_module": parts}
