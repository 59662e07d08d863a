# SPDX-License-Identifier: Apache-2.0
"""The allocator's own history, replayed: which bytes were live when the peak was reached, and whose they were.

PyTorch records every allocation with its requested size and address, and every segment (torch.cuda.memory._snapshot);
the sum of live blocks is torch.cuda.memory_allocated() to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

from . import places
from .blocks import MIB, Blocks, Settings

Event = Mapping[str, Any]  # of a device trace
Marks = Mapping[int, Sequence[tuple[str, set[int]]]]  # position -> [(category, storage addresses then)]
Spans = Sequence[tuple[int, int]]  # positions at which forward passes begin and end
NEVER = 1 << 62


@dataclass(slots=True)
class Allocation:
    address: int
    requested: int  # bytes asked for
    size: int  # bytes of the block, what memory_allocated counts
    born: int  # position in the stream of allocations and frees
    died: int = NEVER
    frames: Sequence[places.Frame] = ()
    category: str = ""


@dataclass
class Peak:
    bytes: int = 0
    at: int = 0  # position of the allocation that reached it

    def see(self, total: int, position: int) -> None:
        if total > self.bytes:
            self.bytes, self.at = total, position


@dataclass
class History:
    allocations: list[Allocation] = field(default_factory=list)
    peak: Peak = field(default_factory=Peak)
    step_peak: Peak = field(default_factory=Peak)  # of the steps alone

    def live_at(self, position: int) -> list[Allocation]:
        return [a for a in self.allocations if a.born <= position < a.died]


def replay(trace: Iterable[Event], conf: str, marks: Marks, steps_from: int = 0) -> History:
    """Replays a device trace. A later mark does not overrule an earlier one. steps_from: where the first step
    begins."""
    blocks, history = Blocks(Settings.parse(conf)), History()
    live: dict[int, Allocation] = {}
    position = total = 0

    def mark() -> None:
        for category, addresses in marks.get(position, ()):
            for address in addresses:
                known = live.get(address)
                if known is not None and not known.category:
                    known.category = category

    for e in trace:
        action, at, size = e["action"], e.get("addr", 0), e.get("size", 0)
        if action == "alloc":
            position += 1
            a = live[at] = Allocation(at, size, blocks.take(at, size), position, frames=e.get("frames", ()))
            history.allocations.append(a)
            total += a.size
            history.peak.see(total, position)
            if position > steps_from:
                history.step_peak.see(total, position)
            mark()
        elif action == "free_requested":
            position += 1
            a = live.pop(at)
            a.died = position
            total -= a.size
            mark()
        elif action == "free_completed":
            blocks.give(at)
        elif action == "segment_alloc":
            blocks.segment(at, size)
        elif action == "segment_map":
            blocks.map(at, size)
        elif action == "segment_unmap":
            blocks.unmap(at, size)
        elif action == "segment_free":
            blocks.segment_gone(at)
    return history


# ---- whose it was ----


def workspace_sizes(capability: int) -> set[int]:
    """Bytes of the cuBLAS and cuBLASLt workspaces that PyTorch asks for: ATen/cuda/CublasHandlePool.cpp,
    parseChosenWorkspaceSize (4096 KiB x 2 + 16 KiB x 8, 32 MiB from Hopper on) and _getWorkspaceSize."""
    return {32 * MIB, MIB} if capability >= 90 else {(4096 * 2 + 16 * 8) << 10, MIB}


def categorise(history: History, forward: Spans, workspaces: set[int]) -> None:
    """What no mark named: what its place in a library says, a workspace (freed at once), an activation (outlived the
    forward pass that made it), or temporary."""
    spans = iter([*forward, (NEVER, NEVER)])
    start, end = next(spans)
    for a in history.allocations:
        while a.born > end:
            start, end = next(spans)
        a.category = a.category or places.category_of(a.frames)
        if a.category:
            continue
        if a.requested in workspaces and a.died == a.born + 1:
            a.category = "workspace"
        elif start < a.born <= end < a.died:
            a.category = "activations"
        else:
            a.category = "temporary"


CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "buffers",
    "inputs",
    "kv_cache",
    "workspace",
    "temporary",
)


def categories_of(has_ranks: bool, has_master: bool, has_trainer: bool) -> tuple[str, ...]:
    """The categories of a run, in the order of its result."""
    more = ("master", "gathered", "communication") if has_ranks else ("master",) if has_master else ()
    return CATEGORIES + more + (("reference",) if has_trainer else ())


def sums(live: Iterable[Allocation], peak: int, categories: Iterable[str]) -> dict[str, int]:
    """Bytes by category, which with "other" add up to the peak."""
    total = {name: 0 for name in categories}
    for a in live:
        total[a.category] += a.size
    total["other"] = peak - sum(total.values())
    return total


OWNED = ("parameters", "master", "reference", "gradients", "optimizer")


def largest_groups(live: Iterable[Allocation], ours: str, count: int) -> list[dict[str, Any]]:
    """Live allocations that no model or optimizer owns, by category, size and origin; the largest sum first."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for a in live:
        if a.category not in OWNED:
            group = groups.setdefault((a.category, a.requested, places.origin(a.frames, ours)), [0, 0])
            group[0] += 1
            group[1] += a.size
    ranked = sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))[:count]
    return [
        {"category": category, "bytes": total, "count": n, "each": each, "from": where}
        for (category, each, where), (n, total) in ranked
    ]
