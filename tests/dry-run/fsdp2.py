# SPDX-License-Identifier: Apache-2.0
"""fully_shard on every layer and the root; one rank of a world."""
import os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
import smollm

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = smollm.make().to("cuda")
mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
for layer in model.model.layers:
    fully_shard(layer, **options)
fully_shard(model, **options)
optimizer = torch.optim.AdamW(model.parameters())
batch = smollm.batch()
for _ in range(100):
    loss = model(**batch).loss
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()
