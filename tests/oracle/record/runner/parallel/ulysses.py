# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's Ulysses for transformers: each rank has a part of every sequence, and in attention a part of the heads."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from ...case import Case
from ...plans import Zero
from ..batches import Batch


def register(model: Any, case: Case) -> Any:
    """The groups that deepspeed.initialize() is given; None: sequences are whole."""
    plan = case.parallel
    assert isinstance(plan, Zero)
    if plan.sequence_parallel_size == 1:
        return None
    import deepspeed
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    deepspeed.init_distributed(dist_backend="nccl")
    return UlyssesSPAttentionHF.register_with_transformers(
        model_name_or_path=model,
        core_attn_implementation=model.config._attn_implementation,
        sequence_parallel_size=plan.sequence_parallel_size,
        micro_batch_size=case.batch,
        seq_length_is_variable=True,
        disable_in_eval=True,
    )


def of_rank(case: Case) -> Case:
    """With the part of a sequence that a rank has."""
    ranks = getattr(case.parallel, "sequence_parallel_size", 1)
    return dataclasses.replace(case, seq=case.seq // ranks) if ranks > 1 else case


def loss_of(model: Any, batch: Batch, plan: Zero) -> Any:
    """As the Trainer of transformers computes it: of this rank's tokens, weighted over the ranks of a sequence."""
    from transformers.integrations.deepspeed import deepspeed_sp_compute_loss

    parallelism = SimpleNamespace(sp_backend="deepspeed", sp_size=plan.sequence_parallel_size)
    return deepspeed_sp_compute_loss(None, model, dict(batch), False, parallelism)
