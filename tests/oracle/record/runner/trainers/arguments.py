# SPDX-License-Identifier: Apache-2.0
"""The arguments that a case stands for."""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from typing import Any

from ...case import Case
from ... import catalogue
from ...catalogue import Model
from ...plans import GENERATE, ONLINE
from .. import adapters, models
from ..parallel import deepspeed
from . import ranks

# kind -> module, trainer, its configuration
CLASSES = {
    "sft": ("trl", "SFTTrainer", "SFTConfig"),
    "dpo": ("trl", "DPOTrainer", "DPOConfig"),
    "grpo": ("trl", "GRPOTrainer", "GRPOConfig"),
    "rloo": ("trl", "RLOOTrainer", "RLOOConfig"),
    "reward": ("trl", "RewardTrainer", "RewardConfig"),
    "kto": ("trl", "KTOTrainer", "KTOConfig"),
    "orpo": ("trl.experimental.orpo", "ORPOTrainer", "ORPOConfig"),
    "cpo": ("trl.experimental.cpo", "CPOTrainer", "CPOConfig"),
    "online_dpo": ("trl.experimental.online_dpo", "OnlineDPOTrainer", "OnlineDPOConfig"),
    "gkd": ("trl.experimental.gkd", "GKDTrainer", "GKDConfig"),
    "hf": ("transformers", "Trainer", "TrainingArguments"),
}
FACTORY = "record.runner.trainers.llama_factory"
OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw_fused": "adamw_torch_fused",
    "adamw8bit": "adamw_bnb_8bit",
    "paged_adamw8bit": "paged_adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "adafactor_hf": "adafactor",
    "sgd": "sgd",
    "lion": "lion_32bit",
    "lion8bit": "lion_8bit",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "adamw4bit": "adamw_torch_4bit",
    "adamw8bit_ao": "adamw_torch_8bit",
}


def classes(case: Case) -> tuple[str, str, str]:
    """Module, trainer and configuration."""
    assert case.trainer
    if case.trainer.args.get("predict_with_generate"):
        return "transformers", "Seq2SeqTrainer", "Seq2SeqTrainingArguments"
    if has_factory_trainer(case):
        return FACTORY, CLASSES[case.trainer.kind][1], "TrainingArguments"
    return CLASSES[case.trainer.kind]


def is_of_factory(case: Case) -> bool:
    return case.trainer is not None and case.trainer.program == "llama_factory"


def has_factory_trainer(case: Case) -> bool:
    """Its supervised trainer is transformers'."""
    return is_of_factory(case) and case.trainer is not None and case.trainer.kind != "hf"


def bare(case: Case) -> Case:
    """The case of the model that the trainer is given: adapters and checkpointing are the trainer's business."""
    assert case.trainer
    return dataclasses.replace(case, lora=case.lora if case.trainer.kind == "hf" else None, checkpointing="none")


def untouched(case: Case) -> Case:
    """The case of a reference model."""
    return dataclasses.replace(bare(case), freeze=[], train_only=[])


def settings(case: Case, model: Model) -> Any:
    """The trainer's configuration."""
    from . import data

    plan = case.trainer
    assert plan
    module, _, name = classes(case)
    module = "transformers" if module == FACTORY else module
    arguments = common(case) | of_kind(case) | ranks.arguments(case, model.config)
    if data.is_of_media(case, model):
        arguments["remove_unused_columns"] = False
    return getattr(importlib.import_module(module), name)(**(arguments | plan.args))


def common(case: Case) -> dict[str, Any]:
    assert case.trainer
    full = case.checkpointing != "none" and not is_of_factory(case)
    made: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "max_steps": case.steps,
        "per_device_train_batch_size": case.batch,
        "gradient_accumulation_steps": case.grad_accum,
        "optim": OPTIMIZERS[case.optimizer],
        "bf16": case.autocast == "bf16",
        "fp16": case.autocast == "fp16",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "log_level": "error",
        "gradient_checkpointing": full,
        "max_grad_norm": case.clip or 0.0,
        "logging_steps": case.trainer.logging_steps,
        "use_liger_kernel": case.kernels == "liger",
        "seed": case.seed,
    }
    if case.lengths and case.trainer.kind in GENERATE:
        made["shuffle_dataset"] = False
    elif case.lengths:
        made["train_sampling_strategy"] = "sequential"
    if full:
        made["gradient_checkpointing_kwargs"] = (
            {"selective": True}
            if case.checkpointing == "selective"
            else {"use_reentrant": case.checkpointing == "full_reentrant"}
        )
        if case.every_n_layers > 1:
            made["gradient_checkpointing_kwargs"]["every_n_layers"] = case.every_n_layers
    if case.offload_activations:
        made["activation_offloading"] = True
    if case.compile:
        made |= {"torch_compile": True, "torch_compile_mode": case.compile.mode}
    return made


def of_kind(case: Case) -> dict[str, Any]:
    plan = case.trainer
    assert plan
    made: dict[str, Any] = {}
    if has_factory_trainer(case):
        return {"remove_unused_columns": False}
    if case.pad_to_multiple_of and plan.kind != "hf":
        made["pad_to_multiple_of"] = case.pad_to_multiple_of
    if plan.kind == "sft":
        made |= {
            "packing": plan.packing,
            "padding_free": plan.padding_free,
            "max_length": None if plan.padding_free and not plan.packing else longest(case),
        }
        if plan.prompt and not plan.args.get("assistant_only_loss"):
            made["completion_only_loss"] = True
    elif plan.kind == "gkd":
        made |= {"max_length": longest(case), "max_new_tokens": plan.completion}
    elif plan.kind in ONLINE:
        made |= {"max_length": plan.prompt + plan.completion, "max_new_tokens": plan.completion}
    elif plan.kind != "hf" and plan.kind not in GENERATE:
        made["max_length"] = longest(case) + 1
    if plan.kind in ("dpo", "kto"):
        made["precompute_ref_log_probs"] = plan.reference == "precomputed"
    if plan.kind in GENERATE:
        made |= {
            "num_generations": plan.generations,
            "max_completion_length": plan.completion,
            "beta": plan.beta,
            "num_iterations": plan.iterations,
            "steps_per_generation": plan.steps_per_generation,
            "temperature": plan.temperature,
        }
    if plan.loss_type and not has_factory_trainer(case):
        made["loss_type"] = plan.loss_type.split(",") if plan.kind == "dpo" else plan.loss_type
    return made


def longest(case: Case) -> int:
    return max(case.lengths, default=case.seq)


def given(case: Case, model: Model) -> dict[str, Any]:
    """What a trainer is given besides model, configuration and data."""
    from . import data

    plan = case.trainer
    assert plan
    made: dict[str, Any] = {}
    if plan.eval_samples:
        made["eval_dataset"] = data.dataset(case, model, plan.eval_samples)
    if plan.compute_metrics:
        made["compute_metrics"] = lambda predictions, compute_result=True: {}
    if plan.preprocess == "argmax":
        made["preprocess_logits_for_metrics"] = predicted_tokens
    is_of_media = data.is_of_media(case, model)
    if has_factory_trainer(case):
        from . import llama_factory

        if plan.pref_ftx:
            made["pref_ftx"] = plan.pref_ftx
        if plan.kind in ("dpo", "kto"):
            made["loss_type"] = plan.loss_type
            made["ref_model"] = llama_factory.reference(case, model.config, deepspeed.partition(case), ranks.is_on_host(case))
        return made | {"data_collator": data.media_collator(case, model) if is_of_media else llama_factory.collator(case)}
    if is_of_media and plan.kind not in GENERATE:
        made["data_collator"] = data.media_collator(case, model)
    if plan.kind == "hf" and is_of_media:
        return made
    if plan.kind == "hf":
        from transformers import DataCollatorForTokenClassification

        collator = DataCollatorForTokenClassification(data.tokenizer(), pad_to_multiple_of=case.pad_to_multiple_of)
        return made | {"data_collator": collator}
    made["processing_class"] = data.processor(case, model) if data.has_processor(case, model) else data.tokenizer()
    if case.lora:
        made["peft_config"] = adapters.settings(case.lora, task="SEQ_CLS" if plan.kind == "reward" else "CAUSAL_LM")
    if plan.kind == "gkd":
        made["teacher_model"] = "teacher"  # which is loaded once the trainer has its own model
    if plan.kind in (*GENERATE, *ONLINE):
        made["reward_funcs"] = lambda completions, **rest: [float(i % 3) for i in range(len(completions))]
    return made


def teacher(case: Case, model: Model) -> Any:
    """Where from_pretrained() leaves its weights: accelerate moves them to the device, unless they are quantised."""
    plan = case.trainer
    assert plan
    of = dataclasses.replace(untouched(case), quant=plan.teacher_quant, kbit_prepare=False, dtype=plan.teacher_dtype or case.dtype)
    if plan.teacher:
        model = catalogue.of_case(dataclasses.replace(of, model=plan.teacher, config=None, overrides={}), [])
    partition = None if plan.teacher_quant else deepspeed.partition(case)
    return models.build(of, model.config, partition, on_host=not (partition or plan.teacher_quant))


def predicted_tokens(logits: Any, labels: Any) -> Any:
    """As the examples of transformers have it."""
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)
