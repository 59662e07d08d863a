# SPDX-License-Identifier: Apache-2.0
"""One process per case, forked from one that has imported the libraries and never touched the device."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable, NamedTuple

Answer = dict[str, Any]


class Limits(NamedTuple):
    """What a case may take before it is given up."""

    seconds: float = 900.0
    gib: float = 8.0  # host memory of its processes


class GivenUp(RuntimeError):
    """A case went over a limit."""


def run_in_child(run: Callable[[], Answer], log: Path | None = None, limits: Limits = Limits()) -> Answer:
    """What `run` returns in a forked process, or {"error": ...}.  log: a file for what it prints."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.setsid()
            if log:
                send_output(log)
            Path(answer.name).write_text(json.dumps(attempt(run)))
            sys.stdout.flush()
            os._exit(0)
        try:
            wait(child, limits)
        except GivenUp as e:
            end_group(child)
            os.waitpid(child, 0)
            return {"error": str(e)}
        end_group(child)
        text = answer.read()
    return dict(json.loads(text)) if text else {"error": "the process died"}


def attempt(run: Callable[[], Answer]) -> Answer:
    """The answer, or the report of what went wrong, which is an answer too."""
    try:
        return run()
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return {
            "error": f"{type(e).__name__}: {e}"[:600],
            "at": f"{Path(where.filename).name}:{where.lineno}",
            "trace": traceback.format_exc()[-3000:],
        }


def send_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)


def wait(child: int, limits: Limits) -> None:
    """Returns when the process has ended.  Raises GivenUp."""
    started = time.monotonic()
    looks_at = started + 1  # at its memory
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        now = time.monotonic()
        if now > started + limits.seconds:
            raise GivenUp(f"took longer than {limits.seconds:.0f} s")
        if now > looks_at:
            looks_at = now + 1
            if memory_of_session(child) > limits.gib * 2**30:
                raise GivenUp(f"took more than {limits.gib:g} GiB of the host's memory")
        time.sleep(0.01)


def memory_of_session(leader: int) -> int:
    """Bytes of host memory of a session's processes; pages that several share count once."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == leader:
                rollup = (process / "smaps_rollup").read_text()
                total += sum(int(kib) << 10 for kib in re.findall(r"^Pss: +(\d+) kB", rollup, re.M))
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            pass  # it has ended
    return total


def end_group(child: int) -> None:
    """Ends what the process started and left behind, and itself if it is still there."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
