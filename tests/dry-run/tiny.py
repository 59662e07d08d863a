# SPDX-License-Identifier: Apache-2.0
"""What the trainers' programs share: a small model made in memory and a tokenizer of its own."""
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

import torch


def tokenizer():
    words = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(61))])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def model(kind=AutoModelForCausalLM, **more):
    config = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=8192, pad_token_id=0, eos_token_id=1, bos_token_id=1, **more)
    return kind.from_config(config, dtype=torch.bfloat16)


def words(count):
    return " ".join(f"w{i % 61}" for i in range(count))
