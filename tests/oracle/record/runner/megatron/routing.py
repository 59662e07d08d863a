# SPDX-License-Identifier: Apache-2.0
"""Tokens per expert cannot be computed here: every expert gets the same share; the experts of this rank `imbalance`
times as much. Nor can Sinkhorn's error: it falls below the tolerance in the second round."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ... import phantom
from ...plans import Megatron


def install(settings: Any, plan: Megatron) -> None:
    from megatron.core.transformer.moe import moe_utils, router, token_dispatcher

    balance_in_two_rounds(router.TopKRouter)
    tell_counts(token_dispatcher.MoEAllGatherTokenDispatcher, plan.imbalance)
    if not settings.moe_pad_expert_input_to_capacity:
        tell_sizes(token_dispatcher.MoEAlltoAllTokenDispatcher, plan.imbalance)
    permute = moe_utils.permute

    @functools.wraps(permute)
    def counted(tokens: Any, routing_map: Any, *args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("num_out_tokens")
        count = int(given) if given is not None else tokens.shape[0] * settings.moe_router_topk
        select = torch.Tensor.masked_select

        def selected(self: Any, mask: Any) -> Any:
            if not self.is_cuda:
                return select(self, mask)
            with phantom.counts(count):
                return select(self, mask)

        torch.Tensor.masked_select = selected
        try:
            return permute(tokens, routing_map, *args, **kwargs)
        finally:
            torch.Tensor.masked_select = select

    token_dispatcher.permute = counted


def balance_in_two_rounds(router: Any) -> None:
    """`while error > tol` asks a number in the first round, a tensor after each."""
    original = router.sinkhorn_load_balancing

    @functools.wraps(original)
    def balanced(self: Any, logits: Any) -> Any:
        truth, answers = torch.Tensor.__bool__, iter((True, False))
        torch.Tensor.__bool__ = lambda error_is_above: next(answers)
        try:
            return original(self, logits)
        finally:
            torch.Tensor.__bool__ = truth

    router.sinkhorn_load_balancing = balanced


def tell_sizes(dispatcher: Any, imbalance: float) -> None:
    """Where the all-to-all dispatcher copies its sizes to the host, it finds ours."""
    original = dispatcher._maybe_dtoh_and_synchronize

    @functools.wraps(original)
    def known(self: Any, point: str, tokens_per_expert: Any = None) -> Any:
        sizes = shares(self, imbalance) if point == self.cuda_dtoh_point else None
        found = original(self, point, tokens_per_expert)
        if sizes is None:
            return found
        for name, value in sizes.items():
            now = getattr(self, name, None)
            if now is None or name == "tokens_per_expert" or isinstance(now, torch.Tensor) and now.is_cuda:
                continue  # what stays on the device is for a fused kernel
            setattr(self, name, value if not isinstance(now, torch.Tensor) else torch.as_tensor(value))
        return torch.as_tensor(sizes["tokens_per_expert"])

    dispatcher._maybe_dtoh_and_synchronize = known


def tell_counts(dispatcher: Any, imbalance: float) -> None:
    """Where the all-gather dispatcher copies the tokens of its experts to the host, it finds ours."""
    original = dispatcher.dispatch_postprocess

    @functools.wraps(original)
    def known(self: Any, *args: Any, **kwargs: Any) -> Any:
        ranks, local = self.tp_size * self.ep_size, self.num_local_experts
        tokens = self.routing_map.shape[0] // ranks * self.router_topk
        mine = min(round(tokens * local / self.config.num_moe_experts * imbalance), tokens)
        told = torch.tensor([count * ranks for count in taken(self.config, tokens, divided(mine, local))])
        cpu, select = torch.Tensor.cpu, torch.Tensor.masked_select

        def selected(self: Any, mask: Any) -> Any:
            with phantom.counts(int(told.sum())):
                return select(self, mask)

        torch.Tensor.cpu, torch.Tensor.masked_select = lambda sums: told, selected
        try:
            return original(self, *args, **kwargs)
        finally:
            torch.Tensor.cpu, torch.Tensor.masked_select = cpu, select

    dispatcher.dispatch_postprocess = known


def shares(dispatcher: Any, imbalance: float) -> dict[str, Any]:
    """Host values of the all-to-all dispatcher's sizes: t tokens per rank, each sent to k experts."""
    import numpy

    tokens = dispatcher.routing_map.shape[0] * dispatcher.config.moe_router_topk
    experts, local, ep, tp = (
        dispatcher.num_experts,
        dispatcher.num_local_experts,
        dispatcher.ep_size,
        dispatcher.tp_size,
    )
    mine = min(round(tokens * local / experts * imbalance), tokens)  # what each rank sends to this rank's experts
    others = [
        sum(taken(dispatcher.config, tokens, divided(count, local)))
        for count in (divided(tokens - mine, ep - 1) if ep > 1 else [])
    ]
    per_expert = taken(dispatcher.config, tokens, divided(mine, local))
    rank = dispatcher.ep_rank if hasattr(dispatcher, "ep_rank") else dispatcher.ep_group.rank()
    mine = sum(per_expert)
    sent = others[:rank] + [mine] + others[rank:]
    return {
        "tokens_per_expert": numpy.array(per_expert) * ep * tp,
        "input_splits": numpy.array(sent),
        "output_splits": numpy.array([mine] * ep),
        "output_splits_tp": numpy.array([mine * ep] * tp),
        "num_out_tokens": sum(sent),
        "num_global_tokens_per_local_expert": numpy.tile(numpy.array(per_expert), (tp * ep, 1)),
    }


def taken(config: Any, tokens: int, counts: list[int]) -> list[int]:
    """What experts take of the tokens of a rank that come to them: at most their capacity, padded to it."""
    from megatron.core.transformer.moe.moe_utils import get_capacity

    if config.moe_expert_capacity_factor is None:
        return counts
    capacity = get_capacity(tokens, config.num_moe_experts, config.moe_expert_capacity_factor)
    return [capacity if config.moe_pad_expert_input_to_capacity else min(count, capacity) for count in counts]


def divided(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]
