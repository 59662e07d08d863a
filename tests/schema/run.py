#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Requests and answers against core/schema/tidemark.schema.json.

    tests/schema/run.py PROGRAM

Requests are those of tests/golden; answers are what PROGRAM says to them, and what its commands print with --json. The
names of settings are those that PROGRAM describes. Needs jsonschema 4 (python3-jsonschema)."""

import copy
import json
import subprocess
import sys
from pathlib import Path

from jsonschema import Draft202012Validator

TESTS = Path(__file__).resolve().parent.parent
JOB = ["gpt2", "overrides.n_layer=1", "gpu=a100-40"]
COMMANDS = [
    ["estimate", *JOB],
    ["estimate", "gpt2", "batch=0"],
    ["explain", *JOB],
    ["explain", *JOB, "--of", "mlp"],
    ["explain", *JOB, "--events"],
    ["explain", *JOB, "--state"],
    ["serve", "llama-3.1-8b", "gpu=h100-80", "enforce_eager=true"],
    ["fit", *JOB],
    ["cards", *JOB],
    ["advice", *JOB],
    ["compare", *JOB, "--with", "batch=2"],
    ["link", *JOB],
    ["describe"],
]
# What must not pass.
SPOILT_REQUESTS = [{}, {"call": "estimat"}, {"call": "estimate", "setings": []}, {"call": "estimate", "settings": "a=1"}]


def spoilt_answers(answer):
    def changed(change):
        other = copy.deepcopy(answer)
        change(other)
        return other

    return [
        changed(lambda a: a.pop("ok")),
        changed(lambda a: a.update(ok=False)),
        changed(lambda a: a["peak"].update(allocated="1 GiB")),
        changed(lambda a: a["peak"].pop("reserved")),
        changed(lambda a: a["tensors"][0].pop("freed")),
        changed(lambda a: a["tensors"][0]["freed"][0].update(by="nobody")),
        changed(lambda a: a["settings"][0].update(name="no_such_setting")),
    ]


def main(program):
    results = [0, 0]

    def check(name, is_right, why=""):
        results[not is_right] += 1
        if not is_right:
            print(f"FAIL {name}: {why}")

    def call(request):
        return json.loads(subprocess.run([program, "call"], input=request, capture_output=True, text=True).stdout)

    schema = json.loads((TESTS.parent / "core/schema/tidemark.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    described = call('{"call":"describe"}')["settings"]
    schema["$defs"]["described_name"]["enum"] = [setting["name"] for setting in described]

    def faults(definition, instance):
        of = {"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]}
        return [f"{error.json_path}: {error.message[:200]}" for error in Draft202012Validator(of).iter_errors(instance)]

    def holds(name, definition, instance):
        found = faults(definition, instance)
        check(name, not found, "; ".join(found[:3]))

    for file in sorted((TESTS / "golden").glob("*.job.json")):
        name, request = file.name.removesuffix(".job.json"), file.read_text()
        if name not in ("bad-call", "bad-request"):
            holds(f"{name}, request", "request", json.loads(request))
        answer = call(request)
        holds(f"{name}, answer", "result" if answer["ok"] else "refusal", answer)
        check(f"{name}, ok", answer["ok"] != name.startswith("bad-"))
    for command in COMMANDS:
        ran = subprocess.run([program, *command, "--json"], capture_output=True, text=True)
        answer = json.loads(ran.stdout)
        holds(" ".join(command), "result" if answer["ok"] else "refusal", answer)
    for request in SPOILT_REQUESTS:
        check(f"{request} is no request", faults("request", request))
    answer = call('{"call":"estimate","settings":["model=gpt2","overrides.n_layer=1"]}')
    for i, spoilt in enumerate(spoilt_answers(answer)):
        check(f"spoilt answer {i}", faults("result", spoilt))
    print(f"{results[0]} passed, {results[1]} failed")
    return results[1] != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
