# SPDX-License-Identifier: Apache-2.0
"""LLaMA-Factory 0.9: data/collator.py, MultiModalDataCollatorForSeq2Seq. A batch without images, of a model that sees some,
gets one of 64 x 64 pixels: its tokens follow the first text, where nobody attends to them, and all rows are as long."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ...case import Case
from ...catalogue import Model
from .. import batches, multimodal

SIDE, MULTIPLE = 64, 8  # pad_to_multiple_of, in train/sft/workflow.py and others
MARKERS = {  # tokens of an image in data/mm_plugin.py besides those of its features
    **dict.fromkeys(("llava", "llava_next", "paligemma"), 0),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), 2),
    **dict.fromkeys(("glm4v", "glm4v_moe", "internvl", "gemma4"), 2),
    "gemma3": 4,
}
OF_ONE_SIZE = ("llava", "paligemma", "internvl", "gemma3")  # to which a processor resizes every image


def is_added(case: Case, model: Model) -> bool:
    is_of_factory = case.trainer is not None and case.trainer.program == "llama_factory"
    return is_of_factory and not case.images and not case.video and model.type in MARKERS and model.type in multimodal.MAKERS


def batch(case: Case, model: Model, rows: int) -> dict[str, Any]:
    size = None if model.type in OF_ONE_SIZE else (SIDE, SIDE)
    of_image = dataclasses.replace(case, images=1, image_size=size, batch=1, padding=False)
    tokens = image_tokens(dataclasses.replace(of_image, seq=case.seq + 100000), model) + MARKERS[model.type]
    columns = -(-(case.seq + tokens) // MULTIPLE) * MULTIPLE
    made = of_case(dataclasses.replace(of_image, seq=columns), model)
    for key, value in made.items():
        if tuple(value.shape) == (1, columns):
            others = torch.full((rows - 1, columns), batches.TOKENS_FROM if key in ("input_ids", "labels") else 0)
            made[key] = torch.cat([value, others])
    made["attention_mask"] = torch.ones(rows, columns, dtype=torch.int64)
    made["attention_mask"][:, case.seq :] = 0
    return made


def of_case(case: Case, model: Model) -> dict[str, Any]:
    return batches.maker_of(model)(batches.Maker(case, model, device="cpu", is_raw=True))


def image_tokens(case: Case, model: Model) -> int:
    return int((of_case(case, model)["input_ids"] == multimodal.image_token(model.config)).sum())
