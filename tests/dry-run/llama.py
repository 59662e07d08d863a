# SPDX-License-Identifier: Apache-2.0
"""A plain training loop."""
import torch
import smollm

model = smollm.make().to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
batch = smollm.batch()
for _ in range(100):
    loss = model(**batch).loss
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()
