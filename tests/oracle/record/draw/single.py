# SPDX-License-Identifier: Apache-2.0
"""Cases on one device: a base case of a model, one setting at a time changed, and random combinations."""

from __future__ import annotations

import random

from ..case import Given
from ..catalogue import Config
from .kinds import (
    IMAGE_TOKENS,
    has_experts,
    has_separate_projections,
    is_eager_only,
    kind_of,
    longest,
    projector_names,
    vision_names,
)

OPTIMIZERS = [
    "adamw_fused",
    "adamw_single",
    "adamw_amsgrad",
    "adam",
    "sgd",
    "sgd_momentum",
    "adafactor",
    "adafactor_hf",
    "adamw8bit",
    "paged_adamw8bit",
    "lion8bit",
    "rmsprop",
    "adagrad",
    "nadam",
    "adadelta",
    "none",
]
ALLOCATORS = [
    "expandable_segments:True",
    "garbage_collection_threshold:0.8",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
    "expandable_segments:True,garbage_collection_threshold:0.6",
]
LENGTHS = (96, 128, 250, 384, 512, 777, 1000, 1024, 1536, 2000, 2048, 3072, 4096)
TEXT = ("decoder", "encoder", "seq2seq", "multimodal", "recurrent")
ALL_LINEAR = {"r": 16, "alpha": 32, "dropout": 0.05, "target_modules": "all-linear"}
LIKE_PEOPLE = {
    "decoder": {"batch": 2, "seq": 1024},
    "recurrent": {"batch": 2, "seq": 64},
    "diffusion": {"batch": 4},
    "encoder": {"batch": 16, "seq": 128},
    "seq2seq": {"batch": 4, "seq": 512, "target_seq": 128},
    "contrastive": {"batch": 16},
    "vision": {"batch": 16},
    "convolution": {"batch": 32},
    "speech": {"batch": 4, "audio": 10},
}


def base_case(name: str, config: Config) -> Given:
    kind = kind_of(config)
    case: Given = {"model": name}
    if kind == "multimodal":
        case |= {"batch": 2, "seq": 1024 if IMAGE_TOKENS[config["model_type"]] < 1000 else 4096}
    else:
        case |= LIKE_PEOPLE[kind]
    if kind not in ("decoder", "recurrent", "multimodal"):
        case["dtype"] = "fp32"
    if "n_positions" in config:  # learned positions: room for decoding
        case["seq"] = config["n_positions"] // 2
    if is_eager_only(config):
        case |= {"attention": "eager", **({"seq": min(case.get("seq", 512), 512)} if kind != "speech" else {})}
    if has_experts(config) and config["num_hidden_layers"] > 60:
        case["overrides"] = {"num_hidden_layers": 5}
    return case


# ---- one setting at a time ----


def variations(config: Config, base: Given) -> list[Given]:
    """What can be changed on its own, most telling first."""
    kind, eager_only = kind_of(config), is_eager_only(config)
    found: list[Given] = [{}, {"dtype": "fp32", "autocast": "bf16"}, {"optimizer": "adamw_fused"}]
    found += [{"checkpointing": "full"}] if kind != "convolution" else []
    found += [
        {"mode": "infer", "dtype": "bf16"},
        {"batch": 3, "seq": base.get("seq", 0) - 24} if kind in TEXT else {"batch": 5},
    ]
    if kind not in ("diffusion", "convolution", "recurrent"):
        found += [{"lora": ALL_LINEAR, "dtype": "bf16"}]
        if not eager_only:
            found += [{"attention": "eager"}, *({"sdpa_backend": b} for b in ("efficient", "math", "default"))]
    if kind in ("decoder", "multimodal"):
        found += of_decoders(config, base)
    if kind == "multimodal":
        found += of_multimodal(config)
    if kind == "encoder":
        found += [{"padding": True}, {"seq": 512, "batch": 8}]
    if kind in ("vision", "convolution", "diffusion"):
        found += [{"batch": 64 if kind != "diffusion" else 1}, {"dtype": "bf16"}, {"mode": "infer", "batch": 1}]
    return [{**base, **change} for change in found + OF_ALL]


def of_decoders(config: Config, base: Given) -> list[Given]:
    longer = min(2048 if base["seq"] <= 1024 else 4608, config.get("n_positions", 1 << 30) - 24)
    return [
        {
            "quant": "nf4",
            "lora": {"r": 64, "alpha": 16, "dropout": 0.1, "target_modules": "all-linear"},
            "autocast": "bf16",
            "checkpointing": "full_reentrant",
            "optimizer": "paged_adamw8bit",
            "clip": 0.3,
        },
        {"padding": True},
        {"seq": longer},
        {"lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}}
        if has_separate_projections(config)
        else {"batch": 1},
        {"mode": "infer", "logits_to_keep": 0},
        {"mode": "infer", "cache": "static", "batch": 4},
        {"use_cache": False},
        {"hold_outputs": True},
        {"lora": {**ALL_LINEAR, "dropout": 0.0, "dora": True}},
        {"quant": "int8", "lora": {"r": 16, "target_modules": "all-linear"}, "autocast": "bf16"},
        {"checkpointing": "full_reentrant"},
    ]


def of_multimodal(config: Config) -> list[Given]:
    found: list[Given] = [
        {"freeze": vision_names(config)},
        {"train_only": projector_names(config)},
        {"freeze": vision_names(config), "checkpointing": "full", "batch": 4},
    ]
    if config["model_type"] in ("qwen2_vl", "qwen2_5_vl"):
        found += [{"image_size": [672, 1008], "seq": 2048}, {"images": 2, "image_size": [336, 280]}]
    if config["model_type"] == "llava_next":
        found += [{"image_size": [480, 640]}]
    if config["model_type"] in ("idefics3", "smolvlm", "internvl"):
        found += [{"images": 5, "seq": 2048}]
    return found


OF_ALL: list[Given] = [
    {"optimizer": "sgd_momentum"},
    {"clip": 1.0},
    {"grad_accum": 2},
    {"autocast": "fp16", "scaler": True, "dtype": "fp32", "clip": 1.0},
    {"allocator": "expandable_segments:True"},
    {"zero_grad": "zero"},
    {"optimizer": "adafactor"},
    {"optimizer": "adamw8bit"},
    {"labels": False},
    {"load": "warmup"},
    {"capability": 80},
    {"optimizer": "sgd"},
    {"optimizer": "adamw_single"},
    {"dropout": 0.1},
    {"optimizer": "rmsprop"},
    {"optimizer": "lion8bit"},
    {"optimizer": "adagrad"},
    {"dtype": "fp16"},
    {"steps": 5},
]


# ---- mixtures ----

PRECISIONS: list[Given] = [
    {"dtype": "bf16"},
    {"dtype": "bf16"},
    {"dtype": "fp32"},
    {"dtype": "fp32", "autocast": "bf16"},
    {"dtype": "fp32", "autocast": "fp16", "scaler": True},
    {"dtype": "fp16"},
]


def mixture(rng: random.Random, config: Config, base: Given) -> Given:
    """A random combination."""
    kind = kind_of(config)
    case: Given = {**base, **sizes(rng, config, base), **rng.choice(PRECISIONS)}
    if rng.random() < 0.2 and kind != "recurrent":
        return inference(rng, case)
    case["optimizer"] = rng.choice(["adamw", "adamw", "adamw"] + OPTIMIZERS)
    if kind != "convolution":
        case["checkpointing"] = rng.choice(
            ["none", "none", "full", "full_reentrant" if kind != "diffusion" else "full"]
        )
    if not is_eager_only(config) and kind not in ("convolution", "recurrent"):
        case["sdpa_backend"] = rng.choice(["flash", "flash", "efficient", "math", "default"])
        if rng.random() < 0.25 and kind != "diffusion":
            case["attention"] = "eager"
    if kind == "speech":
        case |= speech_training(rng, config, case)
    elif kind in ("decoder", "multimodal") and rng.random() < 0.35:
        case |= adapter(rng, config)
    elif kind == "multimodal" and rng.random() < 0.6:
        case |= rng.choice([{"freeze": vision_names(config)}, {"train_only": projector_names(config)}])
    for key, value, chance in (
        ("grad_accum", rng.choice([2, 4]), 0.25),
        ("zero_grad", "zero", 0.15),
        ("clip", 1.0, 0.4),
        ("padding", True, 0.2),
        ("hold_outputs", True, 0.15),
        ("allocator", rng.choice(ALLOCATORS), 0.3),
        ("load", "warmup", 0.15),
        ("capability", 80, 0.2),
        ("dropout", 0.1, 0.15),
        ("labels", False, 0.1),
    ):
        if rng.random() < chance and (key != "padding" or kind in (*TEXT[:4], "speech")):
            case[key] = value
    if case["dtype"] == "fp16" or case.get("quant"):
        case.pop("scaler", None)
    return case


def speech_training(rng: random.Random, config: Config, case: Given) -> Given:
    """What trains: most freeze the convolutions over the wave. WavLM's layers share a tensor that no reentrant
    checkpoint may run through."""
    part = config["model_type"].replace("-", "_")
    made: Given = rng.choice(
        [
            {},
            {"freeze": [f"{part}.feature_extractor"]},
            {"freeze": [f"{part}.feature_extractor"]},
            {"train_only": ["lm_head"]},
            {"lora": {"r": 8, "alpha": 16, "dropout": rng.choice([0.0, 0.05]), "target_modules": ["q_proj", "v_proj"]}},
        ]
    )
    if is_eager_only(config) and case["checkpointing"] == "full_reentrant":
        made["checkpointing"] = "full"
    return made


def sizes(rng: random.Random, config: Config, base: Given) -> Given:
    kind = kind_of(config)
    if kind == "speech":
        letters = {"target_seq": rng.choice([12, 40, 100])} if rng.random() < 0.5 else {}
        return {"batch": rng.choice([1, 2, 3, 6]), "audio": rng.choice([2, 4, 7, 12]), **letters}
    if kind not in ("decoder", "multimodal", "encoder", "seq2seq"):
        return {
            "batch": rng.choice({"diffusion": [1, 2, 3, 6], "recurrent": [1, 2, 3]}.get(kind, [1, 2, 5, 8, 24, 48]))
        }
    most = 768 if is_eager_only(config) else min(512 if kind == "encoder" else 4096, longest(config))
    least = IMAGE_TOKENS[config["model_type"]] + 1 if kind == "multimodal" else 64
    choices = [s for s in LENGTHS if least <= s <= most]
    return {"seq": rng.choice(choices) if choices else base["seq"], "batch": rng.choice([1, 2, 3, 4, 6, 8])}


def inference(rng: random.Random, case: Given) -> Given:
    plain = {k: v for k, v in case.items() if k not in ("scaler", "autocast")}
    return {
        **plain,
        "mode": "infer",
        "decode": rng.choice([1, 8, 12]),
        "cache": rng.choice(["dynamic", "dynamic", "static"]),
        "logits_to_keep": rng.choice([0, 1]),
        "batch": rng.choice([1, 4, 7]),
    }


def adapter(rng: random.Random, config: Config) -> Given:
    """LoRA, half of the time over a quantised model; peft wraps expert tensors, but neither quantised nor with
    dropout or DoRA."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if has_separate_projections(config) else "all-linear"
    experts = has_experts(config)
    case: Given = {
        "lora": {
            "r": rng.choice([4, 8, 32, 64, 128]),
            "alpha": 32,
            "dropout": 0.0 if experts else rng.choice([0.0, 0.05, 0.1]),
            "target_modules": rng.choice([targets, "all-linear"]),
            "dora": not experts and rng.random() < 0.15,
        }
    }
    if rng.random() < 0.5 and not experts:
        case |= {
            "quant": rng.choice(["nf4", "nf4", "int8"]),
            "dtype": "bf16",
            "autocast": "bf16",
            "kbit_prepare": rng.random() < 0.7,
        }
    return case
