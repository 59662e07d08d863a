# SPDX-License-Identifier: Apache-2.0
"""What a model is and cannot do, from its configuration alone."""

from __future__ import annotations

from ..catalogue import Config

MULTIMODAL = {
    "llava",
    "llava_next",
    "qwen2_vl",
    "qwen2_5_vl",
    "gemma3",
    "paligemma",
    "idefics3",
    "smolvlm",
    "internvl",
    "blip-2",
    "llama4",
    "voxtral",
}
VISION = {"vit", "dinov2", "swin", "deit", "beit"}
CONTRASTIVE = {"clip", "siglip"}
ENCODERS = {
    "bert",
    "roberta",
    "deberta-v2",
    "modernbert",
    "distilbert",
    "electra",
    "albert",
    "xlm-roberta",
    "xlm-roberta-xl",
    "mpnet",
    "ernie",
}
SEQ2SEQ = {"t5", "mt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "blenderbot", "plbart", "whisper"}
SPEECH = {"wav2vec2", "hubert", "wavlm", "data2vec-audio", "unispeech", "unispeech-sat"}
NO_ATTENTION = {"mamba", "mamba2", "falcon_mamba"}
EAGER_ONLY = {  # no SDPA in this version of the library
    "bloom",
    "codegen",
    "deberta",
    "deberta-v2",
    "gemma2",
    "gpt_neo",
    "gptj",
    "mamba",
    "mamba2",
    "mpt",
    "vaultgemma",
    "wavlm",
}
# Tokens of one default image (or tile), rounded up generously.
IMAGE_TOKENS = {
    "llava": 580,
    "llava_next": 2940,
    "qwen2_vl": 260,
    "qwen2_5_vl": 260,
    "gemma3": 260,
    "paligemma": 260,
    "idefics3": 180,
    "smolvlm": 180,
    "internvl": 260,
    "blip-2": 34,
    "llama4": 150,
    "voxtral": 380,
}
MERGED_PROJECTIONS = {"gpt2", "gpt_neox", "falcon", "bloom", "phi3", "deepseek_v2", "deepseek_v3"}
VISION_NAMES = {
    "qwen2_vl": ["visual"],
    "qwen2_5_vl": ["visual"],
    "idefics3": ["vision_model"],
    "smolvlm": ["vision_model"],
    "blip-2": ["vision_model"],
    "llama4": ["vision_model"],
    "voxtral": ["audio_tower"],
}
PROJECTOR_NAMES = {
    "qwen2_vl": ["visual.merger"],
    "qwen2_5_vl": ["visual.merger"],
    "idefics3": ["connector"],
    "smolvlm": ["connector"],
    "blip-2": ["language_projection", "qformer", "query_tokens"],
}


def kind_of(config: Config) -> str:
    name = config.get("model_type", "")
    for kind, names in (
        ("multimodal", MULTIMODAL),
        ("seq2seq", SEQ2SEQ),
        ("vision", VISION),
        ("contrastive", CONTRASTIVE),
        ("encoder", ENCODERS),
        ("recurrent", NO_ATTENTION),
        ("speech", SPEECH),
    ):
        if name in names:
            return kind
    if "_class_name" in config:
        return "diffusion"
    return "convolution" if "architecture" in config else "decoder"


def is_eager_only(config: Config) -> bool:
    return config.get("model_type") in EAGER_ONLY


def has_experts(config: Config) -> bool:
    return any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"))


def has_separate_projections(config: Config) -> bool:
    return config.get("model_type", "") not in MERGED_PROJECTIONS


def vision_names(config: Config) -> list[str]:
    return VISION_NAMES.get(config["model_type"], ["vision_tower"])


def projector_names(config: Config) -> list[str]:
    return PROJECTOR_NAMES.get(config["model_type"], ["multi_modal_projector"])


def longest(config: Config) -> int:
    """Positions that a text can have."""
    return int(config.get("max_position_embeddings") or config.get("n_positions") or 4096)
