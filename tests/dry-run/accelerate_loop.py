# SPDX-License-Identifier: Apache-2.0
"""A loop under accelerate with its data loader and gradient accumulation."""
import torch
from accelerate import Accelerator

import smollm

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = smollm.make()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader([{"input_ids": torch.full((256,), 10 + i)} for i in range(16)], batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch, labels=batch["input_ids"]).loss)
        optimizer.step()
        optimizer.zero_grad()
