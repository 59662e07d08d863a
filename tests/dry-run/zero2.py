# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed ZeRO-2; one rank of a world."""
import os
import deepspeed
import torch
import smollm

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deepspeed.init_distributed("nccl")
model = smollm.make().to("cuda")
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1 << 30}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
batch = smollm.batch()
for _ in range(100):
    loss = engine(**batch).loss
    engine.backward(loss)
    del loss
    engine.step()
