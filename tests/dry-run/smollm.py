# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M from its published configuration, as the scripts here train it."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.backends.cuda.enable_cudnn_sdp(False)          # flash attention, as an A100 chooses by itself


def make(layers=6):
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000,
        tie_word_embeddings=True)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def batch():
    ids = torch.randint(10, 30000, (4, 512)).to("cuda")
    return {"input_ids": ids, "labels": ids.clone()}
