# SPDX-License-Identifier: Apache-2.0
"""Published configurations: the product's catalogue, or folders of config.json."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .case import Case
from .schema import CaseError

ROOT = Path(__file__).resolve().parents[3]
CATALOGUE = ROOT / "models" / "catalogue"
DROPOUT_KEYS = re.compile(r".*dropout.*|.*_pdrop|.*drop_rate|drop_path_rate")
Config = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """The contents of config.json and preprocessor_config.json."""

    config: Config
    preprocessor: Config = field(default_factory=dict)

    @property
    def type(self) -> str:
        return str(self.config.get("model_type", ""))


def find(name: str, folders: list[Path]) -> Model:
    """The first folder that has NAME/config.json, else the catalogue's entry.  Raises CaseError."""
    for folder in folders:
        at = folder / name
        if (at / "config.json").exists():
            more = at / "preprocessor_config.json"
            return Model(
                json.loads((at / "config.json").read_text()), json.loads(more.read_text()) if more.exists() else {}
            )
    entry = CATALOGUE / f"{name}.json"
    if not entry.exists():
        raise CaseError(f"no model {name} in {', '.join(map(str, [*folders, CATALOGUE.relative_to(ROOT)]))}")
    found = json.loads(entry.read_text())
    return Model(found["config"], found.get("preprocessor", {}))


def of_case(case: Case, folders: list[Path]) -> Model:
    """The model of a case, its overrides made."""
    model = Model(case.config, {}) if case.config is not None else find(case.model, folders)
    config = copy.deepcopy(model.config)
    for dotted, value in case.overrides.items():
        *path, last = dotted.split(".")
        at = config
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    config.pop("quantization_config", None)  # weights are kept as case.quant says
    if case.dropout is not None:
        set_dropout(config, case.dropout)
    return Model(config, case.preprocessor if case.preprocessor is not None else model.preprocessor)


def set_dropout(config: Config, p: float) -> None:
    for key, value in config.items():
        if isinstance(value, dict):
            set_dropout(value, p)
        elif DROPOUT_KEYS.fullmatch(key) and isinstance(value, (int, float)) and not isinstance(value, bool):
            config[key] = p
