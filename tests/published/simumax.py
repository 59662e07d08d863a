# SPDX-License-Identifier: Apache-2.0
"""Training with Megatron-LM on eight B200.

simumax-b200.csv: the rows of SimuMax's release 1.2 (github.com/MooreThreads/SimuMax,
docs/b200/b200_release_v1.2_summary.md), "real alloc GiB": torch.cuda.max_memory_allocated(), largest of all ranks;
Megatron-LM 23e00ed, Transformer Engine 2.11, PyTorch 2.10; mbc are the micro-batches. Shapes: its configs/models."""

import csv
from pathlib import Path

from check import GIB, Check, Fits, answer

DENSE = 0.003
# flash-attn 2 takes one size of heads: values and outputs of latent attention are padded from 128 to 192, 128 MiB a
# layer and a copy of one (shared by all that tidemark plays). Attention of cuDNN, as in these runs, takes both.
MIXTURE = 0.03
ROUNDING = 0.005  # GiB

SHAPES = {
    "llama3_70b": "llama-3.1-8b overrides.hidden_size=8192 overrides.intermediate_size=28672 "
    "overrides.num_attention_heads=64 overrides.num_key_value_heads=8 overrides.vocab_size=128256 "
    "overrides.head_dim=128",
    "llama3_405b": "llama-3.1-8b overrides.hidden_size=16384 overrides.intermediate_size=53248 "
    "overrides.num_attention_heads=128 overrides.num_key_value_heads=16 overrides.vocab_size=128256 "
    "overrides.head_dim=128",
    "deepseekv2": "deepseek-v2-lite overrides.hidden_size=5120 overrides.intermediate_size=12288 "
    "overrides.num_attention_heads=128 overrides.num_key_value_heads=128 overrides.q_lora_rank=1536 "
    "overrides.n_routed_experts=160 overrides.moe_intermediate_size=1536 overrides.first_k_dense_replace=1",
    "deepseekv3": "deepseek-v3 overrides.first_k_dense_replace=1",
}
# Its script lets each token go to experts of some ranks only, and pads what comes to an expert to its capacity.
GROUPS = {"deepseekv2": 3, "deepseekv3": 4}
# The release of Transformer Engine writes the gradient over the logits; the tokenizer adds a token.
COMMON = (
    "batch=1 steps=2 clip=1.0 parallel.kind=megatron parallel.cp_comm_type=a2a parallel.overlap_p2p=false "
    "parallel.extra_tokens=1 parallel.cross_entropy_fusion=te_in_place"
)


def layout(row):
    for size in ("tp", "pp", "cp", "dp", "ep"):
        yield f"parallel.{size}={row[size]}"
    yield f"parallel.microbatches={row['mbc']}"
    yield f"parallel.sequence_parallel={'true' if int(row['tp']) > 1 else 'false'}"
    if row["model"] in GROUPS:
        yield f"parallel.router_groups={row['ep']}"
        yield f"parallel.router_group_topk={GROUPS[row['model']]}"
        yield "parallel.capacity_factor=1"
        yield "parallel.pad_to_capacity=true"
        yield "parallel.permute_fusion=true"
        yield "parallel.load_balancing=seq_aux_loss"


def checks(program):
    with (Path(__file__).parent / "simumax-b200.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        words = f"{SHAPES[row['model']]} overrides.num_hidden_layers={row['layers']} seq={row['seq']} {COMMON}"
        said = answer(program, "estimate", *words.split(), *layout(row))
        most = max(rank["allocated"] for rank in [said["peak"], *said.get("ranks", [])]) / GIB
        bound = MIXTURE if row["model"] in GROUPS else DENSE
        name, real = f"simumax {' '.join(row.values())}", float(row["real_alloc_gib"])
        yield Check(name, most, real, bound, ROUNDING)
        yield Fits(name, said["smallest_device_bytes"] / GIB, real - ROUNDING)
