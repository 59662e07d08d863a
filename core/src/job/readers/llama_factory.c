/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA-Factory's arguments: hparams/model_args.py, finetuning_args.py, data_args.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row llama_factory_rows[] = {
#include "job/readers/keys/llama_factory.def"
};

static const tide_key_table llama_factory_keys = {
    .rows = llama_factory_rows, .count = TIDE_COUNT_OF(llama_factory_rows), .more = &tide_trainer_keys};

const tide_reader tide_llama_factory_reader = {.title = "a LLaMA-Factory configuration",
                                               .marks = "finetuning_type|cutoff_len",
                                               .keys = &llama_factory_keys,
                                               .trains = true,
                                               .precedence = 2,
                                               .settle = tide_training_settle};
