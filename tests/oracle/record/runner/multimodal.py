# SPDX-License-Identifier: Apache-2.0
"""Batches of models that see and read: one run of image tokens per image near the start of each text."""

from __future__ import annotations

import math
from typing import Callable

import torch

from ..case import Case
from ..catalogue import Config
from ..schema import CaseError
from .batches import Batch, Maker


def with_images(make: Maker, vocabulary: int, token: int, per_image: list[int]) -> Batch:
    """Token ids and labels; image positions carry no label.  per_image: tokens of each image of a sample."""
    case = make.case
    if sum(per_image) > case.seq:
        raise CaseError(f"{sum(per_image)} image tokens do not fit into seq {case.seq}")
    ids = make.tokens(min(vocabulary, token) if token > 20 else vocabulary)
    room = case.seq - sum(per_image)
    gap = 2 if room > 2 * len(per_image) else 0  # as the markers around an image: runs stay apart
    at = min(1, room)
    for count in per_image:
        ids[:, at : at + count] = token
        at += count + gap
    labels = ids.clone()
    labels[ids == token] = -100
    batch: Batch = {"input_ids": ids, "labels": labels}
    if case.padding:
        batch["attention_mask"] = make.attention_mask()
    return batch


def text_vocabulary(config: Config) -> int:
    return int(config["text_config"].get("vocab_size", 32000))


def image_token(config: Config) -> int:
    return int(config["image_token_index"] if "image_token_index" in config else config["image_token_id"])


def images_of(make: Maker, per_image: int) -> Batch:
    return with_images(make, text_vocabulary(make.config), image_token(make.config), [per_image] * make.case.images)


def llava_batch(make: Maker) -> Batch:
    case, config, vision = make.case, make.config, make.config["vision_config"]
    if vision.get("model_type") == "pixtral":
        return pixtral_batch(make)
    n = (vision["image_size"] // vision["patch_size"]) ** 2
    if config.get("vision_feature_select_strategy") == "full":
        n += 1
    batch = images_of(make, n)
    if case.images:
        batch["pixel_values"] = make.floats(case.batch * case.images, 3, *make.image_side(vision), cast=False)
    return batch


def mllama_batch(make: Maker) -> Batch:
    """One token for each image, which all its tiles are seen through: MllamaProcessor."""
    case, vision = make.case, make.config["vision_config"]
    tiles, side = vision["max_num_tiles"], vision["image_size"]
    batch = images_of(make, 1)
    if case.images:
        shape = (case.batch, case.images)
        batch["pixel_values"] = make.floats(*shape, tiles, 3, side, side, cast=False)
        batch["aspect_ratio_ids"] = torch.ones(*shape, dtype=torch.long)
        batch["aspect_ratio_mask"] = torch.ones(*shape, tiles, dtype=torch.long)
        batch["cross_attention_mask"] = torch.ones(case.batch, case.seq, case.images, tiles, dtype=torch.long)
    return batch


def pixtral_batch(make: Maker) -> Batch:
    """Images of whole patches, of which the model merges some; their sizes stay on the host."""
    case = make.case
    height, width, factor = pixtral_size(case, make.config, make.model.preprocessor)
    batch = images_of(make, (height // factor) * (width // factor))
    if case.images:
        count = case.batch * case.images
        batch["pixel_values"] = make.floats(count, 3, height, width, cast=False)
        sizes = [[height, width]] * count  # which wrappers leave on the host
        batch["image_sizes"] = ON_THE_HOST["image_sizes"] = torch.tensor(sizes) if case.trainer else sizes
    return batch


def pixtral_size(case: Case, config: Config, preprocessor: Config | None) -> tuple[int, int, int]:
    """Height, width, and the side of a token: get_resize_output_image_size()."""
    vision = config["vision_config"]
    factor = vision.get("patch_size", 14) * config.get("spatial_merge_size", 1)
    longest = (preprocessor or {}).get("size", {}).get("longest_edge", vision.get("image_size", 1540))
    sides = case.image_size or (448, 448)
    ratio = max(1, *(side / longest for side in sides))
    height, width = (-(-math.floor(side / ratio) // factor) * factor for side in sides)
    return height, width, factor


def llava_next_batch(make: Maker) -> Batch:
    case, config, vision = make.case, make.config, make.config["vision_config"]
    side, grid = vision["image_size"], vision["image_size"] // vision["patch_size"]
    height, width = case.image_size or (672, 672)
    best_h, best_w = best_resolution(height, width, config["image_grid_pinpoints"])
    tiles = 1 + (best_h // side) * (best_w // side)
    rows, columns = unpadded(height, width, best_h // side * grid, best_w // side * grid)
    batch = images_of(make, grid * grid + rows * columns + rows)
    if case.images:
        count = case.batch * case.images
        batch["pixel_values"] = make.floats(count, tiles, 3, side, side, cast=False)
        batch["image_sizes"] = torch.tensor([[height, width]] * count)
    return batch


def best_resolution(height: int, width: int, possible: list[list[int]]) -> tuple[int, int]:
    """The tile grid that keeps most of the image and wastes least: select_best_resolution()."""

    def score(size: list[int]) -> tuple[int, int]:
        h, w = size
        scale = min(w / width, h / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, -(w * h - kept)

    h, w = max(possible, key=score)
    return h, w


def unpadded(height: int, width: int, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of features left when the padding that kept the aspect ratio is cut away: unpad_image()."""
    if width / height > columns / rows:
        cut = (rows - int(round(height * (columns / width), 7))) // 2
        return rows - 2 * cut, columns
    cut = (columns - int(round(width * (rows / height), 7))) // 2
    return rows, columns - 2 * cut


def lfm2_vl_batch(make: Maker) -> Batch:
    """Patches of the parts of each image, padded to those of the largest part."""
    case, shapes = make.case, lfm2_vl_shapes(make.case, make.model.preprocessor or make.config)
    factor, side = make.config.get("downsample_factor", 2), make.config.get("encoder_patch_size", 16)
    batch = images_of(make, sum(rows * columns for rows, columns in shapes) // factor**2)
    if case.images:
        count = case.batch * case.images * len(shapes)
        batch["pixel_values"] = make.floats(count, LFM2_PATCHES, 3 * side**2, cast=False)
        batch["pixel_attention_mask"] = torch.ones(count, LFM2_PATCHES, dtype=torch.int32)
        all_shapes = torch.tensor(shapes * (case.batch * case.images))
        batch["spatial_shapes"] = ON_THE_HOST["spatial_shapes"] = all_shapes
        if case.parallel and not case.trainer:
            batch["spatial_shapes"] = shapes  # in its place: DDP and FSDP would move it to the device
    return batch


LFM2_PATCHES = 1024  # of the largest part of an image


def lfm2_vl_shapes(case: Case, given: Config) -> list[list[int]]:
    """Rows and columns of patches of each part: Lfm2VlImageProcessor.resize_and_split()."""
    unit, side, tile = 32, 16, given.get("tile_size", 512)
    least, most = given.get("min_image_tokens", 64) * unit**2, given.get("max_image_tokens", 256) * unit**2
    height, width = case.image_size or (512, 512)
    area = math.prod(max(side, round(x / unit) * unit) for x in (height, width))
    whole = [x // side for x in smart_resize(height, width, unit, least, most)]
    if area <= most * given.get("max_pixels_tolerance", 2.0):
        return [whole]
    low, high = given.get("min_tiles", 2), given.get("max_tiles", 10)
    grids = [(w, n // w) for n in range(low, high + 1) for w in range(1, n + 1) if n % w == 0]
    best, nearest = (1, 1), math.inf
    for grid in grids:
        apart = abs(width / height - grid[0] / grid[1])
        if apart < nearest or (apart == nearest and width * height > 0.5 * tile**2 * math.prod(grid)):
            best = grid
        nearest = min(nearest, apart)
    return [[tile // side] * 2] * math.prod(best) + ([whole] if given.get("use_thumbnail", True) else [])


def llava_onevision_batch(make: Maker) -> Batch:
    """One image of a sample is cut into tiles, and its features scaled down to those of most tiles; of several none."""
    case, config, vision = make.case, make.config, make.config["vision_config"]
    side, grid = vision["image_size"], vision["image_size"] // vision["patch_size"]
    height, width = case.image_size or (672, 672)
    best_h, best_w = best_resolution(height, width, config["image_grid_pinpoints"])
    rows, columns = unpadded(height, width, best_h // side * grid, best_w // side * grid)
    shrink = math.sqrt(rows * columns / (int(config.get("vision_aspect_ratio", "anyres_max_9")[11:]) * grid**2))
    if shrink > 1.1:
        rows, columns = int(rows // shrink), int(columns // shrink)
    is_one = case.images == 1
    batch = images_of(make, grid * grid + (rows * (columns + 1) if is_one else 1))
    if case.images:
        count, tiles = case.batch * case.images, 1 + (best_h // side) * (best_w // side) if is_one else 1
        batch["pixel_values"] = make.floats(count, tiles, 3, side, side, cast=False)
        batch["image_sizes"] = [[height, width]] * count
        batch["batch_num_images"] = [case.images] * case.batch
    return batch


ON_THE_HOST: dict[str, Any] = {}  # grids and kinds of tokens, as they were made
QWEN_LIMITS = {"min_pixels": 3136, "max_pixels": 12845056}  # of preprocessors that name none


def qwen_limits(preprocessor: Config) -> dict[str, int]:
    size = preprocessor.get("size", {})
    edges = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
    return {k: preprocessor.get(k, size.get(edge, QWEN_LIMITS[k])) for k, edge in edges.items()}


def qwen_vl_batch(make: Maker) -> Batch:
    case, vision = make.case, make.config["vision_config"]
    patch, merge = vision.get("patch_size", 14), vision.get("spatial_merge_size", 2)
    limits = qwen_limits(make.model.preprocessor)
    height, width = case.image_size or (448, 448)
    height, width = smart_resize(height, width, patch * merge, limits["min_pixels"], limits["max_pixels"])
    grid = [1, height // patch, width // patch]
    batch = images_of(make, grid[1] * grid[2] // merge**2)
    if case.images:
        show(make, batch, [grid] * case.images, "pixel_values", "image_grid_thw", (image_token(make.config), 1))
    return with_positions(make, batch)


def qwen3_vl_batch(make: Maker) -> Batch:
    """The frames of a video are shown two by two, with their time between them."""
    case, config, vision = make.case, make.config, make.config["vision_config"]
    if case.video is None:
        return qwen_vl_batch(make)
    patch, merge, temporal = vision.get("patch_size", 16), vision.get("spatial_merge_size", 2), 2
    frames, height, width = map(int, case.video.split("x"))
    height, width = smart_resize_video(frames, temporal, height, width, patch * merge)
    slices, rows, columns = -(-frames // temporal), height // patch, width // patch
    token = int(config["video_token_id"])
    batch = with_images(make, text_vocabulary(config), token, [rows * columns // merge**2] * slices)
    show(make, batch, [[slices, rows, columns]], "pixel_values_videos", "video_grid_thw", (token, 2))
    return with_positions(make, batch)


def glm4v_batch(make: Maker) -> Batch:
    """Frames two by two with their time between them, whose tokens are those of an image; an image is two frames."""
    case, config, vision = make.case, make.config, make.config["vision_config"]
    patch, merge, temporal = vision.get("patch_size", 14), vision.get("spatial_merge_size", 2), 2
    frames, height, width = map(int, case.video.split("x")) if case.video else (temporal, *(case.image_size or (448, 448)))
    limits = (make.model.preprocessor or {}).get("size", {})
    least, most = limits.get("shortest_edge", 12544), limits.get("longest_edge", 11760000)
    grow = max(1, patch * merge / height, patch * merge / width)
    sides = int(height * grow), int(width * grow)
    height, width = smart_resize_video(frames, temporal, *sides, patch * merge, least, most)
    rows, columns, slices = height // patch, width // patch, -(-frames // temporal)
    seen = slices if case.video else case.images
    token = image_token(config)
    batch = with_images(make, text_vocabulary(config), token, [rows * columns // merge**2] * seen)
    if case.video:
        show(make, batch, [[slices, rows, columns]], "pixel_values_videos", "video_grid_thw", (token, 2))
    elif case.images:
        show(make, batch, [[1, rows, columns]] * case.images, "pixel_values", "image_grid_thw", (token, 1))
    return with_positions(make, batch)


def show(make: Maker, batch: Batch, grids: list[list[int]], values: str, grid_thw: str, marks: tuple[int, int]) -> None:
    """The patches of what each sample shows; marks: its token, and what mm_token_type_ids has there."""
    token, kind = marks
    vision = make.config["vision_config"]
    numbers = 3 * vision.get("temporal_patch_size", 2) * vision.get("patch_size", 14) ** 2
    patches = make.case.batch * sum(math.prod(grid) for grid in grids)
    batch[values] = make.floats(patches, numbers, cast=False)
    batch[grid_thw] = ON_THE_HOST[grid_thw] = torch.tensor(grids * make.case.batch)
    if make.case.parallel and not make.case.trainer:
        batch[grid_thw] = grids  # in its place: DDP and FSDP would move it to the device
    of_numbers = torch.long if make.case.trainer else torch.int  # lists of them, where a processor makes tensors of them
    kinds = (batch["input_ids"] == token).to(of_numbers) * kind
    batch["mm_token_type_ids"] = ON_THE_HOST["mm_token_type_ids"] = kinds


def with_positions(make: Maker, batch: Batch) -> Batch:
    case = make.case
    if case.padding and not case.trainer:  # which tokens are padding is only known on the device: ids are given
        batch["position_ids"] = torch.arange(case.seq).expand(3, case.batch, -1).contiguous()
    return batch


def smart_resize(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Both sides to multiples of factor, the area to between least and most pixels: smart_resize()."""
    h, w = (max(factor, round(side / factor) * factor) for side in (height, width))
    if h * w > most:
        shrink = math.sqrt(height * width / most)
        h, w = (max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))
    elif h * w < least:
        grow = math.sqrt(least / (height * width))
        h, w = (math.ceil(side * grow / factor) * factor for side in (height, width))
    return h, w


def smart_resize_video(
    frames: int, temporal: int, height: int, width: int, factor: int, least: int = 131072, most: int = 786432
) -> tuple[int, int]:
    """The same for all frames together: models/qwen3_vl/video_processing_qwen3_vl.py, with the processor's limits."""
    h, w = (round(side / factor) * factor for side in (height, width))
    t = round(frames / temporal) * temporal
    if t * h * w > most:
        shrink = math.sqrt(frames * height * width / most)
        h, w = (max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))
    elif t * h * w < least:
        grow = math.sqrt(least / (frames * height * width))
        h, w = (math.ceil(side * grow / factor) * factor for side in (height, width))
    return h, w


def gemma3_batch(make: Maker) -> Batch:
    case, config = make.case, make.config
    batch = images_of(make, config["mm_tokens_per_image"])
    batch["token_type_ids"] = (batch["input_ids"] == image_token(config)).long()
    if case.images:
        side = config["vision_config"]["image_size"]
        batch["pixel_values"] = make.floats(case.batch * case.images, 3, side, side, cast=False)
    return batch


def gemma4_batch(make: Maker) -> Batch:
    """An image is resized to as many pools of patches as fit the processor's soft tokens, and padded to all of them."""
    case, config, vision = make.case, make.config, make.config["vision_config"]
    tokens, (rows, columns) = gemma4_pools(case, config, make.model.preprocessor)
    batch = images_of(make, rows * columns)
    if case.images:
        count, side = case.batch * case.images, vision.get("patch_size", 16)
        kernel = vision.get("pooling_kernel_size", 3)
        patches = tokens * kernel**2
        if config["model_type"] == "gemma4_unified":  # patches are pooled before the model
            patches, side = tokens, side * kernel
        batch["pixel_values"] = make.floats(count, patches, 3 * side**2, cast=False)
        batch["image_position_ids"] = torch.zeros(count, patches, 2, dtype=torch.long)
        batch["mm_token_type_ids"] = (batch["input_ids"] == image_token(config)).long()
    return batch


def gemma4_pools(case: Case, config: Config, preprocessor: Config | None) -> tuple[int, tuple[int, int]]:
    """The most soft tokens of an image, and the rows and columns of those that it has."""
    vision = config["vision_config"]
    tokens = int((preprocessor or {}).get("max_soft_tokens", 280))
    kernel, patch = vision.get("pooling_kernel_size", 3), vision.get("patch_size", 16)
    height, width = case.image_size or (768, 768)
    grow = math.sqrt(tokens * kernel**2 * patch**2 / (height * width))
    return tokens, (int(grow * height // (kernel * patch)), int(grow * width // (kernel * patch)))


def paligemma_batch(make: Maker) -> Batch:
    case, vision = make.case, make.config["vision_config"]
    n = (vision["image_size"] // vision["patch_size"]) ** 2
    batch = images_of(make, n)
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    types = torch.ones_like(batch["input_ids"])
    types[:, : n * case.images + 1] = 0
    batch["token_type_ids"] = types
    if case.images:
        side = vision["image_size"]
        batch["pixel_values"] = make.floats(case.batch * case.images, 3, side, side, cast=False)
    return batch


def idefics3_batch(make: Maker) -> Batch:
    """images counts tiles: a split image has rows * columns tiles and one of the whole."""
    case, vision = make.case, make.config["vision_config"]
    side = vision["image_size"]
    batch = images_of(make, (side // vision["patch_size"]) ** 2 // make.config["scale_factor"] ** 2)
    if case.images:
        batch["pixel_values"] = make.floats(case.batch, case.images, 3, side, side, cast=False)
        batch["pixel_attention_mask"] = torch.ones(case.batch, case.images, side, side, dtype=torch.long)
    return batch


def internvl_batch(make: Maker) -> Batch:
    """images counts tiles."""
    case, vision = make.case, make.config["vision_config"]
    side = vision["image_size"][0]
    batch = images_of(make, int((side // vision["patch_size"][0]) ** 2 * make.config["downsample_ratio"] ** 2))
    if case.images:
        batch["pixel_values"] = make.floats(case.batch * case.images, 3, side, side)
    return batch


def aya_vision_batch(make: Maker) -> Batch:
    """images counts tiles."""
    case, config, vision = make.case, make.config, make.config["vision_config"]
    side, factor = vision["image_size"], config.get("downsample_factor", 2)
    batch = images_of(make, (side // vision["patch_size"] // factor) ** 2)
    if case.images:
        batch["pixel_values"] = make.floats(case.batch * case.images, 3, side, side, cast=False)
    return batch


def llama4_batch(make: Maker) -> Batch:
    """Tiles of a canvas that fits the image, and one of the whole where there are several; a processor makes them bf16."""
    from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit
    from transformers.image_utils import SizeDict

    case, vision = make.case, make.config["vision_config"]
    side = vision["image_size"]
    most = (make.model.preprocessor or {}).get("max_patches", 16)
    possible = torch.tensor(find_supported_resolutions(most, SizeDict(height=side, width=side)))
    canvas = math.prod(x // side for x in get_best_fit(case.image_size or (side, side), possible).tolist())
    tiles = canvas + 1 if canvas > 1 else 1
    n = (side // vision["patch_size"]) ** 2 * vision["pixel_shuffle_ratio"] ** 2
    batch = with_images(make, text_vocabulary(make.config), image_token(make.config), [int(n)] * (tiles * case.images))
    if case.images:
        batch["pixel_values"] = make.floats(case.batch * case.images * tiles, 3, side, side)
        if case.trainer:
            batch["pixel_values"] = batch["pixel_values"].to(torch.bfloat16)
    return batch


def florence2_batch(make: Maker) -> Batch:
    """An image of each text, as rows and columns of 32 pixels and one token of all; texts of their own are predicted."""
    case, config = make.case, make.config
    height, width = case.image_size or (768, 768)
    tokens = [1 + height // 32 * (width // 32)] * case.images
    vocabulary = text_vocabulary(config)
    batch = with_images(make, vocabulary, image_token(config), tokens)
    batch["labels"] = make.tokens(vocabulary, case.target_seq or case.seq)
    if not case.labels and case.mode == "train":
        batch["decoder_input_ids"] = batch["labels"].clone()
    if case.images:
        batch["pixel_values"] = make.floats(case.batch, 3, height, width, cast=False)
    return batch


def blip2_batch(make: Maker) -> Batch:
    side = make.config["vision_config"]["image_size"]
    config = make.config
    batch = with_images(make, text_vocabulary(config), image_token(config), [config["num_query_tokens"]])
    batch["pixel_values"] = make.floats(make.case.batch, 3, side, side)
    return batch


def voxtral_batch(make: Maker) -> Batch:
    """Windows of 30 s, the last one padded: VoxtralProcessor."""
    case, config, audio = make.case, make.config, make.config["audio_config"]
    frames = audio.get("max_source_positions", 1500)
    windows = -(-(case.audio or 0) * 50 // frames)
    n = frames * audio.get("hidden_size", 1280) // audio.get("intermediate_size", 5120)
    batch = with_images(make, text_vocabulary(config), config["audio_token_id"], [n * windows] * bool(windows))
    if windows:
        batch["input_features"] = make.floats(case.batch * windows, audio.get("num_mel_bins", 128), 2 * frames)
    return batch


MAKERS: dict[str, Callable[[Maker], Batch]] = {
    "llava": llava_batch,
    "mllama": mllama_batch,
    "llava_next": llava_next_batch,
    "llava_onevision": llava_onevision_batch,
    "lfm2_vl": lfm2_vl_batch,
    "mistral3": pixtral_batch,
    "qwen2_vl": qwen_vl_batch,
    "qwen2_5_vl": qwen_vl_batch,
    "qwen3_vl": qwen3_vl_batch,
    "qwen3_vl_moe": qwen3_vl_batch,
    "qwen3_5": qwen3_vl_batch,
    "qwen3_5_moe": qwen3_vl_batch,
    "glm4v": glm4v_batch,
    "glm46v": glm4v_batch,
    "glm4v_moe": glm4v_batch,
    "gemma3": gemma3_batch,
    "gemma4": gemma4_batch,
    "gemma4_unified": gemma4_batch,
    "paligemma": paligemma_batch,
    "idefics3": idefics3_batch,
    "smolvlm": idefics3_batch,
    "internvl": internvl_batch,
    "blip-2": blip2_batch,
    "florence2": florence2_batch,
    "llama4": llama4_batch,
    "voxtral": voxtral_batch,
    "aya_vision": aya_vision_batch,
    "cohere2_vision": aya_vision_batch,
}
