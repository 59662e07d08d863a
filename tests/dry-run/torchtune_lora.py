# SPDX-License-Identifier: Apache-2.0
"""LoRA on a small Llama 3.2 of torchtune's own modules, with its chunked loss, as its single-device recipe steps."""
import torch
from torchtune.models.llama3_2 import lora_llama3_2
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params
from torchtune.training import get_dtype, set_activation_checkpointing
from torchtune import modules

dtype = get_dtype("bf16", torch.device("cuda"))
torch.set_default_dtype(dtype)
with torch.device("cuda"):
    model = lora_llama3_2(lora_attn_modules=["q_proj", "v_proj"], apply_lora_to_mlp=True, vocab_size=32000, num_layers=4,
                          num_heads=8, num_kv_heads=2, embed_dim=512, max_seq_len=512, intermediate_dim=1536, lora_rank=8,
                          lora_alpha=16)
torch.set_default_dtype(torch.float32)
set_trainable_params(model, get_adapter_params(model))
set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
loss_fn = CEWithChunkedOutputLoss()
model.set_num_output_chunks(loss_fn.num_output_chunks)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), fused=True)
for _ in range(3):
    tokens = torch.randint(0, 32000, (2, 512), device="cuda")
    labels = torch.hstack((tokens[..., 1:], torch.full((2, 1), loss_fn.ignore_index, device="cuda")))
    logits = model(tokens)
    loss = loss_fn(logits, labels)
    del logits
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
