# SPDX-License-Identifier: Apache-2.0
"""diffusers' UNet2DConditionModel under accelerate, as its train_text_to_image.py has them."""
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel

accelerator = Accelerator(mixed_precision="bf16")
unet = UNet2DConditionModel(sample_size=32, block_out_channels=(64, 128), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=64, attention_head_dim=8)
unet.enable_gradient_checkpointing()
scheduler = DDPMScheduler()
unet, optimizer = accelerator.prepare(unet, torch.optim.AdamW(unet.parameters()))
for step in range(3):
    with accelerator.accumulate(unet):
        latents, text = torch.randn(4, 4, 32, 32).cuda(), torch.randn(4, 77, 64).cuda()
        noise, when = torch.randn_like(latents), torch.randint(0, 1000, (4,)).cuda()
        made = unet(scheduler.add_noise(latents, noise, when), when, text).sample
        accelerator.backward(torch.nn.functional.mse_loss(made.float(), noise))
        accelerator.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
