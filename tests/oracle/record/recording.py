# SPDX-License-Identifier: Apache-2.0
"""Runs cases in their environments on the product's phantom, and yields results as they come."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Sequence

from . import environments, phantom, serving_case
from .case import Given
from .catalogue import ROOT
from .processes import Limits

HERE = Path(__file__).resolve().parent
CONFIGS = HERE / "configs"  # of models that are no published ones
PRESETS = ("release", "gcc", "clang")


class NotReady(RuntimeError):
    """Something that recording needs is not there."""


@dataclass(frozen=True)
class Options:
    folders: Sequence[Path] = ()  # of NAME/config.json, before the catalogue
    events: Path | None = None  # where event streams go
    logs: Path | None = None  # where what cases print goes
    limits: Limits = Limits()
    tools: Path | None = None  # the folder cuda-check beside the program
    on_gpu: bool = False  # without the phantom
    environment: dict[str, str] = field(default_factory=dict)


def find_tools() -> Path:
    """The phantom of the newest build of the product.  Raises NotReady."""
    built = [at for preset in PRESETS if (at := ROOT / "build" / preset / "cuda-check" / "libcuda.so.1").exists()]
    if not built:
        raise NotReady("the product's phantom is not built: cmake --preset release && cmake --build build/release")
    return max(built, key=lambda at: at.stat().st_mtime).parent


def record(cases: Sequence[Given], options: Options = Options()) -> Iterator[dict[str, Any]]:
    """A result, or {"case", "error", ...}, for each case; in the order of their environments.  Raises NotReady."""
    lacking = environments.missing(cases)
    if lacking:
        raise NotReady(f"not installed: {', '.join(lacking)} (record install {' '.join(lacking)})")
    for environment, batch in environments.batches_of(cases):
        yield from run_batch(environment, batch, options)


def run_batch(environment: str, cases: Sequence[Given], options: Options) -> Iterator[dict[str, Any]]:
    request = {
        "cases": cases,
        "folders": [str(f) for f in (*options.folders, CONFIGS)],
        "limits": options.limits,
        "events": options.events and str(options.events),
        "logs": options.logs and str(options.logs),
    }
    with subprocess.Popen(
        [str(environments.python_of(environment)), "-m", "record.run_cases"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
        env=variables(environment, cases, options),
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        answered = 0
        for line in process.stdout:
            answered += 1
            yield json.loads(line)
    if answered < len(cases):
        yield {"case": cases[answered], "error": f"the recorder ended with {process.returncode} before this case"}


def variables(environment: str, cases: Sequence[Given], options: Options) -> dict[str, str]:
    """The environment of the recording process."""
    devices = max((serving_case.read(c).ranks for c in cases if serving_case.is_one(c)), default=1)
    made = {} if options.on_gpu else phantom.environment(options.tools or find_tools(), devices)
    python = environments.python_of(environment)
    if any((c.get("parallel") or {}).get("spmd_backend") == "spmd_types" for c in cases):
        made["PYTHONPATH"] = str(environments.apart_of(environment))  # torch looks for spmd_types as it is imported
    for of in (environments.trl_of, environments.titan_of):
        for path in filter(None, map(of, cases[:1])):
            made["PYTHONPATH"] = str(path)
    return {
        **os.environ,
        "PYTHONHASHSEED": "0",  # sets of words, which transformers' models loop over, in one order
        **made,
        "PATH": f"{python.parent}:{os.environ.get('PATH', '')}",
        "APART_PATH": str(environments.apart_of(environment)),
        **options.environment,
    }
