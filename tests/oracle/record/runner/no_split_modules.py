# SPDX-License-Identifier: Apache-2.0
"""Writes for each model type which classes of transformers checkpointing recomputes (GradientCheckpointingLayer), and
the `_no_split_modules` of its classes, which accelerate makes FSDP units of, where these are others:
`python -m record.runner.no_split_modules MODELS`, as `record defaults` starts it.

Parts of a configuration are types of their own: their classes are not in the lists of the whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Iterator

import torch
import transformers
from transformers import AutoModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from .config_defaults import all_types


def main() -> int:
    models = Path(sys.argv[1])
    found = {name: classes_of(name, models) for name in sorted(set(all_types(models / "architectures")))}
    print("{\n" + ",\n".join(f'"{name}": {json.dumps(classes)}' for name, classes in found.items() if classes) + "\n}")
    return 0


def classes_of(model_type: str, models: Path) -> dict[str, Any]:
    """`blocks`; `no_split_modules` where they are not the blocks, with the names of the modules that are of the class,
    and null for a class that the model has not; `mixtures`, the classes of experts with their router; `ties_bias` where the head that writes text ties its bias."""
    model = model_of(model_type, models)
    if not model:
        return {}
    own = [m for m in model.modules() if type(m).__module__ == type(model).__module__]
    blocks = sorted({type(m).__name__ for m in own if isinstance(m, GradientCheckpointingLayer)})
    kinds = [type(model), *heads_of(model_type)]
    listed = sorted({name for kind in kinds for name in kind._no_split_modules or ()})
    found: dict[str, Any] = {"blocks": blocks}
    if listed != blocks:
        found["no_split_modules"] = {name: "" if name in blocks else names_of(model, name) for name in listed}
    mixtures = sorted({type(m).__name__ for m in own if hasattr(m, "experts") and hasattr(m, "gate")})
    if mixtures:
        found["mixtures"] = mixtures
    if any(key.endswith("bias") for kind in kinds for key in getattr(kind, "_tied_weights_keys", None) or ()):
        found["ties_bias"] = True
    return found


def names_of(model: Any, kind: str) -> str | None:
    names = {path.rpartition(".")[2] for path, m in model.named_modules() if type(m).__name__ == kind}
    return "|".join(sorted(names)) or None


def model_of(model_type: str, models: Path) -> Any:
    """By the class's own sizes, or by those of a published model where they make none; None: there is none."""
    kind = CONFIG_MAPPING[model_type]
    if kind not in MODEL_MAPPING:  # a part that only its whole makes
        return None
    with torch.device("meta"):
        try:
            return AutoModel.from_config(kind())
        except (TypeError, ValueError):
            config = published_config(model_type, models)
            return config and AutoModel.from_config(kind(**config))


def published_config(model_type: str, models: Path) -> dict[str, Any] | None:
    for path in sorted((models / "catalogue").glob("*.json")):
        config = json.loads(path.read_text())["config"]
        if config.get("model_type") == model_type:
            return config
    return None


def heads_of(model_type: str) -> Iterator[Any]:
    for heads in (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    ):
        if model_type in heads:
            yield getattr(transformers, heads[model_type])


if __name__ == "__main__":
    sys.exit(main())
