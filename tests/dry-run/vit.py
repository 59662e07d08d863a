# SPDX-License-Identifier: Apache-2.0
"""An image classifier, with autocast and gradient clipping."""
import torch
from transformers import ViTConfig, ViTForImageClassification

torch.backends.cuda.enable_cudnn_sdp(False)
model = ViTForImageClassification(ViTConfig(num_hidden_layers=6, num_labels=1000)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
pixels = torch.rand(16, 3, 224, 224).to("cuda")
labels = torch.randint(0, 1000, (16,)).to("cuda")
for _ in range(100):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(pixel_values=pixels, labels=labels).loss
    loss.backward()
    del loss
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
