/* SPDX-License-Identifier: Apache-2.0 */
/* ms-swift's arguments, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row ms_swift_rows[] = {
#include "job/readers/keys/ms_swift.def"
#include "job/readers/keys/parallel_sizes.def"
};

static const tide_key_table ms_swift_keys = {
    .rows = ms_swift_rows, .count = TIDE_COUNT_OF(ms_swift_rows), .more = &tide_trainer_keys};

const tide_reader tide_ms_swift_reader = {.title = "an ms-swift configuration",
                                          .marks = "tuner_type|train_type|rlhf_type",
                                          .keys = &ms_swift_keys,
                                          .trains = true,
                                          .precedence = 2,
                                          .program = TIDE_PROGRAM_ms_swift};
