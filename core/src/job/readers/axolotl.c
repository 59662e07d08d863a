/* SPDX-License-Identifier: Apache-2.0 */
/* axolotl's configuration: utils/schemas/config.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row axolotl_rows[] = {
#include "job/readers/keys/axolotl.def"
};

static const tide_key_table axolotl_keys = {
    .rows = axolotl_rows, .count = TIDE_COUNT_OF(axolotl_rows), .more = &tide_trainer_keys};

const tide_reader tide_axolotl_reader = {.title = "an axolotl configuration",
                                         .marks = "micro_batch_size|sequence_len|base_model",
                                         .keys = &axolotl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .settle = tide_training_settle};
