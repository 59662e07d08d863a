# SPDX-License-Identifier: Apache-2.0
"""The allocator's history: sizes of blocks, what lived at the peak, and whose it was."""

from __future__ import annotations

import unittest
from typing import Any

from .. import events, ledger, places
from ..blocks import MIB, Blocks, Settings, parse_divisions

OURS = "/recorder/"


def event(action: str, addr: int, size: int = 0, frames: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": frames}


class Sizes(unittest.TestCase):
    def test_requests_are_rounded_up(self) -> None:
        plain = Settings.parse("")
        self.assertEqual([plain.round(n) for n in (1, 512, 513, MIB + 1)], [512, 512, 1024, MIB + 512])

    def test_power_of_two_divisions(self) -> None:
        made = Settings.parse("roundup_power2_divisions:4")
        self.assertEqual(made.round(5 * MIB), 5 * MIB)
        self.assertEqual(made.round(5 * MIB + 1), 6 * MIB)
        self.assertEqual(parse_divisions("[2:1,4:2,>:8]")[:4], [1, 1, 2, 8])

    def test_a_block_is_cut_where_the_rest_is_worth_it(self) -> None:
        plain, expandable = Settings.parse(""), Settings.parse("expandable_segments:True")
        self.assertFalse(plain.cuts(20 * MIB, 19 * MIB, False))
        self.assertTrue(plain.cuts(20 * MIB, 19 * MIB - 512, False))
        self.assertTrue(expandable.cuts(20 * MIB, 20 * MIB - 512, False))
        self.assertFalse(Settings.parse("max_split_size_mb:32").cuts(64 * MIB, 32 * MIB, False))

    def test_free_neighbours_of_a_segment_merge(self) -> None:
        blocks = Blocks(Settings.parse(""))
        blocks.segment(0, 20 * MIB)
        self.assertEqual(blocks.take(0, 4 * MIB), 4 * MIB)
        self.assertEqual(blocks.take(4 * MIB, 4 * MIB), 4 * MIB)
        blocks.give(0)
        blocks.give(4 * MIB)
        self.assertEqual(blocks.size, {0: 20 * MIB})

    def test_segments_do_not_merge(self) -> None:
        blocks = Blocks(Settings.parse(""))
        blocks.segment(0, 2 * MIB)
        blocks.segment(2 * MIB, 2 * MIB)
        blocks.take(0, 512)
        blocks.give(0)
        self.assertEqual(blocks.size, {0: 2 * MIB, 2 * MIB: 2 * MIB})


class Replay(unittest.TestCase):
    trace = [
        event("segment_alloc", 0, 20 * MIB),
        event("alloc", 0, 4 * MIB),
        event("alloc", 4 * MIB, 8 * MIB),
        event("free_requested", 0, 4 * MIB),
        event("free_completed", 0, 4 * MIB),
        event("alloc", 0, 2 * MIB),
    ]

    def test_the_peak_and_what_lived_then(self) -> None:
        history = ledger.replay(self.trace, "", {})
        self.assertEqual((history.peak.bytes, history.peak.at), (12 * MIB, 2))
        self.assertEqual([a.size for a in history.live_at(history.peak.at)], [4 * MIB, 8 * MIB])

    def test_the_steps_have_a_peak_of_their_own(self) -> None:
        self.assertEqual(ledger.replay(self.trace, "", {}, steps_from=3).step_peak.bytes, 10 * MIB)

    def test_categories_add_up_with_other(self) -> None:
        history = ledger.replay(self.trace, "", {2: [("parameters", {0})]})
        ledger.categorise(history, [(1, 2)], set())
        sums = ledger.sums(history.live_at(2), history.peak.bytes, ledger.CATEGORIES)
        self.assertEqual((sums["parameters"], sums["activations"], sums["other"]), (4 * MIB, 8 * MIB, 0))

    def test_an_earlier_mark_stands(self) -> None:
        marks = {1: [("parameters", {0})], 2: [("gradients", {0})]}
        self.assertEqual(ledger.replay(self.trace, "", marks).allocations[0].category, "parameters")

    def test_workspaces_are_known_by_size_and_life(self) -> None:
        size = max(ledger.workspace_sizes(90))
        history = ledger.replay(
            [event("segment_alloc", 0, 64 * MIB), event("alloc", 0, size), event("free_requested", 0)], "", {}
        )
        ledger.categorise(history, [], {size})
        self.assertEqual(history.allocations[0].category, "workspace")

    def test_event_lines_are_relative_and_leave_out_frees_at_once(self) -> None:
        trace = [
            event("segment_alloc", 4096, 2 * MIB),
            *(event(a, 4096, 512) for a in ("alloc", "free_requested", "free_completed")),
        ]
        self.assertEqual(list(events.lines(trace)), [["S", 0, 2 * MIB, 0], ["a", 0, 512, 0], ["f", 0]])


class Origins(unittest.TestCase):
    inner = {"filename": "/lib/torch/nn/functional.py", "line": 7, "name": "linear"}
    model = {"filename": "/lib/transformers/models/llama/modeling_llama.py", "line": 9, "name": "forward"}

    def test_the_models_line_and_the_innermost(self) -> None:
        self.assertEqual(
            places.origin([self.inner, self.model], OURS), "modeling_llama.py:9 forward > functional.py:7 linear"
        )

    def test_without_frames_it_is_the_backward_pass(self) -> None:
        self.assertEqual(places.origin([], OURS), "backward")

    def test_libraries_that_communicate_are_known(self) -> None:
        frame = {
            "filename": "/lib/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
            "line": 1,
            "name": "foreach_reduce",
        }
        self.assertEqual(places.category_of([self.inner, frame]), "communication")
        self.assertEqual(places.category_of([self.inner, self.model]), "")

    def test_groups_leave_out_what_the_model_owns(self) -> None:
        live = [
            ledger.Allocation(0, 100, 512, 1, frames=[self.inner], category="activations"),
            ledger.Allocation(512, 100, 512, 2, frames=[self.inner], category="activations"),
            ledger.Allocation(1024, 9, 512, 3, category="parameters"),
        ]
        expected = {"category": "activations", "bytes": 1024, "count": 2, "each": 100, "from": "functional.py:7 linear"}
        self.assertEqual(ledger.largest_groups(live, OURS, 5), [expected])
