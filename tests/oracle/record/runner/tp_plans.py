# SPDX-License-Identifier: Apache-2.0
"""Writes the tensor and expert parallel plans of transformers' configuration classes, with those of their heads that
write text, and what such a head adds to PreTrainedConfig.base_model_fsdp_plan: `python -m record.runner.tp_plans
MODELS`, as `record defaults` starts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from .config_defaults import all_types


def main() -> int:
    of_plan: dict[str, list[str]] = {}
    for name in sorted(set(all_types(Path(sys.argv[1]) / "architectures"))):
        plans = {
            "tp_plan": plan_of(name),
            "ep_plan": getattr(CONFIG_MAPPING[name], "base_model_ep_plan", None),
            "fsdp_plan": getattr(head_of(name), "_fsdp_plan", None),
        }
        if CONFIG_MAPPING[name].base_model_fsdp_plan != PreTrainedConfig.base_model_fsdp_plan:
            raise SystemExit(f"{name} has a base_model_fsdp_plan of its own, which fsdp2_plan.c does not know")
        given = [f'"{key}": {json.dumps(plan)}' for key, plan in plans.items() if plan]
        if given:
            of_plan.setdefault(",\n ".join(given), []).append(name)
    lines = (f'{{"model_types": {json.dumps(names)},\n {plan}}}' for plan, names in of_plan.items())
    print("[\n" + ",\n".join(lines) + "\n]")
    return 0


def plan_of(model_type: str) -> dict[str, str]:
    plan = getattr(CONFIG_MAPPING[model_type], "base_model_tp_plan", None) or {}
    return {**plan, **(getattr(head_of(model_type), "_tp_plan", None) or {})}


def head_of(model_type: str) -> type | None:
    heads = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES | MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return getattr(transformers, heads.get(model_type, ""), None)


if __name__ == "__main__":
    sys.exit(main())
