# SPDX-License-Identifier: Apache-2.0
"""Records cases under the Python that has their packages: `python -m record.run_cases`, as recording.py starts it.

Reads a request from standard input, {"cases", "folders", "events", "logs", "limits"}, and writes a line for each
case to standard output: its result, or {"case", "error", "at", "trace"}.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

from . import case as cases_of
from . import phantom, processes, serving_case
from .case import Case, Given
from .schema import CaseError
from .serving_case import ServingCase

Answer = dict[str, Any]
Runner = tuple[Callable[[], Answer], Callable[[], dict[str, str]]]  # the run, and the versions that it is of


def main() -> int:
    request = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    phantom.start()
    readable = list(read_all(request["cases"], answers))
    runs = runners([case for _, case in readable], request)
    limits = processes.Limits(*request["limits"])
    for (given, case), (run, versions) in zip(readable, runs):
        log = Path(request["logs"]) / f"{case.id}.log" if request.get("logs") else None
        result = processes.run_in_child(run, log, limits)
        head = {"case": given} if "error" in result else {"case": given, "versions": versions()}
        say(answers, {**head, **result})
    return 0


def read_all(cases: list[Given], answers: Any) -> Iterator[tuple[Given, Case | ServingCase]]:
    for given in cases:
        try:
            yield given, serving_case.read(given) if serving_case.is_one(given) else cases_of.read(given)
        except CaseError as e:
            say(answers, {"case": given, "error": str(e)})


def runners(cases: list[Case | ServingCase], request: dict[str, Any]) -> list[Runner]:
    """How each case is run; the libraries of all are imported here."""
    folders = [Path(f) for f in request["folders"]]
    serving = [c for c in cases if isinstance(c, ServingCase)]
    training = [c for c in cases if isinstance(c, Case)]
    if serving and training:
        raise SystemExit("cases of an engine and of training need runs of their own")
    if serving:
        engine = engine_of({case.engine for case in serving})
        engine.import_libraries()
        return [(functools.partial(engine.run, case, folders), engine.versions) for case in serving]
    if not training:
        return []
    from .runner import libraries, run

    libraries.import_for(training, folders)
    events = request.get("events")
    return [
        (
            functools.partial(run.run, case, folders, Path(events) / f"{case.id}.jsonl.gz" if events else None),
            functools.partial(libraries.versions, case),
        )
        for case in training
    ]


def engine_of(names: set[str]) -> Any:
    """What runs an engine."""
    if names == {"transformers"}:
        from .runner.serving import continuous_batching

        return continuous_batching
    if names == {"vllm"}:
        from .runner.serving import vllm

        return vllm
    raise SystemExit("engines need runs of their own")


def say(answers: Any, line: Answer) -> None:
    answers.write(json.dumps(line, separators=(",", ":")) + "\n")
    answers.flush()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # libraries print what they leaked as the interpreter ends
