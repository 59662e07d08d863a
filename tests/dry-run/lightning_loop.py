# SPDX-License-Identifier: Apache-2.0
"""A LightningModule and its Trainer."""
import lightning
import torch

import smollm


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = smollm.make(layers=2)

    def training_step(self, batch, _):
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


rows = torch.utils.data.DataLoader([torch.full((256,), 10 + i) for i in range(16)], batch_size=4)
lightning.Trainer(max_steps=3, accelerator="gpu", devices=1, precision="bf16-true", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False).fit(Module(), rows)
