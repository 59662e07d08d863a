#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of models as the Hub spells them: organisation, -Instruct, -it, -Chat, -hf, types, quantised formats.

    tests/models/names.py PROGRAM

Each language model of the catalogue is asked for under each spelling. It is that model, or, in a format that comes in
several ways, refused with its name as the suggestion. A spelling that is another entry's own name is that entry's.
"""
import json
import pathlib
import subprocess
import sys

CATALOGUE = pathlib.Path(__file__).resolve().parents[2] / "models" / "catalogue"
HEADS = ("ForCausalLM", "LMHeadModel", "LlavaForConditionalGeneration")
SAME = ("{name}", "{upper}", "{path}", "{last}", "someone/{last}", "{name}-Instruct", "{name}-it", "{name}-Chat",
        "{name}-hf", "{name}-chat-hf", "my-org/{name}-Instruct", "{name}-bf16", "{last}-hf")
PACKED = ("{name}-AWQ", "{name}-Instruct-AWQ", "someone/{name}-GPTQ", "someone/{name}-bnb-4bit",
          "someone/{name}-unsloth-bnb-4bit", "{name}-GPTQ-Int4")
REFUSED = ("{name}-FP8", "someone/{name}-GGUF", "{name}-Instruct-GGUF", "someone/{name}-Instruct-FP8",
           "{name}-Instruct-quantized.w4a16")
LEAST = 2000


def cases(entries):
    for entry in entries:
        path = entry["source"].removeprefix("huggingface.co/")
        words = {"name": entry["name"], "upper": entry["name"].upper(), "path": path, "last": path.split("/")[-1]}
        for kind, forms in (("same", SAME), ("packed", PACKED), ("refused", REFUSED)):
            for form in forms:
                yield kind, entry["name"], form.format(**words)


def wrong(kind, name, answer):
    """What is wrong with an answer; nothing: None."""
    said = " ".join(d.get("remedy") or "" for d in answer.get("diagnostics", []))
    taken = answer.get("link", "").split("model=")[-1].split("&")[0]
    if kind == "same" and taken != name:
        return taken or said
    if kind == "packed" and not answer["ok"]:
        return said
    if kind == "refused" and (answer["ok"] or "did you mean " + name not in said):
        return taken or said
    return None


def main():
    entries = [json.loads(path.read_text()) for path in sorted(CATALOGUE.glob("*.json"))]
    names = {entry["name"] for entry in entries}
    language = [entry for entry in entries if entry["config"].get("architectures", [""])[0].endswith(HEADS)]
    spelled = [case for case in cases(language)
               if case[2].split("/")[-1].lower() == case[1] or case[2].split("/")[-1].lower() not in names]
    asked = spelled[::7] + spelled[3::7] + spelled[5::7]  # each form of some models
    requests = "".join(json.dumps({"call": "link", "settings": ["model=" + case[2]]}) + "\n" for case in asked)
    lines = subprocess.run([sys.argv[1], "call", "--lines"], input=requests, capture_output=True, text=True,
                           check=False).stdout.splitlines()
    failed = 0 if len(lines) == len(asked) >= LEAST else 1
    for (kind, name, spelled), line in zip(asked, lines):
        what = wrong(kind, name, json.loads(line))
        if what:
            failed += 1
            print(f"FAIL {spelled}: {kind} as {name}, but: {what}")
    print(f"{len(asked) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
