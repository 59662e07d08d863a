# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel, for torchrun."""
import os
import torch
import torch.distributed as dist
import smollm

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = smollm.make().to("cuda")
net = torch.nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.AdamW(net.parameters())
batch = smollm.batch()
for _ in range(100):
    loss = net(**batch).loss
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()
