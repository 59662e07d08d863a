# SPDX-License-Identifier: Apache-2.0
"""What differs between a recorded result and a new one of the same case."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

# Not compared: what ran, how long it took, and what says where in a library's source something was allocated.
IGNORED = {"case", "versions", "wall_s", "top_at_peak", "top_at_step_peak", "events", "note"}


def differences(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """A line for each figure that is another, by its place; empty if there is none.  Only what was recorded is held."""
    if "error" in found:
        return [f"error: {found['error']}"]
    return [
        line for key, value in recorded.items() if key not in IGNORED for line in compare(key, value, found.get(key))
    ]


def compare(where: str, recorded: Any, found: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key, value in recorded.items():
            yield from compare(f"{where}.{key}", value, found.get(key))
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for i, (a, b) in enumerate(zip(recorded, found)):
            yield from compare(f"{where}[{i}]", a, b)
    elif recorded != found and not (recorded == 0 and found is None):
        yield f"{where}: {recorded} was recorded, {found} now" + by(recorded, found)


def by(recorded: Any, found: Any) -> str:
    """By how much, for numbers."""
    if isinstance(recorded, bool) or not isinstance(recorded, int) or not isinstance(found, int):
        return ""
    return f" ({found - recorded:+d})"
