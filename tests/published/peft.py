# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes of Llama 3.2 3B by methods of PEFT.

peft-l40s.csv: PEFT's own comparison (github.com/huggingface/peft, method_comparison/MetaMathQA, results/*.json of July
2026): accelerator_memory_max, the most bytes that were reserved after a step, on an L40S with torch 2.13 and transformers
5.13; bf16, four samples a batch, padded to the longest, gradients clipped. The longest batch is not published. It is the
same for all: LENGTH, the last one at which LoRA of rank 32 is not above its published bytes."""

import csv
from pathlib import Path

from check import GIB, Check, answer

LENGTH, BOUND = 704, 0.04
JOB = ("llama-3.2-3b", "gpu=l40s", "dtype=bf16", "batch=4", f"seq={LENGTH}", "padding=true", "clip=1.0")
# 6 % more is reserved than a step of this length takes. Why is not known; between steps 50 answers are generated.
DIFFERENT = {"prefixtuning--lr_0.001"}


def checks(program):
    with (Path(__file__).parent / "peft-l40s.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        said = answer(program, "estimate", *JOB, *row["settings"].replace("+", ",").split())
        name, reserved = row["experiment"], int(row["reserved"])
        yield Check(f"{name}: trained parameters", said["model"]["parameters"]["trainable"], int(row["trainable"]), 0)
        yield Check(
            f"{name}: reserved GiB", said["peak"]["reserved"] / GIB, reserved / GIB, BOUND, differs=name in DIFFERENT
        )
