# SPDX-License-Identifier: Apache-2.0
"""A trainer on one rank of several: the process group, and what the trainer's arguments say about its strategy."""

from __future__ import annotations

import contextlib
import os
from typing import Any, ContextManager, Iterable, Iterator
from unittest import mock

import torch

from ...case import Case
from ...catalogue import Config
from ...plans import Ddp, Fsdp1, Fsdp2, Zero, Zero3
from ..parallel import deepspeed, group
from . import stand_ins
from ..parallel.steps import Step

Arguments = dict[str, Any]


def setup(case: Case) -> None:
    """Before the model is made."""
    if case.parallel is None:
        return
    group.setup(case.parallel)
    if isinstance(case.parallel, Zero):
        deepspeed.imagine_other_ranks()
        keep_peaks()
    if getattr(case.parallel, "sequence_parallel_size", 1) > 1:
        stand_ins.sequences_have_length(case.seq)


def keep_peaks() -> None:
    """DeepSpeed's reports forget the peak, and hold the values of parameters, which are not computed."""
    import deepspeed as library

    initialize = library.initialize

    def initialized(*args: Any, **kwargs: Any) -> Any:
        with (
            mock.patch.object(torch.cuda, "reset_peak_memory_stats"),
            mock.patch.object(torch.nn.Parameter, "__repr__", object.__repr__),
        ):
            return initialize(*args, **kwargs)

    library.initialize = initialized


def is_on_host(case: Case) -> bool:
    """Whether the trainer is given a model on the host, for the strategy to place: Trainer.place_model_on_device."""
    plan = case.parallel
    if case.trainer is None or case.quant:
        return False
    if case.trainer.program == "llama_factory" and case.trainer.kind != "llama_factory_v1":  # device_map
        return isinstance(plan, (Zero3, Fsdp1)) or (isinstance(plan, Fsdp2) and plan.meta_init)
    return isinstance(plan, (Zero, Fsdp1, Fsdp2))


def quantised_state(case: Case) -> ContextManager[Any]:
    """get_init_context() of from_pretrained(): ZeRO-3 does not cut a quantised model as it is made."""
    from transformers.modeling_utils import set_quantized_state

    return set_quantized_state() if case.quant else contextlib.nullcontext()


def owners(case: Case, model: Any, optimizer: Any) -> Iterator[tuple[str, Iterable[Any]]]:
    """(category, tensors) of what a strategy keeps from one phase to the next."""
    step = (deepspeed.DeepSpeedStep if isinstance(case.parallel, Zero) else Step)(model, optimizer, case)
    yield "parameters", step.parameters()
    yield from step.owners()


def sizes(plan: Fsdp2) -> Any:
    """ParallelismConfig, where sequences are cut too."""
    if plan.cp == 1:
        return None
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import TorchContextParallelConfig

    around = TorchContextParallelConfig(cp_comm_strategy=plan.rotate)
    return ParallelismConfig(dp_shard_size=plan.dp, cp_size=plan.cp, cp_handler=around)


def shares(case: Case, plan: Zero) -> Any:
    """ParallelismConfig of ranks that share sequences by Ulysses."""
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import DeepSpeedSequenceParallelConfig

    how = DeepSpeedSequenceParallelConfig(
        sp_seq_length_is_variable=True, sp_attn_implementation=case.attention, sp_seq_length=case.seq
    )
    return ParallelismConfig(
        dp_shard_size=plan.dp, sp_size=plan.sequence_parallel_size, sp_backend="deepspeed", sp_handler=how
    )


def hidden_size(config: Config) -> int | None:
    """As the classes of transformers have it, under whichever name."""
    from transformers import CONFIG_MAPPING

    of = CONFIG_MAPPING[config["model_type"]].attribute_map.get("hidden_size", "hidden_size")
    found: int | None = config.get(of) or config.get("n_embd") or config.get("text_config", {}).get("hidden_size")
    return found


def finds_unused(case: Case, plan: Ddp) -> bool | None:
    """LLaMA-Factory (hparams/parser.py, get_train_args) says no for LoRA; None: the Trainer chooses."""
    of_factory = case.trainer is not None and case.trainer.program == "llama_factory"
    return False if of_factory and case.lora and plan.find_unused_parameters is None else plan.find_unused_parameters


def arguments(case: Case, config: Config) -> Arguments:
    """Of TrainingArguments."""
    plan = case.parallel
    if isinstance(plan, Ddp):
        return {
            "ddp_find_unused_parameters": finds_unused(case, plan),
            "ddp_bucket_cap_mb": plan.bucket_cap_mb,
            "ddp_broadcast_buffers": plan.broadcast_buffers,
            "ddp_static_graph": plan.static_graph,
        }
    if isinstance(plan, Zero):
        made = deepspeed.configuration(case, hidden_size(config))
        shared = {"parallelism_config": shares(case, plan)} if plan.sequence_parallel_size > 1 else {}
        return {"deepspeed": made, "bf16": plan.half == "bf16", "fp16": plan.half == "fp16", **shared}
    if isinstance(plan, Fsdp2):
        how = {
            "version": 2,
            "cpu_offload": plan.offload,
            "reshard_after_forward": plan.reshard_after_forward,
            "cpu_ram_efficient_loading": plan.meta_init,
            "transformer_layer_cls_to_wrap": plan.transformer_cls_names_to_wrap or None,
        }
        return {"fsdp": True, "fsdp_config": how, "parallelism_config": sizes(plan)}
    if isinstance(plan, Fsdp1):
        os.environ["FSDP_SHARDING_STRATEGY"] = plan.strategy  # as `accelerate launch` says it: no argument is read
        if plan.transformer_cls_names_to_wrap:  # which peft asks for
            os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = ",".join(plan.transformer_cls_names_to_wrap)
        ahead = plan.backward_prefetch or "NO_PREFETCH"
        how = {
            "version": 1,
            "reshard_after_forward": plan.strategy,
            "backward_prefetch": ahead,
            "forward_prefetch": plan.forward_prefetch,
            "use_orig_params": plan.use_orig_params,
            "limit_all_gathers": plan.limit_all_gathers,
            "sync_module_states": plan.sync_module_states,
            "cpu_offload": plan.offload,
            "transformer_layer_cls_to_wrap": plan.transformer_cls_names_to_wrap or None,
        }
        return {"fsdp": True, "fsdp_config": how}
    return {}
