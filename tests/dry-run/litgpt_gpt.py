# SPDX-License-Identifier: Apache-2.0
"""LitGPT's model under Lightning Fabric, as its pretraining steps: bf16-true, chunked cross-entropy, two micro-batches."""
import lightning as L
import torch
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy

fabric = L.Fabric(accelerator="cuda", devices=1, precision="bf16-true")
fabric.launch()
with fabric.init_module():
    model = GPT(Config.from_name("pythia-14m", block_size=256))
model = fabric.setup(model)
optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True))
for step in range(6):
    tokens = torch.randint(0, 50000, (4, 257), device=fabric.device)
    accumulates = step % 2 == 0
    with fabric.no_backward_sync(model, enabled=accumulates):
        logits = model(tokens[:, :-1].contiguous())
        loss = chunked_cross_entropy(logits, tokens[:, 1:].contiguous(), chunk_size=0)
        fabric.backward(loss / 2)
    if not accumulates:
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
