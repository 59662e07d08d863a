# SPDX-License-Identifier: Apache-2.0
"""One process per case, forked from one that has imported the libraries and never touched the device."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable

Answer = dict[str, Any]
LIMIT_S = 900.0  # a case that takes longer is given up


def run_in_child(run: Callable[[], Answer], log: Path | None = None, limit_s: float = LIMIT_S) -> Answer:
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
        is_over = wait(child, time.monotonic() + limit_s)
        end_group(child)
        if not is_over:
            os.waitpid(child, 0)
            return {"error": f"took longer than {limit_s:.0f} s"}
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


def wait(child: int, deadline: float) -> bool:
    """Whether the process ended in time."""
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def end_group(child: int) -> None:
    """Ends what the process started and left behind, and itself if it is still there."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
