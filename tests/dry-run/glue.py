# SPDX-License-Identifier: Apache-2.0
"""Sequence classification with the Trainer, evaluation and metrics after it, as transformers' run_glue.py has them."""
import tempfile

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

import tiny

tokenizer = tiny.tokenizer()
rows = Dataset.from_dict({"sentence": [tiny.words(32)] * 32, "label": [0, 1] * 16})
rows = rows.map(lambda batch: tokenizer(batch["sentence"], max_length=64, truncation=True), batched=True, remove_columns="sentence")
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=2, report_to=[], save_strategy="no",
                                  eval_strategy="steps", eval_steps=1, disable_tqdm=True)
    trainer = Trainer(model=tiny.model(AutoModelForSequenceClassification, num_labels=2), args=arguments, train_dataset=rows, eval_dataset=rows,
                      data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=lambda seen: {"rows": len(seen.predictions)})
    trainer.train()
    print("rows", trainer.evaluate()["eval_rows"])
