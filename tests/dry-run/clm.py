# SPDX-License-Identifier: Apache-2.0
"""Language modelling over blocks of one length, fp32 weights under bf16 autocast, as transformers' run_clm.py has it."""
import tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, default_data_collator

import tiny

rows = Dataset.from_dict({"input_ids": [list(range(3, 259))] * 32, "labels": [list(range(3, 259))] * 32})
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=3, bf16=True, report_to=[], save_strategy="no",
                                  gradient_checkpointing=True, disable_tqdm=True)
    Trainer(model=tiny.model(AutoModelForCausalLM).to(torch.float32), args=arguments, train_dataset=rows, data_collator=default_data_collator).train()
