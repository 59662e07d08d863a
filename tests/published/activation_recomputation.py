# SPDX-License-Identifier: Apache-2.0
"""Activations of a transformer layer: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
Models" (arXiv 2205.05198), table 2 and equations 1 to 6, for the models of its table 3 and its 8 tensor parallel ranks.

A layer here is what two more layers add to the activations at the peak, halved. As there: bf16, dropout 0.1 of hidden
states and attention (masks of a byte), attention whose scores and probabilities are kept (attention_backend=unfused),
LayerNorm and GELU. What the paper leaves out and Megatron-Core 0.16.1 keeps: the statistics of norms, fp32 of a token,
and small tensors where the deeper model's peak is at another operation: 0.3 % at most."""

from check import Check, answer

BOUND = 0.01
SEQ, VOCABULARY, TP = 2048, 51200, 8
MODELS = {  # hidden size, heads, micro-batch
    "22B": (6144, 64, 4),
    "175B": (12288, 96, 1),
    "530B": (20480, 128, 1),
    "1T": (25600, 160, 1),
}
SP = "parallel.sequence_parallel=true"
SELECTIVE = "parallel.recompute=selective parallel.recompute_modules=core_attn"
FULL = "parallel.recompute=full parallel.recompute_method=uniform parallel.recompute_layers=1"
# Bytes over s b h, of t and n = 5 a s / h. Full with sequence parallelism keeps a rank's part of the input.
MODES = {
    "no parallelism": (1, "", lambda t, n: 34 + n),
    "tensor parallel": (TP, "", lambda t, n: 10 + 24 / t + n / t),
    "tensor and sequence parallel": (TP, SP, lambda t, n: 34 / t + n / t),
    "selective": (1, SELECTIVE, lambda t, n: 34),
    "tensor parallel, selective": (TP, SELECTIVE, lambda t, n: 10 + 24 / t),
    "tensor and sequence parallel, selective": (TP, f"{SP} {SELECTIVE}", lambda t, n: 34 / t),
    "full": (TP, FULL, lambda t, n: 2),
    "sequence parallel, full": (TP, f"{SP} {FULL}", lambda t, n: 2 / t),
}


def activations(program, model, layers, tp, settings):
    hidden, heads, batch = MODELS[model]
    shape = {"n_embd": hidden, "n_head": heads, "n_layer": layers, "vocab_size": VOCABULARY}
    said = answer(
        program, "estimate", "gpt2-xl", *(f"overrides.{size}={value}" for size, value in shape.items()),
        f"batch={batch}", f"seq={SEQ}", "parallel.kind=megatron", f"parallel.tp={tp}",
        "parallel.distributed_optimizer=false",
        "parallel.microbatches=1", "parallel.attention_backend=unfused", *settings.split(),
    )
    return next(factor["bytes"] for factor in said["factors"] if factor["name"] == "activations")


def checks(program):
    for model, (hidden, heads, batch) in MODELS.items():
        for mode, (tp, settings, formula) in MODES.items():
            most, least = (activations(program, model, layers, tp, settings) for layers in (4, 2))
            published = SEQ * batch * hidden * formula(tp, 5 * heads * SEQ / hidden)
            yield Check(f"{model}, {mode}: MiB", (most - least) / 2 / 2**20, published / 2**20, BOUND)
