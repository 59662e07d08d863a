# SPDX-License-Identifier: Apache-2.0
"""TRL's DPOTrainer with a reference model."""
import tempfile

from datasets import Dataset
from trl import DPOConfig, DPOTrainer

import tiny

rows = Dataset.from_dict({"prompt": [tiny.words(32)] * 32, "chosen": [tiny.words(64)] * 32, "rejected": [tiny.words(64)] * 32})
with tempfile.TemporaryDirectory() as folder:
    arguments = DPOConfig(output_dir=folder, per_device_train_batch_size=2, max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True)
    model = tiny.model()
    model.config._name_or_path = ""
    DPOTrainer(model=model, ref_model=tiny.model(), args=arguments, train_dataset=rows, processing_class=tiny.tokenizer()).train()
