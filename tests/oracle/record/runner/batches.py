# SPDX-License-Identifier: Apache-2.0
"""One batch for a model, shaped as its processor would shape it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable

import torch

from ..case import Case
from ..catalogue import Config, Model
from ..schema import CaseError
from .models import DTYPES

Batch = dict[str, Any]
TOKENS_FROM, TOKENS_TO = 10, 30000  # ids that are drawn: no special ones

# Read on the host and never computed with on the device.
HOST_ARGUMENTS = {"image_grid_thw", "video_grid_thw", "image_sizes", "spatial_shapes"}


@dataclass(frozen=True)
class Maker:
    """What a batch is made for."""

    case: Case
    model: Model
    device: str = "cuda"  # of pixels and features; tokens are made on the host
    is_raw: bool = False  # as processors make them: nobody casts

    @property
    def config(self) -> Config:
        return self.model.config

    def tokens(self, vocabulary: int, length: int | None = None) -> Any:
        return torch.randint(TOKENS_FROM, min(vocabulary, TOKENS_TO), (self.case.batch, length or self.case.seq))

    def attention_mask(self, length: int | None = None) -> Any:
        """All ones but for the last quarter of every sample except the first."""
        length = length or self.case.seq
        mask = torch.ones(self.case.batch, length, dtype=torch.long)
        mask[1 if self.case.batch > 1 else 0 :, length - max(1, length // 4) :] = 0
        return mask

    def floats(self, *shape: int, cast: bool = True) -> Any:
        """Pixels or features: fp32 as processors make them; cast to the weights where the model would not cast
        itself."""
        dtype = DTYPES[self.case.dtype] if cast and not (self.is_raw or self.case.autocast) else torch.float32
        return torch.empty(shape, dtype=dtype, device=self.device)

    def image_side(self, config: Config) -> tuple[int, int]:
        """Height and width in pixels."""
        if self.case.image_size:
            return self.case.image_size[0], self.case.image_size[1]
        side = config.get("image_size", 224)
        return (side[0], side[1]) if isinstance(side, list) else (side, side)


def make(case: Case, model: Model) -> Batch:
    """The keyword arguments of the forward pass.  Token ids are made on the host, so that small ones are real."""
    torch.manual_seed(case.seed)
    batch = maker_of(model)(Maker(case, model))
    if case.mode == "infer" or not case.labels:
        batch = {k: v for k, v in batch.items() if k not in ("labels", "target", "return_loss", *SPANS)}
    return {k: v.to("cuda") if isinstance(v, torch.Tensor) and k not in HOST_ARGUMENTS else v for k, v in batch.items()}


def of_lengths(case: Case, micro: int) -> Case:
    """The case of a micro-batch: as long as its longest sample, with a mask where others are shorter."""
    first = micro * case.batch
    lengths = [case.lengths[(first + i) % len(case.lengths)] for i in range(case.batch)]
    multiple = case.pad_to_multiple_of or 1
    seq = -(-max(lengths) // multiple) * multiple
    return dataclasses.replace(case, seq=seq, padding=min(lengths) < seq)


def maker_of(model: Model) -> Callable[[Maker], Batch]:
    """By what the configuration is of: diffusers and timm, then the type and the class of transformers."""
    from . import diffusion, multimodal, speech

    config = model.config
    if "_class_name" in config:
        return diffusion.maker_of(config["_class_name"])
    if "architecture" in config:
        return timm_batch
    if model.type in multimodal.MAKERS:
        return multimodal.MAKERS[model.type]
    architecture = config["architectures"][0]
    if model.type == "whisper":
        return whisper_batch
    if model.type in speech.MODELS:
        return speech.speech_batch
    if model.type in CONTRASTIVE:
        return contrastive_batch
    if architecture.endswith("ForImageClassification") or model.type == "dinov3_vit":
        return image_batch
    if "vision_config" in config:
        raise CaseError(f"no batch is written for the images of {model.type}")
    import transformers

    return seq2seq_batch if transformers.AutoConfig.for_model(**config).is_encoder_decoder else text_batch


SPANS = ("start_positions", "end_positions")  # what is asked for in a text
CONTRASTIVE = ("clip", "siglip", "siglip2")


def text_batch(make: Maker) -> Batch:
    if "vision_config" in make.config and make.case.images:
        raise CaseError("no batch is written for images of this model: give images 0")
    ids = make.tokens(make.config.get("text_config", make.config)["vocab_size"])
    batch: Batch = {"input_ids": ids}
    if make.case.padding:
        batch["attention_mask"] = make.attention_mask()
    if make.case.packing:
        batch["position_ids"] = packed_positions(make.case)
    if make.config["architectures"][0].endswith("SequenceClassification"):
        batch["labels"] = torch.zeros(make.case.batch, dtype=torch.long)
    elif make.config["architectures"][0].endswith("QuestionAnswering"):
        for name in SPANS:
            batch[name] = torch.zeros(make.case.batch, dtype=torch.long)
    else:
        batch["labels"] = ids.clone()
    if getattr(make.case.parallel, "sequence_parallel_size", 1) > 1:  # as DeepSpeed's UlyssesSPDataLoaderAdapter
        batch["position_ids"] = torch.arange(make.case.seq).repeat(make.case.batch, 1)
        batch["shift_labels"] = batch.pop("labels")
    return batch


def packed_positions(case: Case) -> Any:
    """Two texts in each row: positions begin anew."""
    first = case.seq // 2
    row = torch.cat([torch.arange(first), torch.arange(case.seq - first)])
    return row.repeat(case.batch, 1)


def seq2seq_batch(make: Maker) -> Batch:
    case, vocabulary = make.case, make.config["vocab_size"]
    target = make.tokens(vocabulary, case.target_seq or case.seq)
    batch = {"input_ids": make.tokens(vocabulary), "labels": target}
    if case.padding:
        batch["attention_mask"] = make.attention_mask()
    if not case.labels and case.mode == "train":
        batch["decoder_input_ids"] = target.clone()
    return batch


def whisper_batch(make: Maker) -> Batch:
    case, config = make.case, make.config
    length = min(case.target_seq or 448, config["max_target_positions"])
    batch = {"input_features": make.floats(case.batch, config["num_mel_bins"], 2 * config["max_source_positions"])}
    name = "labels" if case.labels or case.mode == "infer" else "decoder_input_ids"
    return {**batch, name: make.tokens(config["vocab_size"], length)}


def image_batch(make: Maker) -> Batch:
    height, width = make.image_side(make.config)
    return {
        "pixel_values": make.floats(make.case.batch, 3, height, width),
        "labels": torch.zeros(make.case.batch, dtype=torch.long),
    }


def timm_batch(make: Maker) -> Batch:
    case = make.case
    height, width = case.image_size or make.config["pretrained_cfg"]["input_size"][1:]
    return {"x": make.floats(case.batch, 3, height, width), "target": torch.zeros(case.batch, dtype=torch.long)}


def contrastive_batch(make: Maker) -> Batch:
    text, vision = make.config["text_config"], make.config["vision_config"]
    length = min(make.case.seq, text.get("max_position_embeddings", 64))
    height, width = make.image_side(vision)
    return {
        "input_ids": make.tokens(text.get("vocab_size", 32000), length),
        "pixel_values": make.floats(make.case.batch, 3, height, width),
        "return_loss": True,
    }
