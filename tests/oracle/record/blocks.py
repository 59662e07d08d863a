# SPDX-License-Identifier: Apache-2.0
"""Blocks and segments of PyTorch's caching allocator, as its recorded events move them.

Which address a request gets is recorded, not decided here; what follows from the rules is how large the block behind
it is: a free block is handed out whole unless should_split() cuts it (c10/cuda/CUDACachingAllocator.cpp).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MIB = 1 << 20
SMALL_LIMIT = MIB  # kSmallSize: requests of more bytes come from the large pool
GRAIN = 512  # kMinBlockSize: every block is a multiple of this many bytes
UNLIMITED = 1 << 62
DIVISION_SIZES = 16  # of roundup_power2_divisions: 1, 2, 4, ... MiB, and all above


@dataclass
class Settings:
    """The parts of PYTORCH_CUDA_ALLOC_CONF that decide block sizes."""

    expandable: bool = False
    max_split: int = UNLIMITED  # bytes
    divisions: list[int] = field(default_factory=list)  # of requests from 1, 2, 4, ... MiB on

    @classmethod
    def parse(cls, text: str) -> Settings:
        made = cls()
        for key, value in re.findall(r"(\w+):(\[[^\]]*\]|[^,]*)", text):
            if key == "expandable_segments":
                made.expandable = value == "True"
            elif key == "max_split_size_mb":
                made.max_split = int(value) * MIB
            elif key == "roundup_power2_divisions":
                made.divisions = parse_divisions(value)
        return made

    def round(self, size: int) -> int:
        """The bytes of the block that a request asks for: round_size()."""
        if size < GRAIN:
            return GRAIN
        count = self.divisions[min(max(size.bit_length() - 21, 0), DIVISION_SIZES - 1)] if self.divisions else 0
        if count > 1 and size > GRAIN * count:
            floor = 1 << (size.bit_length() - 1)
            if floor != size:
                step = floor // count
                size = floor + -(-(size - floor) // step) * step
            return size
        return -(-size // GRAIN) * GRAIN

    def cuts(self, block: int, size: int, small: bool) -> bool:
        """Whether a free block of `block` bytes is split for a request: should_split()."""
        rest = block - size
        if small or self.expandable:
            return rest >= GRAIN
        return size < self.max_split and rest > SMALL_LIMIT


def parse_divisions(value: str) -> list[int]:
    """ "8" or "[256:1,512:2,>:4]" as divisions for requests from 1 MiB, 2 MiB, ... up to 32 GiB and more."""
    if not value.startswith("["):
        return [int(value)] * DIVISION_SIZES
    made, first = [0] * DIVISION_SIZES, True
    for limit, count in re.findall(r"(\d+|>):(\d+)", value):
        if limit == ">":
            at = max(i for i, d in enumerate(made) if d) + 1 if any(made) else 0
            made[at:] = [int(count)] * (DIVISION_SIZES - at)
            continue
        at = int(limit).bit_length() - 1
        if first:
            made[:at] = [int(count)] * at
            first = False
        made[at] = int(count)
    return made


class Blocks:
    """The blocks of all segments, by address."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.size: dict[int, int] = {}
        self.free: set[int] = set()
        self.start_of: dict[int, int] = {}  # by end
        self.segments: set[int] = set()  # where one begins: blocks do not merge across

    def put(self, start: int, size: int, free: bool) -> None:
        self.size[start] = size
        self.start_of[start + size] = start
        (self.free.add if free else self.free.discard)(start)

    def drop(self, start: int) -> int:
        size = self.size.pop(start)
        self.start_of.pop(start + size, None)
        self.free.discard(start)
        return size

    def segment(self, start: int, size: int) -> None:
        self.segments.add(start)
        self.put(start, size, True)

    def segment_gone(self, start: int) -> None:
        self.drop(start)
        self.segments.discard(start)

    def map(self, start: int, size: int) -> None:
        self.put(start, size, True)
        self.merge(start)

    def unmap(self, start: int, size: int) -> None:
        at = next(b for b in self.free if b <= start and start + size <= b + self.size[b])
        whole = self.drop(at)
        if at < start:
            self.put(at, start - at, True)
        if start + size < at + whole:
            self.put(start + size, at + whole - start - size, True)

    def take(self, start: int, requested: int) -> int:
        """Hands out the free block at an address; returns the bytes of what was handed out."""
        size, block = self.settings.round(requested), self.drop(start)
        if self.settings.cuts(block, size, size <= SMALL_LIMIT):
            self.put(start, size, False)
            self.put(start + size, block - size, True)
            return size
        self.put(start, block, False)
        return block

    def give(self, start: int) -> None:
        self.free.add(start)
        self.merge(start)

    def merge(self, start: int) -> None:
        size = self.drop(start)
        after = start + size
        if after in self.free and after not in self.segments:
            size += self.drop(after)
        before = self.start_of.get(start)
        if before is not None and before in self.free and start not in self.segments:
            size += self.drop(before)
            start = before
        self.put(start, size, True)
