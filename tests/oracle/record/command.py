# SPDX-License-Identifier: Apache-2.0
"""The command line: record install | run | draw | compare | check | defaults."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Callable, Sequence

from . import case as cases_of
from . import check, compare, environments, recording, results, serving_case
from .case import Given
from .draw import draw
from .processes import Limits
from .recording import NotReady, Options
from .results import Result
from .schema import CaseError

OK, DIFFERS, FAILED, USAGE = 0, 1, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        return act(options)
    except (NotReady, CaseError, FileNotFoundError, subprocess.CalledProcessError) as e:
        print(f"record: {e}", file=sys.stderr)
        return USAGE


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="record", description="What unchanged PyTorch allocates on a phantom GPU.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about)
        made.set_defaults(act=act)
        return made

    known = environments.groups()
    one = command(
        "install",
        install,
        "Install packages in virtual environments outside of the repository: "
        + "; ".join(f"{name}: {group.about}" for name, group in known.items()),
    )
    one.add_argument(
        "groups", nargs="*", default=["base"], choices=[*known, []], metavar="GROUP", help="base if none is named"
    )

    one = command("run", run, "Record cases; those that are in the folder already are skipped.")
    one.add_argument("cases", nargs="+", type=Path, help="JSON or JSONL: cases, or results whose cases are meant")
    one.add_argument("--out", type=Path, required=True, help="folder of the results, by family or kind")
    one.add_argument("--trim", action="store_true", help="keep of a result what the repository keeps")
    one.add_argument(
        "--events", action="store_true", help="also write the allocator's event streams: OUT/events/ID.jsonl.gz"
    )
    one.add_argument("--trace", action="store_true", help="say where a case failed")
    recorder_options(one)

    one = command("draw", draw_cases, "Draw random cases, or all variations of one setting at a time.")
    one.add_argument("kind", choices=draw.KINDS, help="what runs them")
    one.add_argument("--models", nargs="*", default=[], help="of the catalogue (a few small ones)")
    one.add_argument("--count", type=int, default=10, help="of each model, or in all")
    one.add_argument(
        "--vary", action="store_true", help="one device: vary one setting at a time, instead of mixing them"
    )
    one.add_argument("--seed", default="1")
    one.add_argument("--without", nargs="*", type=Path, default=[], help="files of cases or results to leave out")

    one = command(
        "compare",
        compare_runs,
        "Record runs of the repository again with the installed versions, and say which change.",
    )
    one.add_argument("files", nargs="*", type=Path, help="results (those that ./test holds the program against)")
    one.add_argument("--sample", type=int, help="so many, drawn at random")
    one.add_argument("--seed", default="1")
    one.add_argument("--only", default="", help="runs whose id or model contains this")
    one.add_argument("--update", action="store_true", help="put the new results in the place of the old ones")
    recorder_options(one)

    one = command("check", check_results, "Check what results say about themselves.")
    one.add_argument("files", nargs="*", type=Path)

    one = command(
        "defaults",
        write_defaults,
        "Write models/config_defaults.json, what transformers has for keys that are missing, tp_plans.json and "
        "no_split_modules.json.",
    )
    one.add_argument("--check", action="store_true", help="only say whether it is up to date")
    return top


def recorder_options(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--configs", type=Path, action="append", default=[], help="folder of NAME/config.json, before the catalogue"
    )
    one.add_argument("--phantom", type=Path, help="the folder cuda-check of a build (the newest one under build/)")
    one.add_argument("--on-gpu", action="store_true", help="on a real GPU, without the phantom")
    one.add_argument("--logs", type=Path, help="folder for what each case prints")
    most = Limits()
    one.add_argument("--limit", type=float, default=most.seconds, help="seconds after which a case is given up")
    one.add_argument("--memory", type=float, default=most.gib, help="GiB of the host after which a case is given up")


def options_of(given: argparse.Namespace, events: Path | None = None) -> Options:
    return Options(
        folders=[c.resolve() for c in given.configs],
        events=events,
        logs=given.logs and given.logs.resolve(),
        limits=Limits(given.limit, given.memory),
        tools=given.phantom and given.phantom.resolve(),
        on_gpu=given.on_gpu,
    )


# ---- commands ----


def install(given: argparse.Namespace) -> int:
    environments.install(given.groups)
    return OK


def run(given: argparse.Namespace) -> int:
    done = results.ids(given.out)
    cases = [c for c in cases_of.read_files(given.cases) if c["id"] not in done]
    events = given.out.resolve() / "events" if given.events else None
    failed = 0
    for result in recording.record(cases, options_of(given, events)):
        if "error" in result:
            failed += 1
            print(f"FAILED {result['case']['id']}: {result['error']} ({result.get('at', '')})", file=sys.stderr)
            if given.trace:
                print(result.get("trace", ""), file=sys.stderr)
            continue
        results.append(
            given.out, results.trimmed(result) if given.trim else result, [*given.configs, recording.CONFIGS]
        )
        print(summary(result), flush=True)
    return FAILED if failed else OK


def summary(result: Result) -> str:
    """A line for people."""
    head = f"{result['case']['id']}: {result['outcome']}, {result['wall_s']} s"
    if serving_case.is_one(result["case"]):
        kv = result.get("kv", {})
        return f"{head}, {kv.get('num_blocks')} blocks of {kv.get('block_bytes')} B {result.get('message', '')[:150]}"
    allocated, reserved = (f"{result[name] / 2**20:.1f} MiB" for name in ("allocated_peak", "reserved_peak"))
    inexact = "" if result["replay_exact"] else ", replay inexact"
    return f"{head}, allocated {allocated}, reserved {reserved}{inexact}"


def draw_cases(given: argparse.Namespace) -> int:
    left_out = {cases_of.identity(c) for c in cases_of.read_files(given.without)}
    for made in draw.draw(given.kind, given.models, given.count, given.seed, given.vary):
        if cases_of.identity(made) not in left_out:
            print(json.dumps(made))
    return OK


def compare_runs(given: argparse.Namespace) -> int:
    paths = [f for p in given.files for f in (results.files([p]) if p.is_dir() else [p])] or results.files(
        [results.RESULTS]
    )
    recorded = {
        str(r["case"]["id"]): (path, r)
        for path, r in results.all_of(paths)
        if given.only in str(r["case"]["id"]) or given.only in str(r["case"]["model"])
    }
    chosen = list(recorded)
    if given.sample is not None and given.sample < len(chosen):
        chosen = random.Random(given.seed).sample(sorted(chosen), given.sample)
    cases: list[Given] = [recorded[i][1]["case"] for i in chosen]
    changed: dict[Path, dict[str, Result]] = {}
    versions: set[str] = set()
    for found in recording.record(cases, options_of(given)):
        path, before = recorded[str(found["case"]["id"])]
        versions |= {f"{name} {version}" for name, version in found.get("versions", {}).items()}
        lines = compare.differences(before, found)
        if lines:
            changed.setdefault(path, {})[str(found["case"]["id"])] = {k: found[k] for k in before if k in found}
            print(f"{path.name}: {found['case']['id']}", *lines[:8], sep="\n    ", flush=True)
    count = sum(map(len, changed.values()))
    print(f"{len(cases)} runs recorded again with {', '.join(sorted(versions))}: {count} changed")
    if given.update:
        for path, new in changed.items():
            results.replace(path, {i: r for i, r in new.items() if "outcome" in r})
    return DIFFERS if count else OK


def check_results(given: argparse.Namespace) -> int:
    count = failed = 0
    for path, result in results.all_of(given.files or results.files()):
        given_case = result["case"]
        count += 1
        found = (
            check.serving_complaints(result)
            if serving_case.is_one(given_case)
            else check.complaints(result, cases_of.read(given_case))
        )
        for line in found:
            failed += 1
            print(f"{path.name}: {given_case['id']}: {line}")
    for path in results.too_large():
        failed += 1
        print(f"{path}: over {results.FILE_LIMIT >> 10} KB")
    print(f"{count} results checked, {failed} complaints")
    return FAILED if failed else OK


def write_defaults(given: argparse.Namespace) -> int:
    models = environments.HERE.parents[2] / "models"
    for name in ("config_defaults", "tp_plans", "no_split_modules"):
        path = models / f"{name}.json"
        made = subprocess.run(
            [str(environments.python_of("base")), "-m", f"record.runner.{name}", str(models)],
            cwd=environments.HERE.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        if given.check and path.read_text() != made:
            return DIFFERS
        if not given.check:
            path.write_text(made)
    return OK
