# SPDX-License-Identifier: Apache-2.0
"""Values of a trainer's loop that the phantom cannot compute."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from types import SimpleNamespace
from typing import Any, Callable, Iterator
from unittest import mock

import torch

from ... import phantom
from .. import vision_grids
from ..stand_ins import is_padded
from ..vision_grids import lists


@contextlib.contextmanager
def counted_selections(count: Callable[[Any], int]) -> Iterator[None]:
    """hidden_states[mask] in TRL's head selects as many rows as labels are valid, which the host knows; nothing is NaN;
    KTO's batches are half wanted."""
    take, find = torch.Tensor.__getitem__, torch.nonzero

    def getitem(self: Any, index: Any) -> Any:
        if not (isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.is_cuda):
            return take(self, index)
        caller, module = sys._getframe(1).f_code.co_name, sys._getframe(1).f_globals["__name__"]
        if module.startswith("transformers.models.") or module == vision_grids.__name__:  # real images: ../stand_ins.py
            return take(self, index)
        if caller in ("_fused_forward", "generalized_jsd_loss"):
            selected = count(index.shape)
            with phantom.counts(selected):
                out = take(self, index)
            if out.grad_fn is not None:  # its backward counts again
                phantom.counts_in_backward(out, selected)
            return out
        if caller == "_compute_loss" and (self.dim() == 3 or self.dtype == torch.int64):  # logits of one half of DPO's pairs, before TRL 1.14
            selected = count(torch.Size((2 * index.shape[0], index.shape[1]))) // 2
            with phantom.counts(selected):
                out = take(self, index)
            if out.grad_fn is not None:
                phantom.counts_in_backward(out, selected)
            return out
        if caller in ("nanmin", "nanmax") and not index.dim():
            return take(self, True)
        if caller in ("nanmin", "nanmax", "get_high_entropy_mask"):
            with phantom.counts(index.numel()):
                return take(self, index)
        with phantom.counts(0):  # for what is logged
            return take(self, index)

    def half(values: Any, **kwargs: Any) -> Any:
        if values.is_cuda and values.dim() == 1 and sys._getframe(1).f_globals["__name__"].endswith("kto_trainer"):
            with phantom.counts(values.numel() // 2):
                return find(values, **kwargs)
        return find(values, **kwargs)

    torch.Tensor.__getitem__, torch.nonzero = getitem, half
    try:
        yield
    finally:
        torch.Tensor.__getitem__, torch.nonzero = take, find


def columns_of_ranks(most: Callable[[], int]) -> None:
    """pad_across_processes compares the columns that all ranks have in a batch which is evaluated: they are known on the
    host."""
    from accelerate.utils import operations

    gather = operations.gather

    def gathered(tensor: Any) -> Any:
        made = gather(tensor)
        if sys._getframe(1).f_code.co_name != "_pad_across_processes":
            return made
        shape = list(sys._getframe(1).f_locals["tensor"].shape)
        return torch.tensor([[shape[0], most(), *shape[2:]]])

    operations.gather = gathered


def padded_where_masked() -> None:
    """Collators give a mask, which the model drops once it has seen that all of it is ones."""
    from transformers import masking_utils

    ignore = masking_utils._ignore_causal_mask_sdpa

    @functools.wraps(ignore)
    def ignored(padding_mask: Any, *args: Any, **kwargs: Any) -> bool:
        return bool(ignore(padding_mask if is_padded() else None, *args, **kwargs))

    masking_utils._ignore_causal_mask_sdpa = ignored


def sequences_have_length(tokens: int) -> None:
    """Ranks that share sequences tell one another how long theirs are."""
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPDataLoaderAdapter as Adapter

    refill, read = Adapter.refill, torch.Tensor.item

    @functools.wraps(refill)
    def known(self: Any) -> None:
        with mock.patch.object(torch.Tensor, "item", lambda t: tokens if t.is_cuda else read(t)):
            refill(self)

    Adapter.refill = known


def completions_reach_their_length(trainer: Any, completion: int) -> None:
    """No end token is ever drawn: generation runs to its longest, and the tokens are made up on the host. A mask is not
    found to be of ones: prompts differ in length."""
    from transformers import GenerationMixin
    from transformers.generation.utils import StopCheck

    check, unfinished = StopCheck.__call__, GenerationMixin._has_unfinished_sequences

    def checked(self: Any, *args: Any, **kwargs: Any) -> bool:
        check(self, *args, **kwargs)
        self.drawn = getattr(self, "drawn", 0) + 1
        return bool(self.drawn >= completion)

    def is_unfinished(self: Any, this_peer_finished: bool, *args: Any, **kwargs: Any) -> bool:
        with phantom.counts(0 if this_peer_finished else 1):  # the other ranks, where they are asked, are as far
            return bool(unfinished(self, this_peer_finished, *args, **kwargs))

    StopCheck.__call__ = checked
    GenerationMixin._has_unfinished_sequences = is_unfinished
    if hasattr(trainer, "generate_on_policy_outputs"):
        answers_are_drawn(trainer)
        return
    if not hasattr(trainer, "_generate_single_turn"):
        completions_are_drawn(trainer)
        return
    generate = trainer._generate_single_turn

    @functools.wraps(generate)
    def single_turn(*args: Any, **kwargs: Any) -> Any:
        with phantom.counts(0, has_truth=True):
            made = generate(*args, **kwargs)
        ids = made[0] if isinstance(made, tuple) else made
        ids = [[5 + k % 100 for k in range(completion)] for _ in ids]
        return (ids, *made[1:]) if isinstance(made, tuple) else ids

    trainer._generate_single_turn = single_turn


def images_have_numbers(trainer: Any, prompts: Callable[[int], dict[str, Any]]) -> None:
    """Grids, sizes and kinds of tokens, which are concatenated and shuffled on the device; all rows are alike."""
    module, name = sys.modules[type(trainer).__module__], "_get_per_token_logps_and_entropies"
    split, score, read = module.split_pixel_values_by_grid, getattr(trainer, name), torch.Tensor.item  # type: ignore[attr-defined]

    def parted(batch: Any) -> Any:
        with lists(lambda t: batch["image_grid_thw"].cpu().prod(-1).tolist()):
            return split(batch)

    @functools.wraps(score)
    def scored(*args: Any, **kwargs: Any) -> Any:
        kwargs = inspect.signature(score).bind(*args, **kwargs).arguments
        input_ids, attention_mask = kwargs["input_ids"], kwargs["attention_mask"]
        rows, per_row = len(input_ids), 0
        if kwargs.get("num_images") is None:
            return score(**kwargs)
        attention_mask.copy_(torch.ones(attention_mask.shape, dtype=attention_mask.dtype))
        for key, truth in prompts(rows).items():
            on_device = kwargs.get(key)
            if isinstance(on_device, torch.Tensor) and not truth.is_floating_point():
                whole = torch.zeros(on_device.shape, dtype=truth.dtype)
                whole[tuple(slice(size) for size in truth.shape)] = truth
                on_device.copy_(whole)
        if kwargs.get("image_grid_thw") is not None:
            per_row = int(kwargs["image_grid_thw"].cpu().prod(-1).sum()) // rows
        chunk = kwargs.get("batch_size") or rows
        ends = iter([x * per_row for start in range(0, rows, chunk) for x in (start, min(start + chunk, rows))])
        item = lambda t: (read(t), next(ends))[1] if t.is_cuda and sys._getframe(1).f_code.co_name == name else read(t)
        with mock.patch.object(torch.Tensor, "item", item):
            return score(**kwargs)

    module.split_pixel_values_by_grid = parted  # type: ignore[attr-defined]
    setattr(trainer, name, scored)


def answers_are_drawn(trainer: Any) -> None:
    """By GKD, for lmbda between 0 and 1: in the first step, and in every second one after it."""
    generate, module = trainer.generate_on_policy_outputs, sys.modules[type(trainer).__module__]

    def on_policy(*args: Any, **kwargs: Any) -> Any:
        with phantom.counts(0, has_truth=True):
            return generate(*args, **kwargs)

    trainer.generate_on_policy_outputs = on_policy
    module.random = SimpleNamespace(random=lambda: trainer.state.global_step % 2 or 1e-9)  # type: ignore[attr-defined]


def completions_are_drawn(trainer: Any) -> None:
    """By OnlineDPOTrainer, which reads them from the device to decode and to score them: they are words."""
    generate = trainer._generate

    def generated(*args: Any, **kwargs: Any) -> Any:
        with phantom.counts(0, has_truth=True):
            made = generate(*args, **kwargs)
        made[2].copy_(torch.full(made[2].shape, 5))
        return made

    trainer._generate = generated


def predictions_reach_their_length(model: Any, length: int) -> None:
    """No end token is ever drawn, greedily or by beams; the decoder's first token is given."""
    from transformers import GenerationMixin
    from transformers.generation.utils import StopCheck

    check, unfinished, generate = StopCheck.__call__, GenerationMixin._beam_search_has_unfinished_sequences, model.generate
    steps, longest = [0], contextlib.ExitStack()

    def is_last() -> bool:
        steps[0] += 1
        return steps[0] % (length - 1) == 0

    def checked(self: Any, *args: Any, **kwargs: Any) -> bool:
        check(self, *args, **kwargs)
        return is_last()

    def is_unfinished(*args: Any, **kwargs: Any) -> bool:
        unfinished(*args, **kwargs)
        ends = is_last()
        if ends:
            longest.enter_context(phantom.counts(length))  # tokens of the longest beam
        return not ends

    def generated(*args: Any, **kwargs: Any) -> Any:
        with longest:
            return generate(*args, **kwargs)

    StopCheck.__call__ = checked
    GenerationMixin._beam_search_has_unfinished_sequences = staticmethod(is_unfinished)
    model.generate = generated


def vllm_server_generates(completion: int) -> None:
    """A server that takes the weights, packed as vLLM's client packs them, and gives completions of this length. They
    reach the other ranks without the bytes of a pickle, which depend on the texts."""
    import importlib.util

    from trl.generation import vllm_generation

    from ... import environments

    places = (environments.folder() / "serving" / "lib").glob("python3*/site-packages/vllm")
    file = next(places) / "distributed" / "weight_transfer" / "packed_tensor.py"
    spec = importlib.util.spec_from_file_location("packed_tensor", file)
    assert spec and spec.loader
    packed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packed)

    class Group:
        def broadcast(self, tensor: Any, src: int) -> None:
            pass

    class Client:
        def __init__(self, **kwargs: Any) -> None:
            pass

        def init_communicator(self, device: Any) -> None:
            pass

        def get_server_info(self) -> Any:
            return {"model_config": {"logprobs_mode": "processed_logprobs"}}

        def update_named_params(self, metadata: Any, named: Any) -> None:
            packed.packed_nccl_broadcast_producer(named, Group(), 0, lambda item: item[1])

        def reset_prefix_cache(self) -> None:
            pass

        def image_features(self, images: Any) -> Any:
            return list(images)

        def generate(self, prompts: Any, n: int, **kwargs: Any) -> Any:
            ids = [5 + k % 100 for k in range(completion)]
            rows = len(prompts) * n
            return {
                "prompt_ids": prompts,
                "completion_ids": [ids] * rows,
                "logprobs": [[[-1.0]] * completion] * rows,
                "logprob_token_ids": [[[i] for i in ids]] * rows,
            }

    vllm_generation.is_vllm_available = lambda *args, **kwargs: True  # type: ignore[attr-defined]
    vllm_generation.VLLMGeneration._place_features = lambda self, features, prompt_ids: features  # type: ignore[attr-defined]
    vllm_generation.VLLMClient = Client  # type: ignore[attr-defined]
    vllm_generation.broadcast_object_list = lambda objects, from_process: objects  # type: ignore[attr-defined]
