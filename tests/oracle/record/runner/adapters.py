# SPDX-License-Identifier: Apache-2.0
"""peft's adapters."""

from __future__ import annotations

from typing import Any

from ..case import Case
from ..plans import Lora


def add(model: Any, case: Case) -> Any:
    """The model with the case's adapter around or inside it."""
    from peft import get_peft_model

    assert case.lora
    from .models import named

    adapted = get_peft_model(model, settings(case.lora, model), autocast_adapter_dtype=case.lora.autocast_adapter_dtype)
    for name, p in model.named_parameters():
        if named(name, case.lora.also_train):
            p.requires_grad_(True)
    return adapted


def settings(lora: Lora, model: Any = None, task: str | None = None) -> Any:
    """peft's configuration.  task: TaskType; None: what the method needs for this model."""
    import peft

    if lora.method == "lora":
        return peft.LoraConfig(**lora_options(lora), task_type=task)
    if lora.method == "oft":
        return peft.OFTConfig(
            r=0,
            oft_block_size=lora.oft_block_size,
            target_modules=lora.target_modules,
            modules_to_save=lora.modules_to_save,
            exclude_modules=lora.exclude_modules,
            task_type=task,
        )
    if lora.method == "ia3":
        return peft.IA3Config(
            target_modules=lora.target_modules,
            feedforward_modules=lora.feedforward_modules,
            modules_to_save=lora.modules_to_save,
            exclude_modules=lora.exclude_modules,
            task_type=task,
        )
    task = task or task_of(model)
    tokens = {"num_virtual_tokens": lora.num_virtual_tokens, "task_type": task}
    encoder = {"encoder_hidden_size": lora.encoder_hidden_size} if lora.encoder_hidden_size else {}
    if lora.method == "prompt":
        return peft.PromptTuningConfig(**tokens)
    if lora.method == "ptuning":
        return peft.PromptEncoderConfig(**tokens, **encoder)
    return peft.PrefixTuningConfig(**tokens, **encoder, prefix_projection=lora.prefix_projection)


def lora_options(lora: Lora) -> dict[str, Any]:
    return {
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "bias": lora.bias,
        "target_modules": lora.target_modules,
        "exclude_modules": lora.exclude_modules,
        "target_parameters": lora.target_parameters,
        "layers_to_transform": lora.layers_to_transform,
        "modules_to_save": lora.modules_to_save,
        "rank_pattern": lora.rank_pattern,
        "alpha_pattern": lora.alpha_pattern,
        "use_dora": lora.dora,
        "use_rslora": lora.rslora,
        "lora_bias": lora.lora_bias,
    }


def task_of(model: Any) -> str:
    """peft's name of what a model is for, by its class."""
    name = type(model).__name__
    for ending, task in (
        ("ForConditionalGeneration", "SEQ_2_SEQ_LM"),
        ("ForSequenceClassification", "SEQ_CLS"),
        ("ForTokenClassification", "TOKEN_CLS"),
        ("ForQuestionAnswering", "QUESTION_ANS"),
    ):
        if name.endswith(ending) and (task != "SEQ_2_SEQ_LM" or model.config.is_encoder_decoder):
            return task
    return "CAUSAL_LM"
