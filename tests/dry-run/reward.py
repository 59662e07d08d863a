# SPDX-License-Identifier: Apache-2.0
"""TRL's RewardTrainer."""
import tempfile

from datasets import Dataset
from transformers import AutoModelForSequenceClassification
from trl import RewardConfig, RewardTrainer

import tiny

rows = Dataset.from_dict({"chosen": [tiny.words(64)] * 32, "rejected": [tiny.words(64)] * 32})
with tempfile.TemporaryDirectory() as folder:
    arguments = RewardConfig(output_dir=folder, per_device_train_batch_size=2, max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True)
    RewardTrainer(model=tiny.model(AutoModelForSequenceClassification, num_labels=1), args=arguments, train_dataset=rows,
                  processing_class=tiny.tokenizer()).train()
