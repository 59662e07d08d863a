# SPDX-License-Identifier: Apache-2.0
"""Cases: what is read, what is refused, and names that stay the same."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

from .. import case, catalogue, serving_case
from ..plans import Fsdp2, Zero3
from ..schema import CaseError


class Reading(unittest.TestCase):
    def refused(self, given: case.Given, says: str) -> None:
        with self.assertRaises(CaseError) as caught:
            case.read(given)
        self.assertIn(says, str(caught.exception))

    def test_defaults_are_filled_in(self) -> None:
        read = case.read({"model": "gpt2", "lora": {"r": 8}})
        self.assertEqual((read.batch, read.dtype, read.quant_double, read.lora and read.lora.r), (1, "bf16", True, 8))

    def test_keys_with_dots(self) -> None:
        self.assertFalse(case.read({"model": "gpt2", "quant.double": False}).quant_double)

    def test_parallel_is_read_by_its_kind(self) -> None:
        self.assertIsInstance(case.read({"model": "gpt2", "parallel": {"kind": "fsdp2", "dp": 2}}).parallel, Fsdp2)
        self.assertIsInstance(case.read({"model": "gpt2", "parallel": {"kind": "zero3", "dp": 2}}).parallel, Zero3)

    def test_unknown_keys_and_wrong_types_are_refused_by_name(self) -> None:
        self.refused({"model": "gpt2", "bacth": 2}, "unknown keys of case: bacth")
        self.refused({"batch": 2}, "case needs model")
        self.refused({"model": "gpt2", "batch": "2"}, "case.batch is '2'")
        self.refused({"model": "gpt2", "batch": True}, "case.batch is True")
        self.refused({"model": "gpt2", "dtype": "int3"}, "case.dtype is 'int3'")
        self.refused({"model": "gpt2", "lora": 8}, "case.lora is 8")
        self.refused({"model": "gpt2", "lora": {"rank": 8}}, "rank")

    def test_contradictions_are_refused(self) -> None:
        self.refused({"model": "gpt2", "parallel": {"dp": 2}}, "parallel needs a kind")
        self.refused({"model": "gpt2", "parallel": {"kind": "ddp", "dp": 2, "rank": 2}}, "rank 2 of 2")
        self.refused({"model": "gpt2", "parallel": {"kind": "ddp", "dp": 2, "tp": 2}}, "tp is not for kind ddp")
        self.refused({"model": "gpt2", "mode": "infer", "parallel": {"kind": "ddp", "dp": 2}}, "parallel cases train")
        self.refused({"model": "gpt2", "scaler": True, "parallel": {"kind": "zero2", "dp": 2}}, "kinds ddp and fsdp2")
        self.refused({"model": "gpt2", "parallel": {"kind": "fsdp1", "dp": 2, "strategy": "HYBRID_SHARD"}}, "hybrid")

    def test_a_trainer_refuses_what_it_does_not_read(self) -> None:
        def of(kind: str, **more: object) -> case.Given:
            return {"model": "gpt2", "trainer": {"kind": kind, **more}}

        self.refused({**of("sft"), "kernels": "cce"}, "sft has no kernels of cce")
        self.assertEqual(case.read({**of("hf"), "kernels": "cce"}).kernels, "cce")
        self.refused({**of("hf"), "kernels": "liger_layers"}, "hf has no kernels of liger_layers")
        self.refused({**of("hf"), "adapter.merged": True, "labels": False}, "does not read labels, adapter.merged")
        self.refused({**of("hf"), "loss": "shifted"}, "does not read loss")
        self.refused({**of("reward"), "images": 2}, "no images")
        self.refused({**of("hf"), "checkpointing": "selective"}, "selective checkpointing")
        self.refused({**of("sft"), "compile": {"what": "layers"}}, "of compile a trainer reads mode")
        mixed = {"kind": "fsdp2", "dp": 2, "param_dtype": "bf16"}
        self.refused({**of("hf"), "parallel": mixed}, "takes FSDP's dtypes from autocast")
        self.assertEqual(case.read({**of("hf"), "parallel": mixed, "autocast": "bf16"}).autocast, "bf16")
        self.refused(of("sft", generations=8), "sft does not read generations")
        self.refused(of("rloo", loss_type="grpo"), "rloo does not read loss_type")
        self.refused(of("hf", prompt=16), "hf does not read prompt")
        self.refused(of("sft", documents=4), "documents are of packed rows")


class Names(unittest.TestCase):
    def test_a_name_does_not_depend_on_order_id_or_note(self) -> None:
        name = case.identity({"model": "gpt2", "batch": 2})
        self.assertEqual(name, case.identity({"note": "x", "id": "y", "batch": 2, "model": "gpt2"}))
        self.assertNotEqual(name, case.identity({"model": "gpt2", "batch": 3}))
        self.assertRegex(name, "^gpt2-[0-9a-f]{8}$")

    def test_files_hold_cases_lists_and_results(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            one, many, lines = (Path(folder) / name for name in ("one.json", "many.json", "lines.jsonl"))
            one.write_text(json.dumps({"model": "a"}))
            many.write_text(json.dumps([{"model": "b"}, {"model": "c", "id": "mine"}]))
            lines.write_text(json.dumps({"case": {"model": "d"}, "outcome": "ok"}) + "\n\n")
            read = case.read_files([one, many, lines])
        self.assertEqual([c["model"] for c in read], ["a", "b", "c", "d"])
        self.assertEqual(read[2]["id"], "mine")
        self.assertTrue(all(c["id"] for c in read))


class Models(unittest.TestCase):
    def test_overrides_and_dropout_change_a_copy(self) -> None:
        given = {"model": "llama-3.2-1b", "overrides": {"num_hidden_layers": 3, "rope.base": 1}, "dropout": 0.25}
        model = catalogue.of_case(case.read(given), [])
        self.assertEqual((model.config["num_hidden_layers"], model.config["rope"]), (3, {"base": 1}))
        self.assertEqual(model.config["attention_dropout"], 0.25)
        self.assertNotEqual(catalogue.find("llama-3.2-1b", []).config["num_hidden_layers"], 3)

    def test_an_unknown_model_is_named(self) -> None:
        with self.assertRaisesRegex(CaseError, "no model nonsense"):
            catalogue.find("nonsense", [])


class Serving(unittest.TestCase):
    def test_other_keys_are_the_engines(self) -> None:
        given = {"model": "gpt2", "gpu": "l4", "max_model_len": 512, "tensor_parallel_size": 2}
        read = serving_case.read(given)
        self.assertTrue(serving_case.is_one(given))
        self.assertEqual((read.arguments, read.ranks), ({"max_model_len": 512, "tensor_parallel_size": 2}, 2))
        self.assertEqual(read.device_bytes, int(22.05 * 1024) << 20)

    def test_an_unknown_gpu_is_refused(self) -> None:
        with self.assertRaisesRegex(CaseError, "no GPU h900"):
            serving_case.read({"model": "gpt2", "gpu": "h900"})
