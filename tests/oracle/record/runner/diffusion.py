# SPDX-License-Identifier: Apache-2.0
"""One batch for a denoiser of diffusers, shaped as its pipeline would shape it."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .batches import Batch, Maker

LATENT_SCALE = 8  # pixels of a side of one latent: AutoencoderKL
PACKED = 2  # latents of a side of one token: _pack_latents() of FluxPipeline and QwenImagePipeline
DEFAULT_SIDE = 1024  # pixels: default_sample_size of these
CLIP_TOKENS = 77
FLUX_PROMPT_TOKENS = 512  # FluxPipeline.__call__'s max_sequence_length, and Flux2Pipeline's
SD3_PROMPT_TOKENS = CLIP_TOKENS + 256  # and T5's: StableDiffusion3Pipeline.__call__'s max_sequence_length
QWEN_PROMPT_TOKENS = 512  # QwenImagePipeline.__call__'s max_sequence_length


def maker_of(name: str) -> Callable[[Maker], Batch]:
    """By the class of the model."""
    return next(make for prefix, make in MAKERS.items() if name.startswith(prefix))


def packed_sides(make: Maker) -> tuple[int, int]:
    """Tokens of a column and of a row."""
    height, width = make.case.image_size or (DEFAULT_SIDE, DEFAULT_SIDE)
    return height // LATENT_SCALE // PACKED, width // LATENT_SCALE // PACKED


def latent_sides(make: Maker) -> tuple[int, int]:
    side = make.config["sample_size"]
    height, width = make.case.image_size or (side * LATENT_SCALE, side * LATENT_SCALE)
    return height // LATENT_SCALE, width // LATENT_SCALE


def latent_like(make: Maker) -> Any:
    """The target, which is on the device in every case."""
    height, width = latent_sides(make)
    shape = (make.case.batch, make.config["out_channels"], height, width)
    return torch.empty(shape, dtype=make.floats(0).dtype, device="cuda")


def packed_inputs(make: Maker, prompt_tokens: int) -> Batch:
    case, config = make.case, make.config
    height, width = packed_sides(make)
    return {
        "hidden_states": make.floats(case.batch, height * width, config["in_channels"]),
        "encoder_hidden_states": make.floats(case.batch, prompt_tokens, config["joint_attention_dim"]),
    }


def with_target(make: Maker, batch: Batch) -> Batch:
    """And with the guidance, for a model that embeds it."""
    batch = {**batch, "target": torch.empty_like(batch["hidden_states"])}
    return {**batch, "guidance": make.floats(make.case.batch)} if make.config["guidance_embeds"] else batch


def flux_batch(make: Maker) -> Batch:
    height, width = packed_sides(make)
    batch = {
        **packed_inputs(make, FLUX_PROMPT_TOKENS),
        "pooled_projections": make.floats(make.case.batch, make.config["pooled_projection_dim"]),
        "timestep": make.floats(make.case.batch),
        "img_ids": make.floats(height * width, 3),
        "txt_ids": make.floats(FLUX_PROMPT_TOKENS, 3),
    }
    return with_target(make, batch)


def flux2_batch(make: Maker) -> Batch:
    """Positions are integers of four axes, for each sample: Flux2Pipeline._prepare_latent_ids()."""
    height, width = packed_sides(make)
    axes = len(make.config["axes_dims_rope"])
    batch = {
        **packed_inputs(make, FLUX_PROMPT_TOKENS),
        "timestep": make.floats(make.case.batch),
        "img_ids": torch.zeros(make.case.batch, height * width, axes, dtype=torch.long),
        "txt_ids": torch.zeros(make.case.batch, FLUX_PROMPT_TOKENS, axes, dtype=torch.long),
    }
    return with_target(make, batch)


def qwen_image_batch(make: Maker) -> Batch:
    """With a mask of the prompt if samples are padded: the pipeline leaves out one that is all true."""
    height, width = packed_sides(make)
    batch = {
        **packed_inputs(make, QWEN_PROMPT_TOKENS),
        "timestep": make.floats(make.case.batch),
        "img_shapes": [[(1, height, width)]] * make.case.batch,
    }
    if make.case.padding:
        return with_target(make, {**batch, "encoder_hidden_states_mask": make.attention_mask(QWEN_PROMPT_TOKENS)})
    return with_target(make, batch)


def unet_batch(make: Maker) -> Batch:
    case, config = make.case, make.config
    height, width = latent_sides(make)
    latent = make.floats(case.batch, config["in_channels"], height, width)
    return {
        "sample": latent,
        "timestep": torch.zeros(case.batch, dtype=torch.long),
        "target": torch.empty_like(latent),
        "encoder_hidden_states": make.floats(case.batch, CLIP_TOKENS, config["cross_attention_dim"]),
    }


def sd3_batch(make: Maker) -> Batch:
    case, config = make.case, make.config
    height, width = latent_sides(make)
    return {
        "hidden_states": make.floats(case.batch, config["in_channels"], height, width),
        "encoder_hidden_states": make.floats(case.batch, SD3_PROMPT_TOKENS, config["joint_attention_dim"]),
        "pooled_projections": make.floats(case.batch, config["pooled_projection_dim"]),
        "timestep": make.floats(case.batch),
        "target": latent_like(make),
    }


def dit_batch(make: Maker) -> Batch:
    case, config = make.case, make.config
    height, width = latent_sides(make)
    return {
        "hidden_states": make.floats(case.batch, config["in_channels"], height, width),
        "timestep": torch.zeros(case.batch, dtype=torch.long),
        "class_labels": torch.zeros(case.batch, dtype=torch.long),
        "target": latent_like(make),
    }


MAKERS = {
    "Flux2": flux2_batch,
    "Flux": flux_batch,
    "QwenImage": qwen_image_batch,
    "UNet": unet_batch,
    "SD3": sd3_batch,
    "DiT": dit_batch,
}
