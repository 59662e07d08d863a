# SPDX-License-Identifier: Apache-2.0
"""The allocator's event stream as a file, for a reimplementation of the allocator to be held against.

One header line, then one line per event: [kind, address, bytes, stream]. Addresses are relative to the lowest one
seen. A free that completes at once is one "f" line; "c" follows only where the block came back later. "o" carries the
device's free bytes in place of the address.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from .ledger import Event

KINDS = {
    "alloc": "a",
    "free_requested": "f",
    "free_completed": "c",
    "segment_alloc": "S",
    "segment_free": "s",
    "segment_map": "M",
    "segment_unmap": "U",
    "oom": "o",
}


def lines(trace: Sequence[Event]) -> Iterator[list[Any]]:
    base = min((e["addr"] for e in trace if e["action"] in KINDS and e["action"] != "oom"), default=0)
    streams: dict[int, int] = {0: 0}
    before: Mapping[str, Any] = {}
    for e in trace:
        kind = KINDS.get(e["action"])
        at_once = kind == "c" and before.get("action") == "free_requested" and before["addr"] == e["addr"]
        before = e
        if kind is None or at_once:
            continue
        stream = streams.setdefault(e["stream"], len(streams))
        if kind == "o":
            yield [kind, e.get("device_free", 0), e["size"], stream]
        elif kind in "fc":
            yield [kind, e["addr"] - base]
        else:
            yield [kind, e["addr"] - base, e["size"], stream]


def write(path: Path, header: Mapping[str, Any], trace: Sequence[Event]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        for value in (header, *lines(trace)):
            out.write((json.dumps(value, separators=(",", ":")) + "\n").encode())
