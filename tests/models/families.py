#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the families of models/architectures in models/README.md; not those of its folders for other engines.

    tests/models/families.py           says whether the list is up to date; exit code 1 if not
    tests/models/families.py --write   brings it up to date
"""
import json
import pathlib
import sys

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
BEGIN = "<!-- families: tests/models/families.py --write -->\n"
END = "<!-- end of families -->\n"


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
    before, _, rest = source.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        print(f"{readme}: has no place for the list of families: {BEGIN.strip()} and {END.strip()}")
        return 1
    wanted = before + BEGIN + families_text() + END + after
    if wanted == source:
        return 0
    if "--write" not in sys.argv[1:]:
        print(f"{readme}: the list of families is not up to date; tests/models/families.py --write brings it up")
        return 1
    readme.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
