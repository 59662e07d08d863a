# SPDX-License-Identifier: Apache-2.0
"""TRL's GRPOTrainer, which generates with transformers."""
import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import tiny

rows = Dataset.from_dict({"prompt": [tiny.words(32)] * 32})
with tempfile.TemporaryDirectory() as folder:
    arguments = GRPOConfig(output_dir=folder, per_device_train_batch_size=4, num_generations=4, max_completion_length=16, max_steps=2, report_to=[],
                           save_strategy="no", disable_tqdm=True)
    GRPOTrainer(model=tiny.model(), reward_funcs=lambda completions, **_: [float(len(c)) for c in completions], args=arguments,
                train_dataset=rows, processing_class=tiny.tokenizer()).train()
