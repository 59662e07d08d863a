# SPDX-License-Identifier: Apache-2.0
"""Results: where they go, what is kept, what differs, and that those of the repository are sound."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from .. import check, compare, results, serving_case
from ..case import read
from ..command import main

RESULT = {
    "case": {"id": "one", "model": "gpt2"},
    "outcome": "ok",
    "wall_s": 1.0,
    "steps": [{"peak_forward": 10, "after_step": 4, "allocated_peak": 10}],
    "allocated_peak": 10,
    "reserved_peak": 20,
    "at_peak": {"parameters": 10, "other": 0},
}


class Places(unittest.TestCase):
    def test_every_kept_result_is_in_its_file(self) -> None:
        found = {path.relative_to(results.RESULTS) for path in results.files()}
        self.assertGreater(len(found), 100)
        for path, result in results.all_of(results.files()):
            self.assertEqual(results.place(result["case"]), path.relative_to(results.RESULTS), result["case"]["id"])

    def test_kinds_have_folders(self) -> None:
        for given, place in (
            ({"model": "gpt2"}, "gpt2.jsonl"),
            ({"model": "gpt2", "parallel": {"kind": "ddp"}}, "parallel/ddp.jsonl"),
            ({"model": "gpt2", "trainer": {"kind": "sft"}}, "trainers/sft.jsonl"),
            ({"model": "gpt2", "trainer": {"kind": "sft"}, "parallel": {"kind": "ddp"}}, "trainers/sft_ranks.jsonl"),
            ({"model": "gpt2", "compile": {"what": "model"}}, "compile/gpt2.jsonl"),
            ({"model": "gpt2", "kernels": "liger"}, "kernels/gpt2.jsonl"),
            ({"model": "x", "config": {"_class_name": "UNet2DConditionModel"}}, "unet.jsonl"),
            ({"model": "x", "config": {"architecture": "resnet50"}}, "resnet.jsonl"),
        ):
            self.assertEqual(str(results.place(given)), place)


class Files(unittest.TestCase):
    def test_append_read_and_replace(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = results.append(folder, results.trimmed(RESULT))
            results.append(folder, {**RESULT, "case": {"id": "two", "model": "gpt2"}})
            self.assertEqual(results.ids(folder), {"one", "two"})
            results.replace(path, {"two": {**RESULT, "case": {"id": "two", "model": "gpt2"}, "allocated_peak": 11}})
            self.assertEqual([r["allocated_peak"] for r in results.read(path)], [10, 11])
            self.assertNotIn("wall_s", next(results.read(path)))


class Differences(unittest.TestCase):
    def test_figures_are_named_with_their_place(self) -> None:
        found = {**RESULT, "steps": [{"peak_forward": 12, "after_step": 4, "allocated_peak": 10}], "wall_s": 9}
        self.assertEqual(compare.differences(RESULT, found), ["steps[0].peak_forward: 10 was recorded, 12 now (+2)"])

    def test_what_is_new_is_no_difference_and_an_error_is_one(self) -> None:
        self.assertEqual(compare.differences(RESULT, {**RESULT, "more": 1}), [])
        self.assertEqual(compare.differences(RESULT, {"case": {}, "error": "E"}), ["error: E"])


class Soundness(unittest.TestCase):
    def complaints(self, **changes: object) -> list[str]:
        return list(check.complaints({**RESULT, **changes}, read({"model": "gpt2"})))

    def test_complaints(self) -> None:
        self.assertEqual(self.complaints(), [])
        self.assertIn("more allocated than reserved", self.complaints(reserved_peak=9))
        self.assertIn("categories leave 2 bytes", self.complaints(at_peak={"parameters": 8, "other": 2}))
        growing = [{"after_step": n, "allocated_peak": 10} for n in (1, 2, 3)]
        self.assertIn("memory still grows from step to step", self.complaints(steps=growing))

    def test_an_engines_arithmetic(self) -> None:
        result = {
            "case": {"model": "gpt2"},
            "memory": {"available_kv_bytes": 100},
            "kv": {"num_blocks": 9, "block_bytes": 10},
        }
        self.assertEqual(list(check.serving_complaints(result)), ["num_blocks is 9, 10 by the rule"])

    def test_the_results_of_the_repository(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = main(["check"])
        self.assertEqual(status, 0, said.getvalue())


class Engines(unittest.TestCase):
    def test_kept_starts_are_engines_cases(self) -> None:
        for path in sorted((results.RESULTS / "serving").glob("*.jsonl")):
            self.assertTrue(all(serving_case.is_one(r["case"]) for r in results.read(path)))
