/* SPDX-License-Identifier: Apache-2.0 */
/* axolotl's configuration: utils/schemas/config.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

/* utils/schemas/trl.py */
static const tide_key_row axolotl_trl_rows[] = {
    KEY_REFUSED("rollout_func|use_data_producer|async_prefetch", "generates in another way", ""),
    KEY_REFUSED("replay_buffer_size|streaming_partial_batch", "trains on other rows than it generates", "0"),
    KEY_NEUTRAL("scale_rewards|multi_objective_aggregation"),
    KEY_NEUTRAL("prefetch_depth|streaming_*|replay_*|reroll_*|skip_zero_advantage_batches|reward_num_workers"),
};

static const tide_key_table axolotl_trl_keys = {
    .rows = axolotl_trl_rows, .count = TIDE_COUNT_OF(axolotl_trl_rows), .more = &tide_trainer_keys};

static const tide_key_row axolotl_rows[] = {
#include "job/readers/keys/parallel_sizes.def"

#include "job/readers/keys/axolotl.def" /* expert_parallel_* otherwise */
};

static const tide_key_table axolotl_keys = {
    .rows = axolotl_rows, .count = TIDE_COUNT_OF(axolotl_rows), .more = &tide_trainer_keys};

const tide_reader tide_axolotl_reader = {.title = "an axolotl configuration",
                                         .marks = "micro_batch_size|sequence_len|base_model",
                                         .keys = &axolotl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .program = TIDE_PROGRAM_axolotl};
