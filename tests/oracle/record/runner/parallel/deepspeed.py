# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO."""

from __future__ import annotations

import types
from typing import Any, Iterable, Iterator
from unittest import mock

import torch

from ...case import Case
from ...plans import Zero, Zero3
from .. import meter, optimizers, stand_ins
from ..batches import Batch
from ..models import DTYPES
from . import ulysses
from .steps import Step

# Written into zero_optimization as they are.
PASSED_ON = (
    "contiguous_gradients",
    "overlap_comm",
    "reduce_scatter",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "allgather_partitions",
    "round_robin_gradients",
    "use_multi_rank_bucket_allreduce",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_gather_16bit_weights_on_model_save",
    "sub_group_size",
    "zero_hpz_partition_size",
)

# Attributes of DeepSpeed's optimizers, by what they hold.
HOLDERS = {
    "master": (
        "single_partition_of_fp32_groups",
        "fp32_partitioned_groups_flat",
        "fp32_groups_flat_partition",
        "fp32_groups_flat",
        "fp32_groups",
    ),
    "gradients": (
        "averaged_gradients",
        "all_grad_tensors",
        "grad_partitions_flat_buffer",
        "fp32_groups_gradients_flat",
        "grads_in_partition",
    ),
    "communication": ("temp_grad_buffer_for_gpu_offload",),
}
FLAT_PARAMETERS = ("bit16_groups_flat", "bf16_groups_flat", "fp16_groups_flat", "fp16_partitioned_groups_flat")


def configuration(case: Case, hidden: int | None = None) -> dict[str, Any]:
    """DeepSpeed's configuration.  hidden: the model's hidden size, for what the Trainer derives from it."""
    plan = case.parallel
    assert isinstance(plan, Zero)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case.batch,
        "gradient_accumulation_steps": case.grad_accum,
        "zero_optimization": zero_optimization(plan, hidden),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 30,
    }
    if plan.half:
        config[plan.half] = {"enabled": True}
        if plan.half == "bf16" and plan.check_grad_overflow is not None:
            config["bf16"]["check_grad_overflow"] = plan.check_grad_overflow
    if plan.grad_accum_dtype:
        config["data_types"] = {"grad_accum_dtype": plan.grad_accum_dtype}
    if plan.communication_data_type:
        config["communication_data_type"] = plan.communication_data_type
    if plan.seq_parallel_communication_data_type:
        config["seq_parallel_communication_data_type"] = plan.seq_parallel_communication_data_type
    if case.clip:
        config["gradient_clipping"] = case.clip
    if plan.tp > 1:  # AutoTP
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    return config


def zero_optimization(plan: Zero, hidden: int | None) -> dict[str, Any]:
    stage = int(plan.kind[-1])
    given = {k: getattr(plan, k, None) for k in PASSED_ON}
    zero: dict[str, Any] = {"stage": stage, **{k: v for k, v in given.items() if v is not None}}
    if plan.hf_auto and hidden:
        zero.setdefault("reduce_bucket_size", hidden * hidden)
        if stage == 3:
            zero.setdefault("stage3_prefetch_bucket_size", int(0.9 * hidden * hidden))
            zero.setdefault("stage3_param_persistence_threshold", 10 * hidden)
    for key in ("offload_optimizer", "offload_param"):
        if getattr(plan, key, None):
            zero[key] = {"device": getattr(plan, key), "pin_memory": False}
    return zero


def partition(case: Case) -> Any:
    """The context in which a model is cut as it is made; None: whole."""
    if not isinstance(case.parallel, Zero3) or not case.parallel.zero_init:
        return None
    import deepspeed

    return deepspeed.zero.Init(config_dict_or_path=configuration(case), dtype=DTYPES[case.dtype])


class DeepSpeedStep(Step):
    """The engine clips, steps and zeroes in step(), at the last micro-batch; before that step() only counts."""

    def forward(self, batch: Batch) -> Any:
        if self.plan.sequence_parallel_size > 1:
            return ulysses.loss_of(self.model, batch, self.plan)
        return super().forward(batch)

    def __call__(self, batch: Batch) -> None:
        for _ in range(self.case.grad_accum):
            loss = self.forward(batch)
            self.mark("forward")
            self.model.backward(loss)
            del loss
            self.mark("backward")
            self.model.step()
        self.mark("step")

    def parameters(self) -> list[Any]:
        found = list(self.model.parameters())
        found += [getattr(p, "ds_tensor", None) for p in found]
        found += [getattr(p, "ds_secondary_tensor", None) for p in found]
        for name in FLAT_PARAMETERS:
            found += meter.tensors_in(getattr(self.optimizer, name, None))
        return found

    def owners(self) -> Iterator[tuple[str, Iterable[Any]]]:
        yield "gradients", [p.grad for p in self.leaves()]
        for category, names in HOLDERS.items():
            held = [t for name in names for t in meter.tensors_in(getattr(self.optimizer, name, None))]
            yield category, held
            if category == "master":
                yield "gradients", [t.grad for t in held]
        yield "optimizer", meter.state_tensors(self.optimizer)


def imagine_other_ranks() -> None:
    import deepspeed.runtime.zero.utils as checks  # ranks that must agree

    stand_ins.deepspeed_finds_no_overflow()
    checks.assert_lst_len_same_as_other_ranks = lambda ints: None
    checks.get_lst_from_rank0 = lambda ints: ints
    torch.equal = lambda a, b: a.shape == b.shape  # tensor parallel ranks have the same batch


def wrap(model: Any, case: Case) -> Step:
    import deepspeed

    imagine_other_ranks()
    made = optimizers.make(case, model)
    hidden = model.config.get_text_config().hidden_size
    with (  # DeepSpeed's reports forget the peak, and hold the values of parameters, which are not computed
        mock.patch.object(torch.cuda, "reset_peak_memory_stats"),
        mock.patch.object(torch.nn.Parameter, "__repr__", object.__repr__),
    ):
        engine, optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=made, config=configuration(case, hidden), mpu=ulysses.register(model, case)
        )
    if case.parallel.tp > 1:
        send_first_batch(engine)
    return DeepSpeedStep(engine, optimizer, case)


def send_first_batch(engine: Any) -> None:
    """Tensor parallel ranks compare their first batch with that of the first rank; one that would receive it, from
    nobody here, plays the first rank's part, which puts as many bytes on the device."""
    groups = engine.mpu
    first = {
        "get_tensor_model_parallel_rank": lambda: 0,
        "get_tensor_model_parallel_src_rank": torch.distributed.get_rank,
    }
    engine.mpu = types.SimpleNamespace(**{**vars(groups), **first})

    def restore(*_: Any) -> None:
        engine.mpu = groups
        handle.remove()

    handle = engine.module.register_forward_hook(restore)
