#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp: sizes of published files, and starts that record.py recorded.

    tests/llama_cpp/run.py PROGRAM

Files of one repository have one header, but for some keys about how each was quantised: what is left when the weights
are taken off a file must be the same for all of them, to the byte for most. Of a start, caches and weights are as its log prints them, and
the compute buffer is in the range."""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import calls  # noqa: E402 (beside the folder of this script)

HEADERS_DIFFER = 512  # bytes: keys of the importance matrix, and padding
EQUAL_FILES = 71  # at least, of all: their weights are equal to the byte


def request(words, files=()):
    return {"call": "estimate", "settings": ["mode=serve", "engine=llama_cpp", "gpu_gib=2000", *words], "files": [*files]}


def left_of(program, repository):
    """Sizes of files without the weights; None: one is refused."""
    imatrix = str(repository["imatrix"]).lower()
    words = [[f"model={repository['model']}", f"imatrix={imatrix}", *repository.get("settings", [])]] * len(repository["files"])
    answers = calls.ask(program, [request([*own, f"ftype={kind}"]) for own, kind in zip(words, repository["files"])])
    if not all(answer["ok"] for answer in answers):
        return None
    return [size - answer["serving"]["weights"] for size, answer in zip(repository["files"].values(), answers)]


def check_left(left):
    if left is None:
        return "refused"
    return "" if 0 < min(left) and max(left) - min(left) <= HEADERS_DIFFER else f"headers of {min(left)} to {max(left)}"


def check_equal(all_left):
    """Files of which the same is left as of most in their repository: their headers are as long."""
    equal = sum(max(left.count(size) for size in left) for left in all_left if left)
    return "" if equal >= EQUAL_FILES else f"{equal}, not {EQUAL_FILES}"


def is_printed(bytes_, printed):
    return abs(bytes_ / 2**20 - printed) <= 0.0051


def check_start(program, start):
    file = {"name": f"{start['name']}.gguf", "text": start["header"]}
    placed = calls.ask(program, [request(start["settings"], [file]),
                                 request([*start["settings"], "n_gpu_layers=0"], [file])])
    if not all(answer["ok"] for answer in placed):
        return "refused"
    on_card, on_host = ({b["name"]: b for b in answer["serving"]["buffers"]} for answer in placed)
    compute = start["compute"] * 2**20
    if not is_printed(on_host["CPU KV buffer"]["low"], sum(start["kv"])):
        return f"cache of {on_host['CPU KV buffer']['low']}, not {start['kv']} MiB"
    if on_card["CUDA0 KV buffer"]["low"] != on_host["CPU KV buffer"]["low"]:
        return "caches differ by place"
    if not is_printed(on_host["CPU_Mapped model buffer"]["low"], start["model"]):
        return f"weights of {on_host['CPU_Mapped model buffer']['low']}, not {start['model']} MiB"
    if not on_card["compute buffer"]["low"] <= compute <= on_card["compute buffer"]["high"]:
        return f"compute buffer of {compute}, outside of {on_card['compute buffer']}"
    return ""


def main(program):
    repositories = json.loads((FOLDER / "published.json").read_text())["repositories"]
    starts = [json.loads(line) for line in (FOLDER / "starts.jsonl").read_text().splitlines()]
    left = [left_of(program, r) for r in repositories]
    found = [(r["repository"], check_left(of_one)) for r, of_one in zip(repositories, left)]
    found += [("files that are equal to the byte", check_equal(left))]
    found += [(f"{s['name']} {' '.join(s['settings'])}", check_start(program, s)) for s in starts]
    for name, wrong in found:
        if wrong:
            print(f"FAIL {name}: {wrong}")
    failed = sum(1 for _, wrong in found if wrong)
    print(f"{len(found) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
