#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of llama.cpp on the CPU, of small models with random weights: what its log says of its buffers.

    tests/llama_cpp/record.py FOLDER >tests/llama_cpp/starts.jsonl

Needs the packages xllamacpp (llama.cpp b11549) and gguf 0.19. FOLDER is for the models. A line has the header of the
model as tidemark reads it, settings, and the sizes that the log prints, MiB with two digits."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = "tidemark"
SIZES = {"layers": 4, "embd": 1024, "heads": 16, "kv": 4, "head": 64, "ff": 4096, "vocab": 8192}
WINDOW = {"layers": 6, "post": True}
MODELS = {
    "llama": {},
    "llama-untied": {"arch": "llama", "untied": True, "type": "Q8_0"},
    "qwen2": {"bias": True},
    "qwen3": {"norms": True, "head": 128},
    "qwen3moe": {"norms": True, "head": 128, "experts": 8, "used": 2, "expert_ff": 512},
    "gemma2": {**WINDOW, "keys": {"attention.sliding_window": 512}},
    "gemma3": {**WINDOW, "norms": True, "keys": {"attention.sliding_window": 512}},
}
SETTINGS = [
    {},
    {"n_parallel": 4, "n_ctx": 8192},
    {"n_parallel": 4, "n_ctx": 8192, "kv_unified": True},
    {"n_ubatch": 128, "n_ctx": 2048},
    {"cache_type_k": 8, "cache_type_v": 8},
]
TYPES = {8: "q8_0"}


def write_model(path, name, layers, embd, heads, kv, head, ff, vocab, arch=None, untied=False, type="F16", bias=False,
                norms=False, post=False, experts=0, used=0, expert_ff=0, keys=None):
    import gguf
    import numpy

    arch = arch or name
    writer = gguf.GGUFWriter(path, arch)
    random = numpy.random.default_rng(0)
    writer.add_context_length(8192)
    writer.add_embedding_length(embd)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(vocab)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
        writer.add_expert_feed_forward_length(expert_ff)
    for key, value in (keys or {}).items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([f"t{i}" for i in range(vocab)])
    writer.add_token_types([1] * vocab)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    kind = gguf.GGMLQuantizationType[type]

    def add(tensor, *shape, is_f32=False):
        values = (random.standard_normal(shape) * 0.02).astype(numpy.float32)
        if len(shape) < 2 or is_f32:
            writer.add_tensor(tensor, values)
        else:
            writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", vocab, embd)
    add("output_norm.weight", embd)
    if untied:
        add("output.weight", vocab, embd)
    for layer in range(layers):
        block = f"blk.{layer}."
        for part, rows in (("q", heads), ("k", kv), ("v", kv)):
            add(f"{block}attn_{part}.weight", rows * head, embd)
            if bias:
                add(f"{block}attn_{part}.bias", rows * head)
        add(f"{block}attn_output.weight", embd, heads * head)
        for norm in ["attn_norm", "ffn_norm"] + ["post_attention_norm", "post_ffw_norm"] * post:
            add(f"{block}{norm}.weight", embd)
        for norm in ["attn_q_norm", "attn_k_norm"] * norms:
            add(f"{block}{norm}.weight", head)
        if experts:
            add(f"{block}ffn_gate_inp.weight", experts, embd, is_f32=True)
            for part in ("gate", "up"):
                add(f"{block}ffn_{part}_exps.weight", experts, expert_ff, embd)
            add(f"{block}ffn_down_exps.weight", experts, embd, expert_ff)
        else:
            for part in ("gate", "up"):
                add(f"{block}ffn_{part}.weight", ff, embd)
            add(f"{block}ffn_down.weight", embd, ff)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def start(path, settings):
    """One start in a process of its own, for its log."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 4096
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = 10
    for name, value in settings.items():
        setattr(params, name, xllamacpp.ggml_type(value) if name.startswith("cache_type") else value)
    xllamacpp.Server(params)


def read_log(log):
    """The last of the loads: the first ones only measure."""
    sizes = {"kv": [], "model": 0.0, "compute": 0.0}
    for line in log.splitlines():
        found = re.search(r"(model|KV|compute|RS) buffer size = +([\d.]+) MiB", line)
        if not found:
            continue
        kind, size = found[1].lower(), float(found[2])
        if "load_tensors" in line and kind == "model":
            sizes = {"kv": [], "model": 0.0, "compute": 0.0}
        if kind in ("kv", "rs"):
            sizes["kv"].append(size)
        else:
            sizes[kind] = size
    return sizes


def main(folder):
    for name, model in MODELS.items():
        path = str(Path(folder) / f"{name}.gguf")
        write_model(path, name, **{**SIZES, **model})
        first = base64.b64encode(Path(path).read_bytes()[: 1 << 20]).decode()
        asked = subprocess.run([PROGRAM, "call"], input=json.dumps({"call": "gguf", "base64": first}),
                               capture_output=True, text=True, check=True)
        header = json.loads(asked.stdout)["text"]
        for settings in SETTINGS:
            run = subprocess.run(["timeout", "20", sys.executable, __file__, "start", path, json.dumps(settings)],
                                 capture_output=True, text=True)
            said = [f"{key.replace('n_ctx', 'ctx_size')}={TYPES[value] if key.startswith('cache_type') else value}"
                    for key, value in {"n_ctx": 4096, "n_parallel": 1, **settings}.items()]
            print(json.dumps({"name": name, "settings": [word.lower() if "kv_unified" in word else word for word in said],
                              "header": header, **read_log(run.stderr + run.stdout)}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main(sys.argv[1])
