# SPDX-License-Identifier: Apache-2.0
"""A model as the engine finds it: a folder with its config and, where a processor needs one, a tokenizer that knows the
special tokens.  Weights are dummies: no file is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ... import catalogue
from ...catalogue import Config
from ...serving_case import ServingCase

# model_type -> tokens that the processor looks up, and the config key (or number) with their id
SPECIAL: dict[str, dict[str, str | int]] = {
    "llava": {"<image>": "image_token_index"},
    "llava_next": {"<image>": "image_token_index"},
    "qwen2_vl": {
        "<|image_pad|>": "image_token_id",
        "<|video_pad|>": "video_token_id",
        "<|vision_start|>": "vision_start_token_id",
        "<|vision_end|>": "vision_end_token_id",
    },
    "gemma3": {
        "<image_soft_token>": "image_token_index",
        "<start_of_image>": "boi_token_index",
        "<end_of_image>": "eoi_token_index",
        "\n": 107,
        "\n\n": 108,
        "\n\n\n": 109,
        "\n\n\n\n": 110,
    },
    "paligemma": {"<image>": "image_token_index"},
    "internvl": {"<IMG_CONTEXT>": "image_token_id", "<img>": 151665, "</img>": 151666, "<video>": 151671},
    "idefics3": {
        "<image>": "image_token_id",
        "<fake_token_around_image>": 49189,
        "<global-img>": 49152,
        "<end_of_utterance>": 49279,
    },
    "blip-2": {"<image>": "image_token_index"},
    "whisper": {"<|startoftranscript|>": 50258, "<|endoftext|>": 50257},
}
QWEN_VL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
SPECIAL |= {kind: SPECIAL["qwen2_vl"] for kind in QWEN_VL}
SPECIAL["mistral3"] = {"[IMG]": "image_token_index", "[IMG_BREAK]": 12, "[IMG_END]": 13}
SPECIAL["smolvlm"] = SPECIAL["idefics3"]
TOKENIZERS = {kind: "Qwen2Tokenizer" for kind in QWEN_VL}
# What the published file says beside sizes, where transformers does not know it by the model_type.
QWEN3_VL = {"image_processor_type": "Qwen2VLImageProcessor", "video_processor_type": "Qwen3VLVideoProcessor"}
PROCESSORS = {kind: QWEN3_VL for kind in ("qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")}
EXTRA_TOKENS = {
    "gemma3": {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
    "internvl": {
        "context_image_token": "<IMG_CONTEXT>",
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "video_token": "<video>",
    },
}


def make(case: ServingCase, folders: list[Path], where: Path, name: str | None = None) -> Path:
    """The folder of the case's model, or of its draft."""
    name = name or case.model
    is_given = name == case.model and case.config is not None
    source = None if is_given else next((f / name for f in folders if (f / name / "config.json").exists()), None)
    model = catalogue.Model(dict(case.config or {})) if is_given else catalogue.find(name, folders)
    folder = where / name
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    if name == case.model:
        override(config, case.overrides)
    (folder / "config.json").write_text(json.dumps(config))
    if source:
        for extra in source.iterdir():
            if extra.name != "config.json":
                (folder / extra.name).write_bytes(extra.read_bytes())
    elif model.preprocessor:
        named = PROCESSORS.get(config.get("model_type", ""), {})
        (folder / "preprocessor_config.json").write_text(json.dumps(named | model.preprocessor))
    if config.get("model_type") == "mistral3":
        sizes = {
            "patch_size": config["vision_config"]["patch_size"],
            "spatial_merge_size": config.get("spatial_merge_size", 2),
        }
        (folder / "processor_config.json").write_text(json.dumps({"processor_class": "PixtralProcessor"} | sizes))
    if config.get("model_type") in SPECIAL:
        write_tokenizer(folder, config)
    return folder


def override(config: Config, overrides: dict[str, Any]) -> None:
    for key, value in overrides.items():
        at = config
        *path, last = key.split(".")
        for part in path:
            at = at.setdefault(part, {})
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value


def write_tokenizer(folder: Path, config: Config) -> None:
    """A byte-level tokenizer of the vocabulary's size, with the special tokens in their places."""
    if (folder / "tokenizer.json").exists():
        return
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    kind = config.get("model_type", "")
    text = config.get("text_config") or config
    size = text.get("vocab_size") or config.get("vocab_size") or 32000
    places = {token: place if isinstance(place, int) else config.get(place) for token, place in SPECIAL[kind].items()}
    wanted = {token: number for token, number in places.items() if number is not None}
    by_id = {number: token for token, number in wanted.items()}
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {
        by_id.get(i, letters[i] if i < len(letters) else f"token{i}"): i for i in range(max([size - 1, *by_id]) + 1)
    }
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(wanted))
    made.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": TOKENIZERS.get(kind, "PreTrainedTokenizerFast"),
        "eos_token": "token300" if "token300" in vocabulary else None,
        "pad_token": "token301" if "token301" in vocabulary else None,
        "model_max_length": 1 << 20,
    }
    if kind == "paligemma":
        settings["bos_token"] = "token302"
    if kind in EXTRA_TOKENS:
        settings["extra_special_tokens"] = EXTRA_TOKENS[kind]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
