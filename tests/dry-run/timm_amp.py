# SPDX-License-Identifier: Apache-2.0
"""timm's vision transformer with automatic mixed precision and a GradScaler, as its train.py has them."""
import timm.optim
import timm.utils
import torch

model = timm.create_model("vit_tiny_patch16_224", num_classes=10).cuda()
optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
loss = torch.nn.CrossEntropyLoss()
scaler = timm.utils.NativeScaler()
for step in range(3):
    images, labels = torch.randn(8, 3, 224, 224).cuda(), torch.randint(10, (8,)).cuda()
    with torch.autocast("cuda", torch.float16):
        cost = loss(model(images), labels)
    optimizer.zero_grad()
    scaler(cost, optimizer, clip_grad=1.0, parameters=model.parameters())
