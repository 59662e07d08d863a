# SPDX-License-Identifier: Apache-2.0
"""Cases in their environments: drawing, processes, and what is said where something is missing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from .. import environments, phantom, processes, recording
from ..case import identity
from ..command import main
from ..draw import draw, ranks, trainers


class Drawing(unittest.TestCase):
    def test_every_kind_draws_valid_cases_and_the_same_again(self) -> None:
        for kind in draw.KINDS:
            cases = list(draw.draw(kind, ["gpt2"] if kind == "single" else [], 3, "7"))
            self.assertEqual(len({identity(c) for c in cases}), 3, kind)
            self.assertTrue(all(map(draw.is_valid, cases)), kind)
            self.assertEqual(cases, list(draw.draw(kind, ["gpt2"] if kind == "single" else [], 3, "7")), kind)
            self.assertNotEqual(cases, list(draw.draw(kind, ["gpt2"] if kind == "single" else [], 3, "8")), kind)

    def test_ranks_draw_every_option_and_setting(self) -> None:
        for kind, options in ranks.OPTIONS.items():
            cases = list(draw.draw(kind, ["qwen3-30b-a3b"], 400, "1"))
            plans = [case["parallel"] for case in cases]
            unread = ranks.NOT_READ.get(kind, ())
            self.assertEqual([name for name in options if not any(name in plan for plan in plans)], [], kind)
            self.assertEqual(
                [n for n in ranks.SETTINGS if n not in unread and not any(n in case for case in cases)], [], kind
            )
            self.assertFalse(any(name in case for name in unread for case in cases), kind)

    def test_trainers_are_drawn_on_every_axis(self) -> None:
        cases = list(draw.draw("trainer", [], 400, "7"))
        for name in trainers.SETTINGS:
            self.assertTrue(any(name in c for c in cases), name)
        for kind in trainers.RANKS:
            self.assertTrue(any(c.get("parallel", {}).get("kind") == kind for c in cases), kind)
        for method in ("ia3", "oft"):
            self.assertTrue(any(c.get("lora", {}).get("method") == method for c in cases), method)
        for name in (*trainers.LOOP, *trainers.EVALUATION, "liger_kernel_config"):
            self.assertTrue(any(name in c["trainer"].get("args", {}) for c in cases), name)

    def test_every_variation_of_a_model_is_valid(self) -> None:
        for model in draw.A_FEW:
            self.assertTrue(all(map(draw.is_valid, draw.draw("single", [model], 100, "1", varies=True))), model)

    def test_known_cases_are_left_out(self) -> None:
        def drawn(*more: str) -> list[str]:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(main(["draw", "ddp", "--count", "4", *more]), 0)
            return out.getvalue().splitlines()

        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as known:
            first = drawn()
            known.write("\n".join(first[:3]))
            known.flush()
            self.assertEqual(drawn("--without", known.name), first[3:])


class Processes(unittest.TestCase):
    def test_an_answer_comes_back(self) -> None:
        self.assertEqual(processes.run_in_child(lambda: {"n": 1}), {"n": 1})

    def test_an_exception_is_an_answer_with_its_place(self) -> None:
        found = processes.run_in_child(lambda: {"n": 1 // 0})
        self.assertIn("ZeroDivisionError", found["error"])
        self.assertIn("test_recording.py", found["at"])

    def test_a_process_that_dies_is_told_of(self) -> None:
        self.assertEqual(processes.run_in_child(lambda: os._exit(3)), {"error": "the process died"})

    def test_a_process_that_hangs_is_ended(self) -> None:
        def hang() -> dict[str, object]:
            time.sleep(600)
            return {}

        self.assertEqual(processes.run_in_child(hang, limits=processes.Limits(0.1)), {"error": "took longer than 0 s"})

    def test_a_process_that_takes_too_much_memory_is_ended(self) -> None:
        def fill() -> dict[str, object]:
            kept = b"x" * (64 << 20)
            time.sleep(600)
            return {"n": len(kept)}

        found = processes.run_in_child(fill, limits=processes.Limits(gib=0.05))
        self.assertEqual(found, {"error": "took more than 0.05 GiB of the host's memory"})


class Environments(unittest.TestCase):
    def test_a_case_knows_its_environment(self) -> None:
        self.assertEqual(environments.environment_of({"model": "gpt2"}), "base")
        self.assertEqual(environments.environment_of({"model": "gpt2", "parallel": {"kind": "megatron"}}), "megatron")
        self.assertEqual(environments.environment_of({"model": "gpt2", "engine": "vllm"}), "serving")
        self.assertEqual(environments.environment_of({"model": "gpt2", "engine": "transformers"}), "base")

    def test_what_megatron_decides_when_it_is_imported_is_a_process_each(self) -> None:
        cases = [{"model": "gpt2", "parallel": {"kind": "megatron", "impl": impl}} for impl in ("te", "local", "te")]
        self.assertEqual([len(batch) for _, batch in environments.batches_of(cases)], [2, 1])

    def test_versions_are_pinned(self) -> None:
        for name, group in environments.groups().items():
            for package in (*group.packages, *group.bare, *group.compiled, *group.apart):
                self.assertRegex(package, r"^[\w.-]+==[\w.]+$", name)

    def test_installing_is_a_virtual_environment_and_pip(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TIDEMARK_RECORD=folder):
            with mock.patch("subprocess.run") as run, contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(main(["install", "trainers"]), 0)
            commands = [" ".join(call.args[0]) for call in run.call_args_list]
        self.assertIn(f"-m venv {folder}/base", commands[0])
        self.assertIn("torch==", commands[1])
        self.assertTrue(any("trl==" in c for c in commands))

    def test_what_is_not_installed_is_said(self) -> None:
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TIDEMARK_RECORD=folder):
            cases = Path(folder) / "cases.json"
            cases.write_text(json.dumps({"model": "gpt2"}))
            with contextlib.redirect_stderr(said):
                self.assertEqual(main(["run", str(cases), "--out", folder]), 2)
        self.assertIn("record install base", said.getvalue())

    def test_a_recorder_that_dies_is_an_error_of_its_case(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TIDEMARK_RECORD=folder):
            python = environments.python_of("base")
            python.parent.mkdir(parents=True)
            python.write_text("#!/bin/sh\ncat >/dev/null\nexit 3\n")
            python.chmod(0o755)
            found = list(recording.record([{"model": "gpt2"}], recording.Options(on_gpu=True)))
        self.assertEqual(found, [{"case": {"model": "gpt2"}, "error": "the recorder ended with 3 before this case"}])


class Phantom(unittest.TestCase):
    def test_a_card_is_told_as_the_phantom_reads_it(self) -> None:
        self.assertEqual(phantom.card(80 << 30, 90), f"{80 << 30} 0 90 132 2048")
        self.assertEqual(phantom.card(24 << 30, 89), f"{24 << 30} 0 89 132 2048")
        self.assertEqual(phantom.card(24 << 30, 89, context=1, multiprocessors=128), f"{24 << 30} 1 89 128 1536")

    def test_the_environment_preloads_the_driver(self) -> None:
        made = phantom.environment(Path("/tools"), devices=4)
        self.assertEqual((made["LD_PRELOAD"], made["TIDEMARK_GPUS"]), ("/tools/libcuda.so.1", "4"))

    def test_without_it_nothing_is_resized(self) -> None:
        self.assertFalse(phantom.is_here())
        phantom.become(1 << 30, 90)
