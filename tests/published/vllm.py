# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM.

vllm-0.19.csv: vLLM 0.19.0 on one to four H100 80GB, utilisation 0.95, of llm-d-planner's accuracy runs
(github.com/llm-d-incubation/llm-d-planner, pull request 205, accuracy/results/v0.19.0/results_raw.csv): "Model loading
took", "Available KV cache memory" and the concurrency as the log has them, GiB of two digits. tidemark plays vLLM 0.32.0.
What the versions do differently, and its size, stands in DIFFERENT; all else is within the bounds below."""

import csv
from pathlib import Path

from check import GIB, Check, answer

WEIGHTS, CACHE, CONCURRENCY = 0.01, 0.04, 0.04  # of the published value
ROUNDING = 0.005  # GiB
# 0.19 charges what NCCL and custom all-reduce take after its first snapshot, 2.1 GiB a rank; 0.32 takes it before it.
# 0.32 keeps blocks of weights whole in segments of up to 20 MiB, which shows where a rank has few.
# 0.19 profiles Gemma 3's tower with other batches of images, and experts in chunks without their workspace kept.
DIFFERENT = {
    ("qwen2.5-72b", "cache"): "2.1 GiB of 3.0 are NCCL's",
    ("mixtral-8x7b", "cache"): "NCCL's, and the experts' workspace",
    ("qwen3-30b-a3b", "cache"): "the experts' workspace",
    ("gemma-3-27b", "cache"): "the tower's batch",
    ("qwen2.5-7b tensor_parallel_size=4", "weights"): "blocks that are not split",
}


def is_different(row, what):
    return any(
        of == what and all(word in f"{row['model']} {row['settings']}".split() for word in words.split())
        for words, of in DIFFERENT
    )


def checks(program):
    with (Path(__file__).parent / "vllm-0.19.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        said = answer(program, "serve", row["model"], "gpu=h100-80", *row["settings"].split())["serving"]
        figures = {
            "weights": (said["model_bytes"] / GIB, float(row["weights_gib"]), WEIGHTS),
            "cache": (said["available"] / GIB, float(row["cache_gib"]), CACHE),
            "concurrency": (said["concurrency_percent"] / 100, float(row["concurrency"]), CONCURRENCY),
        }
        for what, (predicted, published, bound) in figures.items():
            differs = is_different(row, "cache" if what == "concurrency" else what)
            yield Check(f"{row['model']} {row['settings']}: {what}", predicted, published, bound, ROUNDING, differs)
