# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining of Llama-shaped models."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable

import torch
from torch import nn

from ...case import Case
from ...plans import Native, Pp
from .. import optimizers
from ..batches import Batch
from .fsdp import materialise_parts
from .group import mesh_of
from .steps import Step


class Chunk(nn.Module):
    """A run of blocks of a Llama-shaped model, with the embedding before the first and the head after the last.
    length: positions of the hidden states; None: as many as there are."""

    def __init__(self, model: Any, index: int, stages: int, length: int | None = None) -> None:
        super().__init__()
        if hasattr(model, "get_base_model"):  # peft's, around it
            model = model.get_base_model()
        layers = len(model.model.layers)
        is_first, is_last = index == 0, index == stages - 1
        self.embed_tokens: Any = model.model.embed_tokens if is_first else None
        self.layers = nn.ModuleList(model.model.layers[layers * index // stages : layers * (index + 1) // stages])
        self.rotary_emb = model.model.rotary_emb
        norms = (getattr(model.model, name, None) for name in ("norm", "final_layernorm", "embedding_norm"))
        self.norm: Any = next(norm for norm in norms if norm is not None) if is_last else None
        self.lm_head: Any = model.lm_head if is_last else None
        self.length = length

    def forward(self, x: Any) -> Any:
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        positions = torch.arange(self.length or x.shape[1], device=x.device).unsqueeze(0)
        embedding = self.rotary_emb(x, position_ids=positions)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=embedding, position_ids=positions)
        if self.lm_head is not None:
            x = self.lm_head(self.norm(x))
        return x


class PipelineStep(Step):
    """parts: this rank's stages."""

    def __init__(self, model: Any, optimizer: Any, case: Case, schedule: Any, parts: list[Any]) -> None:
        super().__init__(model, optimizer, case)
        self.schedule = schedule
        self.first = any(part.is_first for part in parts)
        self.last = any(part.is_last for part in parts)
        self.note_stages(parts)

    def run_schedule(self, ids: Any, labels: Any) -> None:
        losses: list[Any] | None = [] if self.last else None
        self.schedule.step(
            *((ids,) if self.first else ()), target=labels if self.last else None, losses=losses, return_outputs=False
        )

    def __call__(self, batch: Batch) -> None:
        self.run_schedule(batch["input_ids"], batch["labels"])
        self.mark("backward")
        self.update()
        self.mark("step")


def let_engine_finish() -> None:
    """The engine's thread of a device holds a graph task, and the gradients that it captured, for some microseconds
    after grad() has returned, or as long as its core is taken: it gets them."""
    plain = torch.autograd.grad

    @functools.wraps(plain)
    def grad(*args: Any, **kwargs: Any) -> Any:
        captured = plain(*args, **kwargs)
        time.sleep(0.001)
        return captured

    torch.autograd.grad = grad


def make_schedule(plan: Pp | Native, parts: list[Any], loss: Callable[..., Any], **options: Any) -> Any:
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

    let_engine_finish()
    cls = get_schedule_class(plan.schedule)
    micro = plan.microbatches or 2 * plan.pp
    return cls(
        parts if issubclass(cls, PipelineScheduleMulti) else parts[0], n_microbatches=micro, loss_fn=loss, **options
    )


def stages_of(plan: Pp | Native, me: int) -> list[int]:
    """The stages of one rank: every pp-th, or the two ends of a V."""
    stages = plan.pp * plan.chunks
    if plan.schedule in ("ZBVZeroBubble", "DualPipeV"):
        return [me, stages - 1 - me]
    return list(range(me, stages, plan.pp))


def make_stage(
    chunk: Any,
    index: int,
    stages: int,
    ids: tuple[int, int],
    hidden: tuple[int, int, int],
    vocabulary: int,
    dtype: Any,
    group: Any,
) -> Any:
    """A stage of the schedule, told the shapes of what it takes and gives."""
    from torch.distributed.pipelining import PipelineStage

    between = torch.empty(*hidden, device="meta", dtype=dtype)
    tokens = torch.empty(*ids, device="meta", dtype=torch.long)
    logits = torch.empty(*ids, vocabulary, device="meta", dtype=dtype)
    first, last = index == 0, index == stages - 1
    return PipelineStage(
        chunk,
        index,
        stages,
        torch.device("cuda", 0),
        input_args=tokens if first else between.requires_grad_(),
        output_args=(logits if last else between.clone()).requires_grad_(),
        group=group,
    )


def drop_others(model: Any, whole: Any) -> None:
    """Lets go of the parameters of the other ranks' stages."""
    keep = {id(p) for p in whole.parameters()}
    for module in model.modules():
        for key, p in list(module._parameters.items()):
            if p is not None and id(p) not in keep:
                module._parameters[key] = None


def wrap(model: Any, case: Case) -> Step:
    plan = case.parallel
    assert isinstance(plan, Pp)
    mesh = mesh_of(("dp", "pp"), (plan.dp, plan.pp))
    stages, size = plan.pp * plan.chunks, case.batch // (plan.microbatches or 2 * plan.pp)
    group, dtype, config = mesh["pp"].get_group(), next(model.parameters()).dtype, model.config
    parts = [
        make_stage(
            Chunk(model, index, stages),
            index,
            stages,
            (size, case.seq),
            (size, case.seq, config.hidden_size),
            config.vocab_size,
            dtype,
            group,
        )
        for index in stages_of(plan, mesh["pp"].get_local_rank())
    ]
    whole = nn.ModuleList([part.submod for part in parts])
    drop_others(model, whole)
    if plan.meta_init:
        for part in parts:
            materialise_parts(part.submod)

    def loss(logits: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    schedule = make_schedule(plan, parts, loss)
    return PipelineStep(whole, optimizers.make(case, whole), case, schedule, parts)
