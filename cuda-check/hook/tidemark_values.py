# SPDX-License-Identifier: Apache-2.0
"""Values that decide what a library allocates and that a phantom GPU does not compute: what the library does as it is
made with them.  Each stand-in says what it assumed."""
from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Iterator

_watch: Any = None
_given: list[int] = []             # what small reads from the device find, the innermost last


def start(watch: Any) -> None:
    global _watch
    _watch = watch


def given() -> int:
    """What a small read from the device finds; -1: nothing is given."""
    return _given[-1] if _given else -1


@contextlib.contextmanager
def device_counts(count: int) -> Iterator[None]:
    """Inside, small reads from the device (the count behind nonzero) find `count`."""
    _given.append(count)
    try:
        yield
    finally:
        _given.pop()


def assume(what: str) -> None:
    _watch.assumed[what] = _watch.assumed.get(what, 0) + 1


def backward_counts(out: Any, count: int) -> None:
    """The node of `out` reads in its backward what its forward read."""
    if out.grad_fn is None:
        return
    inside = contextlib.ExitStack()
    out.grad_fn.register_prehook(lambda grads: inside.enter_context(device_counts(count)) and None)
    out.grad_fn.register_hook(lambda inputs, grads: inside.close())


# ---- transformers' generation ----

def sequences_do_not_end(module: Any) -> None:
    """GenerationMixin's loops run to the longest length that they were asked for."""
    def unfinished(self: Any, *args: Any, **kwargs: Any) -> bool:
        at = sys._getframe(1).f_locals
        assume("transformers/generation/utils.py: no sequence ends before its longest length")
        return at["input_ids"].shape[1] < at["stopping_criteria"].max_length

    module.GenerationMixin._has_unfinished_sequences = unfinished


# ---- TRL ----

def on_host(tensor: Any) -> Any:
    """What was copied to the device, read without the device's help: a copy of strides would be computed there."""
    import torch
    inside, _watch.in_hook = _watch.in_hook, True
    try:
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        return whole.cpu().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    finally:
        _watch.in_hook = inside


def scored(frame: Any, shape: Any) -> int:
    """Positions with a label in `_fused_forward` of a batch of `shape`, [batch, sequence - 1]: the trainers that make
    labels on the device make them of completions, the others have them of the host."""
    labels = frame.f_locals["labels"]
    while frame is not None:
        at = frame.f_locals
        if isinstance(at.get("logits_to_keep"), int):
            return int(shape[0]) * min(at["logits_to_keep"], int(shape[1]))
        inputs = at.get("inputs")
        if isinstance(inputs, dict) and "completion_mask" in inputs:
            return int((on_host(inputs["completion_mask"])[:, 1:] != 0).sum())
        frame = frame.f_back
    return int((on_host(labels) != -100).sum())


def head_selects_labels(module: Any) -> None:
    """trl/trainer/utils.py: `hidden_states[labels != -100]` selects as many rows as there are labels, `masked_scatter`
    puts them back, and nothing is NaN."""
    import torch
    take, scatter = torch.Tensor.__getitem__, torch.Tensor.masked_scatter

    def count_of(caller: Any, index: Any) -> int:
        name = caller.f_code.co_name
        if name == "_fused_forward" and "labels" in caller.f_locals:
            assume("trl/trainer/utils.py: the positions that are scored are those with a label")
            return scored(caller, index.shape)
        if name in ("nanmin", "nanmax") and caller.f_globals is module.__dict__:
            assume("trl/trainer/utils.py: nothing is NaN")
            return index.numel()
        return -1

    def getitem(self: Any, index: Any) -> Any:
        if not (isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.is_cuda):
            return take(self, index)
        count = count_of(sys._getframe(1), index)
        if count < 0:
            return take(self, index)
        with device_counts(count):
            out = take(self, index)
        backward_counts(out, count)
        return out

    @functools.wraps(scatter)
    def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
        out = scatter(self, mask, source)
        if source.requires_grad:
            backward_counts(out, source.numel())
        return out

    torch.Tensor.__getitem__, torch.Tensor.masked_scatter = getitem, masked_scatter


def completions_are_longest(name: str) -> Callable[[Any], None]:
    """GRPOTrainer and RLOOTrainer: the tokens of each completion are made on the host, as many as it may have."""
    def change(module: Any) -> None:
        trainer = getattr(module, name)
        generate = trainer._generate_single_turn

        @functools.wraps(generate)
        def single_turn(self: Any, *args: Any, **kwargs: Any) -> Any:
            with device_counts(0):
                made = generate(self, *args, **kwargs)
            length = self.max_completion_length
            assume(f"trl: completions have max_completion_length={length} tokens, of which none ends a sequence")
            ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
            token = next(i for i in range(len(ends) + 1) if i not in ends)
            completions = [[token] * length for _ in made[0]]
            return completions, *made[1:]

        trainer._generate_single_turn = single_turn

    return change


# ---- DeepSpeed ----

def ranks_agree(module: Any) -> None:
    """DeepSpeed asks whether all ranks have the same lists."""
    module.assert_lst_len_same_as_other_ranks = lambda ints: None
    module.get_lst_from_rank0 = lambda ints: ints


# What is changed in modules when they have been executed.
STAND_INS: dict[str, Callable[[Any], None]] = {
    "transformers.generation.utils": sequences_do_not_end,
    "trl.trainer.utils": head_selects_labels,
    "trl.trainer.grpo_trainer": completions_are_longest("GRPOTrainer"),
    "trl.trainer.rloo_trainer": completions_are_longest("RLOOTrainer"),
    "deepspeed.runtime.zero.utils": ranks_agree,
}
