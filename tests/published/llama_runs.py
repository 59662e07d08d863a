# SPDX-License-Identifier: Apache-2.0
"""Llama under Megatron-LM by tensor, pipeline, context and data parallel ranks: Fujii et al. 2024 (arXiv 2411.06465).

Of their 454 runs on A100 and H100 none was out of memory where their estimate was below 80 % of the device. The table
of the runs is not public, so the rule is held over layouts that are drawn: where the study says that a job runs, tidemark
does, and it says so of no device that is smaller than what no run is without, their model states and activations.
Their activations count the gated unit as PyTorch saves it; Megatron-Core's fused one keeps the product's output alone."""

import random

from check import Between, answer

LAYOUTS, SEED = 60, 454
SAFE = 0.8
COMMUNICATOR = 0.5e9
SIZES = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4, 8), "cp": (1, 2), "dp": (1, 2, 4, 8, 16)}
MODELS = {  # hidden size, intermediate size, heads, groups, layers, vocabulary
    "llama-2-7b": (4096, 11008, 32, 32, 32, 32000),
    "llama-2-13b": (5120, 13824, 40, 40, 40, 32000),
    "llama-2-70b": (8192, 28672, 64, 8, 80, 32000),
    "llama-3.1-8b": (4096, 14336, 32, 8, 32, 128256),
    "llama-3.1-70b": (8192, 28672, 64, 8, 80, 128256),
}
UNFUSED, FUSED = 8, 6  # bytes of a gated unit, of a token and an inner feature


def states(model, tp, pp, ranks):
    """Of the first stage: bf16 parameters, fp32 gradients, and Adam's states over the data parallel ranks."""
    hidden, inner, heads, groups, layers, vocabulary = MODELS[model]
    layer = (2 * hidden * hidden * (1 + groups / heads) + 3 * hidden * inner) / tp + 2 * hidden
    embeddings = vocabulary * hidden / tp * (2 if pp == 1 else 1)
    return (layers / pp * layer + embeddings) * (6 + 12 / ranks)


def activations(model, tokens, gated_unit):
    """Of the first stage, which keeps as many micro-batches as there are stages: of all layers."""
    hidden, inner, heads, groups, layers, _ = MODELS[model]
    return layers * tokens * (hidden * (12 + 4 * groups / heads) + gated_unit * inner)


def checks(program):
    draw = random.Random(SEED)
    for _ in range(LAYOUTS):
        model, batch, seq = draw.choice(list(MODELS)), draw.choice((1, 2)), draw.choice((4096, 8192))
        sizes = {name: draw.choice(choices) for name, choices in SIZES.items()}
        tp, pp, cp, dp = sizes.values()
        words = [
            model, f"batch={batch}", f"seq={seq}", "clip=1.0", "parallel.kind=megatron",
            *(f"parallel.{name}={size}" for name, size in sizes.items()),
            f"parallel.microbatches={pp * draw.choice((1, 2, 4))}",
            f"parallel.sequence_parallel={'true' if tp > 1 else 'false'}",
        ]
        said = answer(program, "estimate", *words)
        kept, tokens = states(model, tp, pp, dp * cp), batch * seq / tp / cp
        estimate = kept + activations(model, tokens, UNFUSED) + COMMUNICATOR * sum(size > 1 for size in sizes.values())
        least = kept + activations(model, tokens, FUSED)
        yield Between(f"llama runs: {' '.join(words)}", said["smallest_device_bytes"], least, estimate / SAFE)
