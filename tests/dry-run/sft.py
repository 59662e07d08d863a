# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer on a prompt-completion data set made in memory."""
import tempfile

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

import tiny

rows = Dataset.from_dict({"prompt": [tiny.words(64)] * 32, "completion": [tiny.words(64)] * 32})
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(output_dir=folder, per_device_train_batch_size=4, max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True)
    SFTTrainer(model=tiny.model(), args=arguments, train_dataset=rows, processing_class=tiny.tokenizer()).train()
