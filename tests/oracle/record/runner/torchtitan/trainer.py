# SPDX-License-Identifier: Apache-2.0
"""torchtitan.train.Trainer over a case's model: it makes, cuts and trains the model, and what it calls is noted."""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import types
from typing import Any, Callable, Iterator

import torch
from torch import nn

from ...case import Case
from ...catalogue import Config
from ...plans import Native
from ..batches import Batch
from ..meter import Meter
from ..models import DTYPES
from ..parallel.experts import split_sizes
from ..parallel.pipeline import let_engine_finish
from ..parallel.steps import Step
from . import configuration


def import_libraries() -> None:
    """The folder of torchtitan's release is on the path. TensorBoard, which no case writes to, is not installed."""
    board: Any = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = None
    sys.modules.setdefault(board.__name__, board)
    import torchtitan.train  # noqa: F401


def build(case: Case, config: Config) -> Any:
    """The model as the trainer makes it, on the meta device."""
    from torchtitan.tools.utils import set_default_dtype

    job, spec = configuration.job_config(case), spec_of(case, config)
    args = spec.model_args["recorded"]
    args.update_from_config(job)
    with torch.device("meta"), set_default_dtype(DTYPES[case.dtype]):
        return spec.model_cls(args)


def spec_of(case: Case, config: Config) -> Any:
    """What torchtitan.models has for this module, with the case's sizes and random tokens."""
    import dataclasses

    from torchtitan.protocols import train_spec

    module, args = configuration.model_args(config, case)
    return dataclasses.replace(
        train_spec.get_train_spec(module),
        model_args={"recorded": args},
        build_tokenizer_fn=None,
        build_dataloader_fn=lambda **given: Tokens(case, config, given["job_config"]),
        build_validator_fn=None,
        state_dict_adapter=None,
    )


def redraw(module: str) -> None:
    """A distribution that is cut off near its middle has some values outside: they are drawn again, as on a GPU more
    than once."""
    import importlib

    code = importlib.import_module(f"torchtitan.models.{module}.model.model")
    plain, is_true = code.trunc_normal_, torch.Tensor.__bool__

    def drawn(tensor: Any, **given: Any) -> Any:
        answers = iter((True, True) if "a" in given else ())

        def has_some(found: Any) -> bool:
            return (is_true(found), next(answers, False))[1]

        torch.Tensor.__bool__ = has_some
        try:
            return plain(tensor, **given)
        finally:
            torch.Tensor.__bool__ = is_true

    code.trunc_normal_ = drawn


class Tokens:
    """Batches on the host, as torchtitan's loaders give them."""

    def __init__(self, case: Case, config: Config, job: Any) -> None:
        self.shape, self.vocabulary = (job.training.local_batch_size, case.seq), config["vocab_size"]

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        while True:
            tokens = torch.randint(0, self.vocabulary, self.shape)
            yield {"input": tokens}, tokens.clone()

    def state_dict(self) -> dict[str, Any]:
        return {}


class Optimizers:
    """The optimizers of a rank's parts as one."""

    def __init__(self, of_parts: list[Any]) -> None:
        self.of_parts = of_parts

    @property
    def state(self) -> dict[Any, Any]:
        return {p: s for optimizer in self.of_parts for p, s in optimizer.state.items()}


class TitanStep(Step):
    """train_step(), which says itself what happens when."""

    def __init__(self, trainer: Any, case: Case, meter: Meter) -> None:
        super().__init__(nn.ModuleList(trainer.model_parts), Optimizers(trainer.optimizers.optimizers), case)
        self.trainer, self.meter = trainer, meter
        self.data = trainer.batch_generator(trainer.dataloader)
        self.note_inputs()
        self.note_update()
        if case.parallel and case.parallel.pp > 1:
            schedule = self.trainer.pp_schedule
            self.note_stages(getattr(schedule, "_stages", None) or [schedule._stage])
        else:
            self.note_passes()

    def __call__(self, batch: Batch) -> None:
        self.trainer.step += 1
        self.trainer.train_step(self.data)
        self.mark("step")

    def note_inputs(self) -> None:
        plain = self.trainer.post_dataloading_process

        @functools.wraps(plain)
        def noted(given: dict[str, Any], labels: Any) -> Any:
            self.meter.mark("inputs", [*given.values(), labels])
            return plain(given, labels)

        self.trainer.post_dataloading_process = noted

    def note_update(self) -> None:
        from torchtitan.distributed import utils

        plain = utils.clip_grad_norm_

        @functools.wraps(plain)
        def noted(*args: Any, **options: Any) -> Any:
            self.mark("backward")
            return plain(*args, **options)

        utils.clip_grad_norm_ = noted

    def note_passes(self) -> None:
        """The loss ends a forward pass."""
        model, loss_of = self.trainer.model_parts[0], self.trainer.loss_fn
        forward = model.forward

        @functools.wraps(forward)
        def begins(*args: Any, **options: Any) -> Any:
            self.mark("chunk")
            return forward(*args, **options)

        def ends(*args: Any) -> Any:
            loss = loss_of(*args)
            self.mark("chunk forward")
            return loss

        model.forward, self.trainer.loss_fn = begins, ends


def wrap(model: Any, case: Case, config: Config, meter: Meter) -> Step:
    from torchtitan.models.attention import ScaledDotProductAttentionWrapper
    from torchtitan.protocols.train_spec import register_train_spec
    from torchtitan.train import Trainer

    assert isinstance(case.parallel, Native)
    logging.getLogger().setLevel(logging.ERROR)
    redraw(configuration.MODULES[config["model_type"]])
    register_train_spec("recorded", spec_of(case, config))
    ScaledDotProductAttentionWrapper.sdpa_backends = backends(case)
    let_engine_finish()
    tell_neighbours(case, config)
    tell_splits(case.parallel)
    job = configuration.job_config(case)
    job.job.dump_folder = tempfile.gettempdir()
    trainer = Trainer(job)
    trainer.metrics_processor.device_memory_monitor.reset_peak_stats = lambda: None  # the peaks are ours to read
    return TitanStep(trainer, case, meter)


def tell_splits(plan: Native) -> None:
    """Where dispatch reads from the device how many tokens go to each rank and come from it, it finds ours."""
    from torchtitan.distributed.expert_parallel import ExpertParallel

    dispatch = ExpertParallel._token_dispatch

    @functools.wraps(dispatch)
    def known(self: Any, mod: Any, inputs: Any, device_mesh: Any) -> Any:
        pairs, ranks = len(inputs[0]), device_mesh.shape[0]
        sizes = iter(split_sizes(pairs, ranks, device_mesh.get_local_rank(), plan.imbalance))
        plain, torch.Tensor.tolist = torch.Tensor.tolist, lambda tensor: next(sizes)
        try:
            return dispatch(self, mod, inputs, device_mesh)
        finally:
            torch.Tensor.tolist = plain

    ExpertParallel._token_dispatch = known


def tell_neighbours(case: Case, config: Config) -> None:
    """Stages ask each other for the shapes of hidden states and of their gradients, which are known."""
    from torch.distributed.pipelining import _utils, stage

    plan = case.parallel
    assert isinstance(plan, Native)
    rows = case.seq // plan.cp // plan.tp
    sharded = plan.dp * plan.cp > 1 and plan.param_dtype
    dtype = DTYPES[plan.param_dtype if sharded else case.dtype]
    hidden = torch.empty(case.batch, rows, config["hidden_size"], device="meta", dtype=dtype)

    def known(self: Any, other: int) -> Any:
        if other < self.stage_index:
            return stage._StageForwardMeta(forward_metas=(_utils.extract_tensor_meta(hidden.requires_grad_()),))
        return stage._StageBackwardMeta(backward_metas=(_utils.extract_tensor_meta(hidden.detach()),))

    stage.PipelineStage._recv_meta = known
    stage.PipelineStage._send_meta = lambda self, meta, other: None


def backends(case: Case) -> list[Any]:
    """Kernels from the case's on, in torchtitan's order."""
    from torch.nn.attention import SDPBackend

    names = list(configuration.BACKENDS)
    first = 0 if case.sdpa_backend == "default" else names.index(case.sdpa_backend)
    return [getattr(SDPBackend, configuration.BACKENDS[name]) for name in names[first:]]
