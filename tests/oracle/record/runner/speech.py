# SPDX-License-Identifier: Apache-2.0
"""Models that hear waves: their batches, and what they read back from the device."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Callable
from unittest import mock

import torch

from .. import phantom
from ..case import Case
from .batches import Batch, Maker

MODELS = ("wav2vec2", "hubert", "wavlm", "wav2vec2-conformer", "data2vec-audio", "unispeech", "unispeech-sat", "sew")
RATE = 16000  # numbers of a wave in a second: Wav2Vec2FeatureExtractor.sampling_rate
SECONDS, LETTERS = 10, 15  # of a sample, and of its text in each second, where a case says neither


def speech_batch(make: Maker) -> Batch:
    case = make.case
    seconds = case.audio or SECONDS
    batch = {"input_values": make.floats(case.batch, RATE * seconds)}
    if case.padding:
        batch["attention_mask"] = make.attention_mask(RATE * seconds).to(torch.int32)
    if make.config["architectures"][0].endswith("ForCTC"):
        batch["labels"] = make.tokens(make.config.get("vocab_size", 32), case.target_seq or LETTERS * seconds)
    elif make.config["architectures"][0].endswith("ForSequenceClassification"):
        batch["labels"] = torch.zeros(case.batch, dtype=torch.long)
    return batch


def install(case: Case) -> None:
    """Every letter counts, spans of SpecAugment do not overlap, and as many are masked as can be."""
    from transformers.loss import loss_ctc

    if not phantom.is_here():
        return
    loss_ctc.nn.functional.ctc_loss = with_lengths(loss_ctc.nn.functional.ctc_loss)
    select = torch.Tensor.masked_select

    @functools.wraps(select)
    def masked_select(self: Any, mask: Any) -> Any:
        with phantom.counts(self.numel()):
            return select(self, mask)

    torch.Tensor.masked_select = masked_select
    no_layer_is_dropped()
    of_all_models()


def no_layer_is_dropped() -> None:
    """LayerDrop asks for a single number, and runs the layers that it is not below."""
    draw = torch.rand

    @functools.wraps(draw)
    def rand(*size: Any, **options: Any) -> Any:
        return torch.ones([]) if size == ([],) else draw(*size, **options)

    torch.rand = rand


def with_lengths(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any) -> Any:
        frames, samples = log_probs.shape[:2]
        for lengths, length in ((input_lengths, frames), (target_lengths, targets.numel() // samples)):
            ctypes.memmove(lengths.data_ptr(), (ctypes.c_int64 * samples)(*[length] * samples), 8 * samples)
        return loss(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return ctc_loss


def with_valid_labels(run: Callable[..., Any]) -> Callable[..., Any]:
    """Whether a label is behind the vocabulary is read from the device: none is."""
    truth = torch.Tensor.__bool__

    @functools.wraps(run)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.Tensor, "__bool__", lambda found: truth(found) and False):
            return run(self, *args, **kwargs)

    return forward


def of_all_models() -> None:
    import transformers

    for name in ("Wav2Vec2", "Hubert", "WavLM", "Wav2Vec2Conformer", "Data2VecAudio", "UniSpeech", "UniSpeechSat", "SEW"):
        model_class = getattr(transformers, f"{name}Model")
        vars(sys.modules[model_class.__module__])["_compute_mask_indices"] = mask_indices
        model_class._mask_hidden_states = counting(model_class._mask_hidden_states)
        with_head = getattr(transformers, f"{name}ForCTC")
        with_head.forward = with_valid_labels(with_head.forward)


def mask_indices(
    shape: tuple[int, int], mask_prob: float, mask_length: int, attention_mask: Any = None, min_masks: int = 0
) -> Any:
    """_compute_mask_indices(), rounded up and without chance."""
    import numpy as np

    if attention_mask is not None:
        attention_mask.detach().sum(-1).tolist()
    rows, length = shape
    spans = min(max(int(mask_prob * length / mask_length + (1 - 1e-9)), min_masks), length // mask_length)
    mask = np.zeros((rows, length), dtype=bool)
    mask[:, : spans * mask_length] = True
    return mask


def counting(run: Callable[..., Any]) -> Callable[..., Any]:
    put = torch.Tensor.__setitem__
    make = torch.tensor
    found = [0]

    def counted(data: Any, *args: Any, **kwargs: Any) -> Any:
        found[0] = int(data.sum())
        return make(data, *args, **kwargs)

    def put_rows(self: Any, index: Any, value: Any) -> None:
        with phantom.counts(found[0]):
            put(self, index, value)
        if isinstance(value, torch.Tensor) and self.grad_fn is not None:
            phantom.counts_in_backward(self, found[0])

    @functools.wraps(run)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.Tensor, "__setitem__", put_rows), mock.patch.object(torch, "tensor", counted):
            return run(self, *args, **kwargs)

    return forward
