#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of one model of each class in models/catalogue/ is predicted, or refused in vLLM's words or by name: none
fails in a description.

    tests/models/serves.py PROGRAM
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import calls  # noqa: E402 (beside the folder of this script)

CATALOGUE = ROOT / "models" / "catalogue"
LEAST = 100


def main():
    entries = [json.loads(path.read_text()) for path in sorted(CATALOGUE.glob("*.json"))]
    of_class = {entry["config"].get("architectures", [None])[0]: entry["name"] for entry in entries}
    of_class.pop(None, None)
    answers = calls.ask(sys.argv[1], [{"call": "estimate", "settings": [f"model={name}", "mode=serve", "gpu=b200"]}
                                      for name in of_class.values()])
    failed = 0 if len(answers) == len(of_class) >= LEAST else 1
    for name, answer in zip(of_class.values(), answers):
        faults = [d["message"] for d in answer.get("diagnostics", []) if d["code"] == "ERR_DESCRIPTION"]
        if faults:
            failed += 1
            print(f"FAIL {name}: {faults[0]}")
    print(f"{len(of_class) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
