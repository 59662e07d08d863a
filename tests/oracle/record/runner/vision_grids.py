# SPDX-License-Identifier: Apache-2.0
"""Grids of Qwen's images, out of whose numbers come lengths and positions.

A loop of one's own has them on the host, where they are read. A trainer moves them to the device with the rest of a
batch: kernels compute with them, and what is read from the device is answered as the same code finds it on the host.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any, Callable, Iterator
from unittest import mock

import torch

from .. import phantom
from ..case import Case
from ..catalogue import Model
from .multimodal import ON_THE_HOST

MODELS = {
    "qwen2_vl": "Qwen2VLModel",
    "qwen2_5_vl": "Qwen2_5_VLModel",
    "qwen3_vl": "Qwen3VLModel",
    "qwen3_vl_moe": "Qwen3VLMoeModel",
    "qwen3_5": "Qwen3_5Model",
    "qwen3_5_moe": "Qwen3_5MoeModel",
    "glm4v": "Glm4vModel",
    "glm46v": "Glm46VModel",
    "glm4v_moe": "Glm4vMoeModel",
}
NONE = -1  # of the answers that generate() is given: a grid has numbers
# What a function reads from the device besides lists: how many elements it makes, of a grid and what it returns.
COUNTS: dict[str, Callable[[Any, Any], int]] = {
    "get_vision_position_ids": lambda grid, made: 0,
    "get_vision_attention_seqlens": lambda grid, made: int(grid[:, 0].sum()),
    "get_vision_window_index": lambda grid, made: len(made[1]),
    "get_vision_interpolation_indices_and_weights": lambda grid, made: int(grid.prod(-1).sum()),
}


def install(case: Case, model: Model) -> None:
    module = importlib.import_module(f"transformers.models.{model.type}.modeling_{model.type}")
    tower = importlib.import_module("transformers.models.glm4v.modeling_glm4v") if model.type == "glm46v" else module
    model_class = getattr(module, MODELS[model.type])
    if case.trainer and not case.video:
        on_the_device(tower, model_class)
    else:
        on_the_host(tower, model_class)
    model_class.get_rope_index = with_numbers_in_lists(model_class.get_rope_index)
    for name in dir(module):
        if hasattr(getattr(module, name), "_deepstack_process"):
            process = getattr(module, name)._deepstack_process
            getattr(module, name)._deepstack_process = with_tokens_of_images(process)


def with_numbers_in_lists(index: Any) -> Any:
    """Once Tensor has had a __getitem__ of Python's, torch.tensor() takes tensors of one number in a list for sequences."""
    make = torch.tensor

    @functools.wraps(index)
    def known(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch, "tensor", lambda data, **options: make([0 for _ in data], **options)):
            return index(*args, **kwargs)

    return known


def with_tokens_of_images(process: Any) -> Any:
    """hidden_states[visual_pos_masks, :] selects as many as there are features, and so does its backward pass."""

    @functools.wraps(process)
    def known(self: Any, hidden_states: Any, visual_pos_masks: Any, visual_embeds: Any) -> Any:
        take, count = torch.Tensor.__getitem__, len(visual_embeds)

        def getitem(t: Any, key: Any) -> Any:
            selected = take(t, key)
            if selected.grad_fn is not None:
                phantom.counts_in_backward(selected, count)
            return selected

        with phantom.counts(count), mock.patch.object(torch.Tensor, "__getitem__", getitem):
            made = process(self, hidden_states, visual_pos_masks, visual_embeds)
        if made.grad_fn is not None:
            phantom.counts_in_backward(made, count)
        return made

    return known


# ---- on the host ----


def on_the_host(tower: Any, model_class: Any) -> None:
    """Position ids and what the table of positions is interpolated by go to the device."""
    for name in ("get_vision_position_ids", "get_vision_interpolation_indices_and_weights"):
        if hasattr(tower, name):
            setattr(tower, name, to_the_device(getattr(tower, name)))
    for name in ("Glm4vVisionEmbeddings", "Glm4vMoeVisionEmbeddings"):
        if hasattr(tower, name):
            getattr(tower, name).forward = with_numbers_on_the_device(getattr(tower, name).forward)
    model_class.forward = with_grids_of_the_host(model_class.forward)


def with_grids_of_the_host(forward: Any) -> Any:
    """And kinds of tokens, in place of those that a wrapper has moved to the device, whose numbers nobody knows; some of
    them where all rows are alike."""

    def of_host(name: str, given: Any) -> Any:
        truth = ON_THE_HOST.get(name, given) if given is not None else None
        return truth[: len(given)] if truth is not None and truth is not given else truth

    @functools.wraps(forward)
    def known(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **{k: of_host(k, v) for k, v in kwargs.items()})

    return known


def with_numbers_on_the_device(forward: Any) -> Any:
    @functools.wraps(forward)
    def moved(self: Any, embeddings: Any, *numbers: Any) -> Any:
        return forward(self, embeddings, *(x.to("cuda") for x in numbers))

    return moved


def to_the_device(function: Any) -> Any:
    @functools.wraps(function)
    def moved(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return tuple(x.to("cuda") for x in found) if isinstance(found, tuple) else found.to("cuda")

    return moved


# ---- on the device ----


def on_the_device(tower: Any, model_class: Any) -> None:
    for name, count in COUNTS.items():
        if hasattr(tower, name):
            setattr(tower, name, with_answers(getattr(tower, name), count))
    for name in dir(tower):
        if name.endswith("VisionAttention"):
            attention = getattr(tower, name)
            attention.forward = with_lengths(attention.forward)
    model_class.get_image_features = with_sizes(model_class.get_image_features)
    model_class.get_rope_index = with_kinds(model_class.get_rope_index)


@contextlib.contextmanager
def lists(answer: Callable[[Any], Any]) -> Iterator[None]:
    """What tolist() of a tensor on the device returns, once it is read."""
    read = torch.Tensor.tolist
    with mock.patch.object(torch.Tensor, "tolist", lambda t: (read(t), answer(t))[1] if t.is_cuda else read(t)):
        yield


def with_answers(function: Any, count: Callable[[Any, Any], int]) -> Any:
    """The same on the host says what is read; what was made there stays beside what is made on the device."""

    @functools.wraps(function)
    def known(grid_thw: Any, *args: Any, **kwargs: Any) -> Any:
        host = grid_thw.cpu()
        truth = function(host, *args, **{**kwargs, "kwargs": None})
        # a grid, or its merges: one number for all images
        with lists(lambda t: host.tolist() if t.dim() == 2 else [args[0]] * len(host)), phantom.counts(count(host, truth)):
            made = function(grid_thw, *args, **kwargs)
        for of_device, of_host in zip(*(x if isinstance(x, tuple) else (x,) for x in (made, truth))):
            if isinstance(of_device, torch.Tensor):
                of_device.on_the_host = of_host
        return made

    return known


def with_lengths(forward: Any) -> Any:
    @functools.wraps(forward)
    def known(self: Any, hidden_states: Any, cu_seqlens: Any, *args: Any, **kwargs: Any) -> Any:
        ends = cu_seqlens.on_the_host
        with lists(lambda t: (ends[1:] - ends[:-1]).tolist()):
            return forward(self, hidden_states, cu_seqlens, *args, **kwargs)

    return known


def with_sizes(features: Any) -> Any:
    """Tokens of each image."""

    @functools.wraps(features)
    def known(self: Any, pixel_values: Any, image_grid_thw: Any = None, **kwargs: Any) -> Any:
        sizes = (image_grid_thw.cpu().prod(-1) // self.visual.spatial_merge_size**2).tolist()
        with lists(lambda t: sizes):
            return features(self, pixel_values, image_grid_thw, **kwargs)

    return known


def with_kinds(index: Any) -> Any:
    """Kinds of the tokens of each sample that are no padding, by which positions are laid out."""

    @functools.wraps(index)
    def known(self: Any, input_ids: Any, mm_token_type_ids: Any, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        if attention_mask is None:
            with phantom.counts(NONE):
                return index(self, input_ids, mm_token_type_ids, *args, **kwargs)
        kinds = [k[m.bool()].tolist() for k, m in zip(mm_token_type_ids.cpu(), attention_mask.cpu())]
        take, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__
        current = [0]

        def masks(key: Any) -> bool:
            last = key[-1] if isinstance(key, tuple) else key
            return isinstance(last, torch.Tensor) and last.dtype == torch.bool and last.is_cuda

        def getitem(t: Any, key: Any) -> Any:
            with phantom.counts(len(kinds[current[0]])) if masks(key) else contextlib.nullcontext():
                return take(t, key)

        def setitem(t: Any, key: Any, value: Any) -> None:
            with phantom.counts(len(kinds[current[0]])) if masks(key) else contextlib.nullcontext():
                put(t, key, value)
            current[0] += masks(key)

        tensors = mock.patch.multiple(torch.Tensor, __getitem__=getitem, __setitem__=setitem)
        with lists(lambda t: kinds[current[0]]), tensors, phantom.counts(NONE):
            return index(self, input_ids, mm_token_type_ids, *args, attention_mask=attention_mask, **kwargs)

    return known
