# SPDX-License-Identifier: Apache-2.0
"""The allocator's history: what lived at the peak, and the events for a recording."""
from __future__ import annotations

import os
import re
from typing import Any, Iterator

from tidemark_hook import ROWS

PHASES = ("load", "forward", "backward", "optimizer")
LETTERS = {"alloc": "a", "free_requested": "f", "free_completed": "c", "segment_alloc": "S", "segment_free": "s",
           "segment_map": "M", "segment_unmap": "U", "oom": "o"}
LIBRARIES = ("/torch/", "<string>", "/contextlib.py", "/functools.py", "/multiprocessing/", "threading.py",
             "/utils/generic.py", "/utils/output_capturing.py", "/modeling_layers.py", "/tidemark_hook.py")


class Live:
    """One allocation."""
    __slots__ = ("size", "born", "died", "factor", "name", "frames")

    def __init__(self, size: int, born: int, frames: Any) -> None:
        self.size, self.born, self.died, self.frames = size, born, None, frames
        self.factor = self.name = ""


def write(watch: Any, seen: dict[str, Any]) -> None:
    """Adds "at_peak" to each device of `seen`, and writes its events."""
    watch.in_hook = True
    snapshot = watch.torch.cuda.memory._snapshot()
    for device in seen["devices"]:
        index = device["index"]
        trace = snapshot["device_traces"][index]
        asked = sum(e["action"] == "alloc" for e in trace)
        if asked != watch.peaks.read(index)["allocation"]["all"]["allocated"]:
            device["history"] = "lost"              # too long, or the program records one of its own
            continue
        peak, at, live = at_peak(trace, watch.owners[index])
        device["events"] = len(trace)
        device["at_peak"] = groups(live, device["allocated_peak"], watch.phases[index])
        device["peak_phase"], device["peak_step"] = phase_at(watch.phases[index], at)
        device["peak_from"] = origin(live[-1].frames) if live else ""
        with open(os.path.join(watch.folder, f"{watch.pid}.{index}"), "w") as out:
            out.writelines(events(trace, watch.phases[index]))


def at_peak(trace: list[Any], owners: list[Any]) -> tuple[int, int, list[Live]]:
    """The largest sum of live requests, the position at which it was reached, and what lived then."""
    live: dict[int, Live] = {}
    everything: list[Live] = []
    place = total = peak = peak_at = mark = 0

    def own(until: int) -> None:
        nonlocal mark
        while mark < len(owners) and owners[mark][0] <= until:
            _, factor, addresses = owners[mark]
            for address, name in addresses.items():
                found = live.get(address)
                if found is not None and not found.factor:
                    found.factor, found.name = factor, name
            mark += 1

    for e in trace:
        action = e["action"]
        if action == "alloc":
            own(place)
            place += 1
            made = live[e["addr"]] = Live(e["size"], place, e.get("frames") or ())
            everything.append(made)
            total += -(-e["size"] // 512) * 512
            if total > peak:
                peak, peak_at = total, place
        elif action == "free_requested":
            own(place)
            place += 1
            gone = live.pop(e["addr"], None)
            if gone is not None:
                gone.died = place
                total -= -(-gone.size // 512) * 512
    own(place)
    return peak, peak_at, [a for a in everything if a.born <= peak_at and (a.died is None or a.died > peak_at)]


def phase_at(phases: list[tuple[int, int, str]], at: int) -> tuple[str, int]:
    for end, step, phase in phases:
        if at <= end:
            return phase, step
    return (phases[-1][2], phases[-1][1]) if phases else ("load", 0)


def groups(live: list[Live], allocated: int, phases: Any) -> list[dict[str, Any]]:
    """What lived at the peak by factor, size and origin; the last one is what blocks hold beyond the requests."""
    found: dict[tuple[str, int, str], list[int]] = {}
    for a in live:
        factor = a.factor or factor_of(a, phases)
        where = re.sub(r"\b\d+\b", "*", a.name) if a.name else origin(a.frames)
        entry = found.setdefault((factor, a.size, where), [0, 0])
        entry[0] += 1
        entry[1] += a.size
    rows = [{"factor": f, "bytes": total, "count": n, "each": each, "from": where}
            for (f, each, where), (n, total) in sorted(found.items(), key=lambda g: (-g[1][1], g[0]))]
    for row in rows[ROWS * 10:]:                    # many small ones: one row for each factor
        rows[ROWS * 10 - 1]["bytes"] += row["bytes"]
    rows = rows[:ROWS * 10]
    rest = allocated - sum(a.size for a in live)
    return rows + [{"factor": "rounding", "bytes": rest, "count": len(live), "each": 0, "from": ""}]


def factor_of(a: Live, phases: list[tuple[int, int, str]]) -> str:
    """An activation is made in a forward pass and outlives it; all else that nobody owns is temporary."""
    start = 0
    for end, step, phase in phases:
        if start < a.born <= end:
            if phase == "load":
                return "other"
            return "activations" if phase == "forward" and (a.died is None or a.died > end) else "temporary"
        start = end
    return "temporary"


def place(frame: Any) -> str:
    return f"{frame['filename'].rsplit('/', 1)[-1]}:{frame['line']} {frame['name']}"


def origin(frames: Any) -> str:
    """The innermost line outside of PyTorch; the autograd engine's thread has none."""
    python = [f for f in frames if f["filename"].endswith(".py")]
    for f in python:
        if not any(part in f["filename"] for part in LIBRARIES):
            return place(f)
    return place(python[0]) if python else "backward"


def events(trace: list[Any], phases: list[tuple[int, int, str]]) -> Iterator[str]:
    """Lines of letters and numbers; `F PARENT TEXT` makes the next stack, `m STEP PHASE` ends a phase."""
    stacks: dict[Any, int] = {}
    streams: dict[int, int] = {0: 0}
    lines: list[str] = []
    ends = iter(phases + [(1 << 62, 0, "load")])
    end = next(ends)
    at = began = 0

    def stack(frames: Any) -> int:
        """Outermost first, so that stacks share their beginnings."""
        here = 0
        for f in reversed(frames):
            if f["filename"].endswith(".py"):
                key = (here, f["filename"], f["line"])
                if key not in stacks:
                    stacks[key] = len(stacks) + 1
                    lines.append(f"F {here} {f['filename']}:{f['line']} {f['name']}\n")
                here = stacks[key]
        return here

    by_frames: dict[int, int] = {}
    for i, e in enumerate(trace):
        letter = LETTERS.get(e["action"])
        if letter is None:
            continue
        while letter in "af" and at >= end[0]:
            yield f"m {end[1]} {PHASES.index(end[2])}\n"
            end = next(ends)
        at += letter in "af"
        if letter == "c":
            before = trace[i - 1]
            if before["action"] == "free_requested" and before["addr"] == e["addr"]:
                continue
        if "time_us" in e:
            began = began or e["time_us"]
            yield f"t {e['time_us'] - began}\n"
        if letter in "ao":
            frames = e.get("frames") or ()
            here = by_frames.get(id(frames))
            if here is None:
                here = by_frames[id(frames)] = stack(frames)
            yield from lines
            lines.clear()
        stream = streams.setdefault(e.get("stream", 0), len(streams))
        if letter == "o":
            yield f"o {e.get('device_free', 0)} {e['size']} {stream} {here}\n"
        elif letter == "f":
            after = trace[i + 1] if i + 1 < len(trace) else None
            at_once = after is not None and after["action"] == "free_completed" and after["addr"] == e["addr"]
            yield f"{'f' if at_once else 'p'} {e['addr']}\n"
        elif letter == "c":
            yield f"c {e['addr']}\n"
        elif letter == "a":
            yield f"a {e['addr']} {e['size']} {stream} {here}\n"
        else:
            yield f"{letter} {e['addr']} {e['size']} {stream}\n"
    if end[0] < 1 << 62:
        yield f"m {end[1]} {PHASES.index(end[2])}\n"
    for end in ends:
        if end[0] < 1 << 62:
            yield f"m {end[1]} {PHASES.index(end[2])}\n"
    yield "E\n"
