# SPDX-License-Identifier: Apache-2.0
"""Inference: a prompt, then token by token, as a greedy loop does; a model without a cache just runs forward."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Case
from .batches import Batch
from .forward import autocast
from .meter import Meter

# Of the prompt alone.
PROMPT_KEYS = (
    "pixel_values",
    "image_grid_thw",
    "image_sizes",
    "mm_token_type_ids",
    "token_type_ids",
    "pixel_attention_mask",
    "past_key_values",
)
SPOKEN_PROMPT = 4  # tokens that say what Whisper is to do; a text model has one start token


def infer(case: Case, model: Any, batch: Batch, meter: Meter) -> None:
    for _ in range(case.steps):
        meter.begin_step()
        with torch.no_grad(), autocast(case):
            greedy(case, model, dict(batch), meter)
        meter.end_step()


def generates(case: Case, model: Any, batch: Batch) -> bool:
    return (
        (hasattr(model, "lm_head") or hasattr(model, "get_decoder"))
        and case.cache != "none"
        and bool({"input_ids", "input_features"} & set(batch))
        and hasattr(model, "generate")
    )


def greedy(case: Case, model: Any, batch: Batch, meter: Meter) -> None:
    if not generates(case, model, batch):
        x = batch.pop("x", None)
        out = model(x) if x is not None else model(**batch)
        meter.phase("prefill", "after_prefill")
        del out
        return
    batch, token_key = prompt_of(case, model, batch)
    out = model(**batch, use_cache=True)
    cache_name = "past_key_values" if getattr(out, "past_key_values", None) is not None else "cache_params"
    cache = getattr(out, cache_name, None)
    if cache is None:  # a wrapper that keeps its decoder's cache to itself
        meter.phase("prefill", "after_prefill")
        return
    mark_cache(meter, cache)
    logits = out.logits[:, -1, :].to(copy=True, dtype=torch.float32)
    token = logits.argmax(-1, keepdim=True)
    meter.phase("prefill", "after_prefill")
    for key in PROMPT_KEYS:
        batch.pop(key, None)
    for _ in range(case.decode):
        batch[token_key] = token
        out = model(**batch, **{cache_name: cache}, use_cache=True)
        logits = out.logits[:, -1, :].to(copy=True, dtype=torch.float32)
        token = logits.argmax(-1, keepdim=True)
        mark_cache(meter, cache)
    meter.phase("decode", "after_decode")


def prompt_of(case: Case, model: Any, batch: Batch) -> tuple[Batch, str]:
    """What the first call is given, and which argument a new token is."""
    if model.config.is_encoder_decoder:
        prompt = (case.target_seq or SPOKEN_PROMPT) if "input_features" in batch else 1
        given = {k: v for k, v in batch.items() if not k.startswith("decoder_")}
        if "pixel_values" in given:  # its features take places of the text before the encoder runs
            ids = given.pop("input_ids")
            prepare = model._maybe_prepare_encoder_kwargs_for_generation
            encoded = prepare(ids, given, "input_ids", model.generation_config)["encoder_outputs"]
        else:
            encoded = model.get_encoder()(**given)
        return {
            "encoder_outputs": encoded,
            "attention_mask": batch.get("attention_mask"),
            "decoder_input_ids": torch.zeros(case.batch, prompt, dtype=torch.long, device="cuda"),
        }, "decoder_input_ids"
    if case.logits_to_keep:
        batch["logits_to_keep"] = case.logits_to_keep
    if case.cache == "static":
        import transformers

        batch["past_key_values"] = transformers.StaticCache(
            config=model.config.get_text_config(decoder=True), max_cache_len=case.seq + case.decode
        )
    return batch, "input_ids"


def tensors_in(value: Any) -> list[torch.Tensor]:
    """A layer of a cache may keep its states in lists or dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for inner in values for tensor in tensors_in(inner)]


def mark_cache(meter: Meter, cache: Any) -> None:
    caches = [cache] + [
        getattr(cache, n) for n in ("self_attention_cache", "cross_attention_cache") if hasattr(cache, n)
    ]
    meter.mark(
        "kv_cache",
        [tensor for c in caches for layer in getattr(c, "layers", []) for tensor in tensors_in(vars(layer))],
    )
