#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the families of models/architectures in models/README.md; not those of its folders for other engines.

    tests/models/families.py           says whether the list is up to date; exit code 1 if not
    tests/models/families.py --write   brings it up to date
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import generated  # noqa: E402 (beside the folder of this script)

MODELS = ROOT / "models"
SCRIPT = "tests/models/families.py"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def names_of(description):
    """The classes that a configuration may name."""
    for key, value in description.get("roots", {}).items():
        yield from (key + task for task in value) if isinstance(value, list) else (key,)


def families(folder):
    """Lines of a table: model_type and classes."""
    for path in sorted(folder.glob("*.json")):
        description = read(path)
        types = ", ".join(f"`{name}`" for name in description.get("model_type", {}))
        if types:
            yield f"| {types} | {', '.join(names_of(description))} |"


def families_text():
    lines = list(families(MODELS / "architectures"))
    head = f"{len(lines)} descriptions of transformers, timm and diffusers:\n\n| `model_type` | classes |\n|---|---|\n"
    return head + "\n".join(lines) + "\n"


def main():
    readme = MODELS / "README.md"
    source = readme.read_text(encoding="utf-8")
    return generated.settled(readme, generated.replaced(readme, source, "families", SCRIPT, families_text()), SCRIPT)


if __name__ == "__main__":
    sys.exit(main())
