#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of models as the Hub spells them: organisation, -Instruct, -it, -Chat, -hf, types, quantised formats.

    tests/models/names.py PROGRAM

Each language model of the catalogue is asked for under each spelling. It is that model, or, in a format that comes in
several ways, refused with its name as the suggestion. A spelling that is another entry's own name is that entry's.
Paths of the Hub in hub_names, the same of what people use most, are answered as the word beside each says: an entry,
?ENTRY where one is suggested, ? where none is near, ! where no description covers it.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import calls  # noqa: E402 (beside the folder of this script)

CATALOGUE = ROOT / "models" / "catalogue"
LISTED = pathlib.Path(__file__).with_name("hub_names")
HEADS = ("ForCausalLM", "LMHeadModel", "LlavaForConditionalGeneration")
SAME = ("{name}", "{upper}", "{path}", "{last}", "someone/{last}", "{name}-Instruct", "{name}-it", "{name}-Chat",
        "{name}-hf", "{name}-chat-hf", "my-org/{name}-Instruct", "{name}-bf16", "{last}-hf")
PACKED = ("{name}-AWQ", "{name}-Instruct-AWQ", "someone/{name}-GPTQ", "someone/{name}-bnb-4bit",
          "someone/{name}-unsloth-bnb-4bit", "{name}-GPTQ-Int4")
OFFICIAL = ("{name}-FP8",)
REFUSED = ("someone/{name}-FP8", "someone/{name}-GGUF", "{name}-Instruct-GGUF", "someone/{name}-Instruct-FP8",
           "{name}-Instruct-quantized.w4a16")
LEAST = 2000
WHOLE_IN_PARTS = {"llava", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "jamba", "nemotron_h", "granitemoehybrid",
                  "falcon_h1", "lfm2", "lfm2_moe", "mamba", "mamba2", "falcon_mamba", "pixtral"}


def cases(entries, names):
    for entry in entries:
        path = entry["source"].removeprefix("huggingface.co/")
        if path.split("/")[-1].lower() in names - {entry["name"]} or entry["name"].endswith("-text"):  # the page's own entry is perhaps another: this one is a part of it
            path = entry["name"]
        words = {"name": entry["name"], "upper": entry["name"].upper(), "path": path, "last": path.split("/")[-1]}
        kind_of_model = entry["config"]["model_type"]
        official = path.startswith("Qwen/") and kind_of_model in ("qwen3", "qwen3_moe")
        for kind, forms in (("same", SAME), ("packed", PACKED), ("packed" if official else "refused", OFFICIAL),
                            ("refused", REFUSED)):
            for form in forms:
                is_unknown = kind == "packed" and kind_of_model in WHOLE_IN_PARTS and "bnb" not in form
                yield "refused" if is_unknown else kind, entry["name"], form.format(**words)


def wrong(kind, name, answer):
    """What is wrong with an answer; nothing: None."""
    said = " ".join(d.get("remedy") or "" for d in answer.get("diagnostics", []))
    taken = answer.get("link", "").split("model=")[-1].split("&")[0]
    if kind == "same" and taken not in (name, name + "-bf16"):
        return taken or said
    if kind == "listed":
        text = " ".join(d["message"] for d in answer.get("diagnostics", []))
        near = said.split("did you mean ")[-1].split(",")[0].split("?")[0].split(" or ")[0]
        heard = taken if answer["ok"] else "!" if "no description covers" in text else "?" + near * ("did you" in said)
        return None if heard == name else heard + ": " + said
    if kind == "packed" and not answer["ok"]:
        return said
    if kind == "refused" and (answer["ok"] or "did you mean " + name not in said):
        return taken or said
    return None


def main():
    entries = [json.loads(path.read_text()) for path in sorted(CATALOGUE.glob("*.json"))]
    names = {entry["name"] for entry in entries}
    language = [entry for entry in entries if entry["config"].get("architectures", [""])[0].endswith(HEADS)]
    spelled = [case for case in cases(language, names)
               if case[2].split("/")[-1].lower() == case[1] or case[2].split("/")[-1].lower() not in names]
    asked = spelled[::7] + spelled[3::7] + spelled[5::7]  # each form of some models
    listed = [line.split() for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]
    asked += [("listed", answer, path) for path, answer in listed]
    answers = calls.ask(sys.argv[1], [{"call": "link", "settings": ["model=" + case[2]]} for case in asked])
    failed = 0 if len(answers) == len(asked) >= LEAST else 1
    for (kind, name, spelled), answer in zip(asked, answers):
        what = wrong(kind, name, answer)
        if what:
            failed += 1
            print(f"FAIL {spelled}: {kind} as {name}, but: {what}")
    print(f"{len(asked) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
