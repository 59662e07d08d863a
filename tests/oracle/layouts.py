#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of README.md that are made of recorded runs: how many there are of each kind, and one model in several
layouts. That tidemark's figures are the recorded ones is what tests/oracle/verify holds.

    tests/oracle/layouts.py           says whether they are up to date; exit code 1 if not
    tests/oracle/layouts.py --write   brings them up to date
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import generated  # noqa: E402 (beside the folder of this script)

SCRIPT = "tests/oracle/layouts.py"
README = ROOT / "README.md"
RESULTS = ROOT / "tests" / "oracle" / "results"
COUNTED = {  # how a row of the table of runs begins, and the files with its runs
    "training and generation on one GPU": ("*",),
    "data parallel": ("parallel/ddp", "parallel/fsdp[12]", "parallel/zero[0-3]"),
    "transformers' Trainer": ("trainers/*",),
    "ranks of PyTorch's": ("parallel/tp", "parallel/pp", "parallel/native*"),
    "torchtitan's own": ("parallel/torchtitan",),
    "ranks of Megatron-Core": ("parallel/megatron*",),
}
SIZES = ("tp", "cp", "pp", "dp")
HEAD = "| Sequence | Layout | Recorded, GiB | tidemark |\n|---|---|---|---|\n"


def lines(files):
    return [line for file in sorted(RESULTS.glob(f"{files}.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]


def results(kind):
    return [json.loads(line) for line in lines(f"parallel/{kind}")]


def megatron():
    """A model of SimuMax's table, with the loss as its Transformer Engine had it."""
    for result in results("megatron*"):
        case = result["case"]
        is_in_place = case["parallel"].get("cross_entropy_fusion") == "te_in_place"
        if case.get("note", "").startswith("llama3_70b_l12") and is_in_place:
            yield result


def native():
    for kind in ("fsdp2", "native*", "zero1", "zero3"):
        yield from (result for result in results(kind) if result["case"].get("note") == "layouts")


def words(case, with_kind):
    plan = case["parallel"]
    given = [f"kind={plan['kind']}"] if with_kind else []
    given += [f"{size}={plan[size]}" for size in SIZES if plan.get(size, 1) > 1]
    given += [f"{key}=true" for key in ("sequence_parallel", "loss_parallel") if plan.get(key)]
    given += [f"ac={plan['ac']}"] if plan.get("ac") else []
    return " ".join(given)


def table(found, with_kind):
    """A row for each layout, with its stages in order."""
    rows = {}
    for result in found:
        case = result["case"]
        stages = rows.setdefault((case["seq"], words(case, with_kind)), {})
        stages[case["parallel"].get("rank", 0)] = result["allocated_peak"] / 2**30
    text = HEAD
    for (seq, layout), stages in sorted(rows.items(), key=lambda row: row[0][0]):
        peaks = [stages[rank] for rank in sorted(stages)]
        ends = ", first stage, last stage" if len(peaks) > 1 else ""
        text += f"| {seq:,} | `{layout}`{ends} | {', '.join(f'{peak:.2f}' for peak in peaks)} |"
        text += f" {', '.join('exact' for _ in peaks)} |\n"
    return text


def counted(source):
    for start, files in COUNTED.items():
        count = sum(len(lines(pattern)) for pattern in files)
        source, found = re.subn(rf"(?m)^(\| {re.escape(start)}[^|]*\|[^|]*\|) [\d,]+ \|", rf"\1 {count:,} |", source)
        if found != 1:
            sys.exit(f"{README}: has no row of the runs that begins with {start!r}")
    return re.sub(r"\d+ models \|", f"{models()} models |", source)


def models():
    """How many were run on one GPU, by their names in the cases."""
    return len({json.loads(line)["case"]["model"] for line in lines("*")})


def main():
    source = README.read_text(encoding="utf-8")
    source = generated.replaced(README, source, "layouts of Megatron-Core", SCRIPT, table(megatron(), False))
    source = generated.replaced(README, source, "layouts of PyTorch", SCRIPT, table(native(), True))
    return generated.settled(README, counted(source), SCRIPT)


if __name__ == "__main__":
    sys.exit(main())
