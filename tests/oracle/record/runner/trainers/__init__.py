# SPDX-License-Identifier: Apache-2.0
"""The step as a training library runs it: transformers' Trainer and TRL's trainers, unchanged, on data made in memory.

The library decides about autocast, checkpointing, adapters, reference models, generation and the order of calls. Here
are the tokenizer and the data set that it is given (data.py), the arguments that a case stands for (arguments.py),
values that the phantom cannot compute (stand_ins.py), and the places in its loop at which a phase ends (phases.py).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import shutil
import sys
import tempfile
from types import SimpleNamespace
from typing import Any, Iterable

import torch

from ...case import Case
from ...catalogue import Config, Model
from ...plans import DISTIL, GENERATE, ONLINE, Zero
from .. import kernels, models
from ..meter import Meter
from ..parallel import deepspeed
from . import arguments, data, llama_factory_v1, ranks, stand_ins
from .arguments import CLASSES
from .phases import Phases, callback

HAVE_A_REFERENCE = ("dpo", "kto", "grpo", "rloo")
PAD = 3  # of the tokenizer that data.py makes


def import_libraries(kinds: Iterable[str]) -> None:
    """Before the fork; nothing here may touch the device."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "CI": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_DISABLED": "true",
    }
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    for kind in sorted(set(kinds) - {"llama_factory_v1"}):
        module, name, settings = CLASSES[kind]
        getattr(importlib.import_module(module), name)
        getattr(importlib.import_module(module), settings)


def prepare_config(config: Config, case: Case) -> None:
    assert case.trainer
    if case.trainer.kind == "reward" and not arguments.is_of_factory(case):
        from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as NAMES

        name = config["architectures"][0]
        for ending in ("ForCausalLM", "LMHeadModel"):
            name = name.replace(ending, "ForSequenceClassification")
        config["architectures"] = [NAMES.get(config["model_type"], name)]
        config["num_labels"] = 1
    config["pad_token_id"] = PAD


def play(case: Case, model: Model, meter: Meter, state: dict[str, Any]) -> None:
    from .. import run

    plan = case.trainer
    assert plan
    if plan.kind == "llama_factory_v1":
        return llama_factory_v1.play(case, model, meter, state)
    checkpoint = saved_checkpoint(case, model, meter, state) if plan.resume else None
    prepare_config(model.config, case)
    ranks.setup(case)
    module, name, _ = arguments.classes(case)
    trainer_class = getattr(importlib.import_module(module), name)
    settings = arguments.settings(case, model)
    if arguments.is_of_factory(case):
        with settings.main_process_first():  # around its datasets
            pass
    with ranks.quantised_state(case):
        net = loaded(case, model)
    run.loaded(net, meter, state)
    if plan.kind == "hf" and settings.gradient_checkpointing:
        net.config.use_cache = False
    if case.quant:
        net.is_loaded_in_4bit = case.quant == "nf4"
        net.is_loaded_in_8bit = case.quant == "int8"
    home = sys.modules[trainer_class.__module__]
    reference: list[Any] = []

    def second_model(*args: Any, **kwargs: Any) -> Any:
        untouched = arguments.untouched(case)
        made = models.build(untouched, model.config, deepspeed.partition(case), ranks.is_on_host(case))
        reference.append(made)
        return made

    if plan.kind in HAVE_A_REFERENCE and not arguments.is_of_factory(case):
        home.create_model_from_path = second_model  # type: ignore[attr-defined]
    if plan.kind in DISTIL:
        home.AutoModelForCausalLM = SimpleNamespace(from_pretrained=lambda *args, **kwargs: arguments.teacher(case, model))  # type: ignore[attr-defined]
    if case.quant and hasattr(home, "prepare_model_for_kbit_training"):
        mark_prepared(home, meter)
    if plan.reference == "precomputed":  # reads every weight back to the host: nothing on the device
        home.hash_module = lambda m: case.id  # type: ignore[attr-defined]
    phases: list[Phases] = []
    if not case.padding:
        stand_ins.padded_where_masked()

    def selected(shape: Any) -> int:
        """Rows that TRL's head and cut cross-entropy select: as many as labels are valid."""
        return phases[0].valid(shape) if phases else early(case, shape)

    generates_elsewhere = plan.kind in GENERATE and plan.args.get("use_vllm")
    if generates_elsewhere:
        stand_ins.vllm_server_generates(plan.completion)

    with stand_ins.counted_selections(selected):
        meter.phase(None)
        trainer = trainer_class(model=net, args=settings, train_dataset=data.dataset(case, model, data.training_rows(case)), **arguments.given(case, model))
        if trainer.train_dataset is not None and plan.reference == "precomputed":
            meter.phase(None)
        others = [getattr(trainer, name, None) for name in ("teacher_model", "ref_model")]
        mark_references([*reference, *(m for m in others if m is not None)], meter)
        reference.clear()
        if plan.kind in (*GENERATE, *ONLINE, *DISTIL) and not generates_elsewhere:
            stand_ins.completions_reach_their_length(trainer, plan.completion)
        if plan.kind in GENERATE and data.is_of_media(case, model):
            stand_ins.images_have_numbers(trainer, functools.partial(data.prompts_of_media, case, model))
        if plan.args.get("predict_with_generate"):
            stand_ins.predictions_reach_their_length(trainer.model, plan.args.get("generation_max_length", 20))
        phases.append(Phases(trainer, meter, case))
        if case.kernels == "cce":
            kernels.patch_cut_cross_entropy(net, selected)
        trainer.add_callback(callback(phases[0]))
        state["after_setup"] = torch.cuda.memory_allocated()
        state["parameters"] = models.count_parameters(trainer.model)
        meter.owners(trainer.model, None)
        state["peak_setup"] = meter.phase(None)
        if isinstance(case.parallel, Zero):
            meter.watch(trainer.model.parameters())  # DeepSpeed's own hooks take gradients away
        if checkpoint:
            trainer.args.max_steps += 1  # that of the checkpoint
        trainer.train(resume_from_checkpoint=checkpoint)
        if checkpoint:
            shutil.rmtree(os.path.dirname(checkpoint))
        if "output_dir" not in case.trainer.args:
            shutil.rmtree(trainer.args.output_dir, ignore_errors=True)  # what it has saved
    state["inputs"] = {}


def loaded(case: Case, model: Model) -> Any:
    """The model that the trainer is given."""
    if arguments.is_of_factory(case):
        from . import llama_factory

        return llama_factory.load(case, model.config, deepspeed.partition(case), ranks.is_on_host(case))
    return models.build(arguments.bare(case), model.config, deepspeed.partition(case), ranks.is_on_host(case))


def mark_prepared(home: Any, meter: Meter) -> None:
    """Weights that peft takes to fp32 are parameters, though the trainer takes them back before it begins."""
    prepare = home.prepare_model_for_kbit_training

    @functools.wraps(prepare)  # the trainer asks for its signature
    def prepared(*args: Any, **kwargs: Any) -> Any:
        model = prepare(*args, **kwargs)
        meter.owners(model, None)
        return model

    home.prepare_model_for_kbit_training = prepared


def saved_checkpoint(case: Case, model: Model, meter: Meter, state: dict[str, Any]) -> str:
    """Of a run before this one, in a process of its own."""
    assert case.trainer
    folder = tempfile.mkdtemp()
    args = case.trainer.args | {"output_dir": folder, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "no"}
    before = dataclasses.replace(case.trainer, resume=False, args=args)
    child = os.fork()
    if not child:
        play(dataclasses.replace(case, trainer=before, steps=1), model, meter, state)
        os._exit(0)
    os.waitpid(child, 0)
    return f"{folder}/checkpoint-1"


def mark_references(models: list[Any], meter: Meter) -> None:
    for made in models:
        weights = list(made.parameters())
        meter.mark("reference", [*weights, *(getattr(p, "ds_tensor", None) for p in weights)])
        meter.mark("buffers", made.buffers())


def early(case: Case, shape: Any) -> int:
    """While log-probabilities are computed ahead of the training."""
    assert case.trainer
    return int(min(shape.numel(), shape[0] * (case.seq - case.trainer.prompt)))
