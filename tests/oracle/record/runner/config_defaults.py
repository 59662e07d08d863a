# SPDX-License-Identifier: Apache-2.0
"""Writes what transformers' configuration classes have for keys that a config.json lacks, an object a model type:
`python -m record.runner.config_defaults MODELS`, as `record defaults` starts it.

A class's own default counts; what its __post_init__ makes of other keys is a rule, which the descriptions have.
`@padding_idx` is that of pad_token_id, of models whose embedding takes it for its padding_idx."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Iterator

import torch
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# Of tokens, first values, texts and the program around: nothing on a device depends on them.
MEANINGLESS = re.compile(r"_token_id|_token_index|initializer|_eps$|epsilon|problem_type|return_dict|model_type|use_cache")

Defaults = dict[str, Any]


def main() -> int:
    models = Path(sys.argv[1])
    is_read = words_of(models / "architectures")
    found = {name: defaults_of(name, is_read) for name in sorted(set(all_types(models / "architectures")))}
    lines = ",\n".join(f'"{name}": {json.dumps(defaults)}' for name, defaults in found.items() if defaults)
    print(f"{{\n{lines}\n}}")
    return 0


def words_of(folder: Path) -> set[str]:
    """What may be a key in the descriptions."""
    return {word for path in folder.rglob("*.json") for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]+", path.read_text())}


def all_types(folder: Path) -> Iterator[str]:
    """The model types that are described, and those of the parts of their configurations."""
    for path in folder.glob("*.json"):
        for name in json.loads(path.read_text()).get("model_type", {}):
            yield from with_parts(name)


def with_parts(model_type: str) -> Iterator[str]:
    if model_type in CONFIG_MAPPING:
        yield model_type
        for part in parts_of(model_type).values():
            yield from with_parts(part)


def parts_of(model_type: str) -> dict[str, str]:
    """Which part of a configuration is of which type, where the class says so."""
    parts = getattr(CONFIG_MAPPING[model_type], "sub_configs", {})
    found = {key: getattr(part, "model_type", "") for key, part in parts.items()}
    return {key: name for key, name in sorted(found.items()) if name in CONFIG_MAPPING and name != model_type}


def defaults_of(model_type: str, is_read: set[str]) -> Defaults:
    """Of the keys that the descriptions read; `@names` are other names of keys, `@parts` the types of parts."""
    kind = CONFIG_MAPPING[model_type]
    wanted = sorted(key for key in is_read if not MEANINGLESS.search(key) and is_plain(getattr(kind, key, None)))
    found: Defaults = {key: getattr(kind, key) for key in wanted}
    names = {name: key for name, key in sorted(kind.attribute_map.items()) if not MEANINGLESS.search(key)}
    if names:
        found["@names"] = names
    if parts_of(model_type):
        found["@parts"] = parts_of(model_type)
    if takes_padding_idx(model_type):
        found["@padding_idx"] = getattr(kind, "pad_token_id", None)
    return found


def takes_padding_idx(model_type: str) -> bool:
    """Whether a model with a pad_token_id behind its vocabulary fails."""
    config = CONFIG_MAPPING[model_type]()
    if not getattr(config, "vocab_size", None):
        return False
    config.pad_token_id = 2 * config.vocab_size
    for auto in (AutoModel, AutoModelForCausalLM):
        try:
            with torch.device("meta"):
                auto.from_config(config)
        except AssertionError as error:
            return "Padding_idx" in str(error)
        except (TypeError, ValueError):  # a class that this auto class lacks, or a configuration that makes no model
            continue
        return False
    return False


def is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(is_plain(item) for item in value)
    return isinstance(value, (bool, int, float, str))


if __name__ == "__main__":
    sys.exit(main())
