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
from ...plans import Ddp, Fsdp1, Fsdp2, Zero
from ..parallel import deepspeed, group
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


def keep_peaks() -> None:
    """DeepSpeed's reports forget the peak."""
    import deepspeed as library

    initialize = library.initialize

    def initialized(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.cuda, "reset_peak_memory_stats"):
            return initialize(*args, **kwargs)

    library.initialize = initialized


def is_on_host(case: Case) -> bool:
    """Whether the trainer is given a model on the host, for the strategy to place: Trainer.place_model_on_device."""
    return case.trainer is not None and isinstance(case.parallel, (Zero, Fsdp1, Fsdp2)) and not case.quant


def quantised_state(case: Case) -> ContextManager[Any]:
    """get_init_context() of from_pretrained(): ZeRO-3 does not cut a quantised model as it is made."""
    from transformers.modeling_utils import set_quantized_state

    return set_quantized_state() if case.quant else contextlib.nullcontext()


def owners(case: Case, model: Any, optimizer: Any) -> Iterator[tuple[str, Iterable[Any]]]:
    """(category, tensors) of what a strategy keeps from one phase to the next."""
    step = (deepspeed.DeepSpeedStep if isinstance(case.parallel, Zero) else Step)(model, optimizer, case)
    yield "parameters", step.parameters()
    yield from step.owners()


def arguments(case: Case, config: Config) -> Arguments:
    """Of TrainingArguments."""
    plan = case.parallel
    if isinstance(plan, Ddp):
        return {
            "ddp_find_unused_parameters": plan.find_unused_parameters,
            "ddp_bucket_cap_mb": plan.bucket_cap_mb,
            "ddp_broadcast_buffers": plan.broadcast_buffers,
            "ddp_static_graph": plan.static_graph,
        }
    if isinstance(plan, Zero):
        made = deepspeed.configuration(case, config.get("hidden_size") or config.get("n_embd"))
        return {"deepspeed": made, "bf16": plan.half == "bf16", "fp16": plan.half == "fp16"}
    if isinstance(plan, Fsdp2):
        how = {
            "version": 2,
            "cpu_offload": plan.offload,
            "reshard_after_forward": plan.reshard_after_forward,
            "cpu_ram_efficient_loading": plan.meta_init,
        }
        return {"fsdp": True, "fsdp_config": how}
    if isinstance(plan, Fsdp1):
        os.environ["FSDP_SHARDING_STRATEGY"] = plan.strategy  # as `accelerate launch` says it: no argument is read
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
        }
        return {"fsdp": True, "fsdp_config": how}
    return {}
