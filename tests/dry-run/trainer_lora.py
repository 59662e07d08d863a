# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Trainer with LoRA adapters; it stops by itself after two steps."""
import sys
import tempfile
import torch
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainingArguments
import smollm


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.full((256,), 10 + i)
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


model = get_peft_model(smollm.make(), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"],
                                                 task_type="CAUSAL_LM"))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=2, bf16=True,
                                  report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True)
    Trainer(model=model, args=arguments, train_dataset=Rows()).train()
