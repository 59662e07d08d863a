/* SPDX-License-Identifier: Apache-2.0 */
/* transformers.TrainingArguments, and what scripts add to them (trl.ModelConfig, ModelArguments). */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row checkpointing_kwargs_rows[] = {
    KEY_SAYS("use_reentrant", reentrant, ""),
    KEY_SAYS("selective", selective, ""),
    KEY_SETS("every_n_layers", every_n_layers, ""),
    KEY_MATTERS("offload", "keeps the inputs of layers on the host", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_table checkpointing_kwargs_keys = {.rows = checkpointing_kwargs_rows,
                                                         .count = TIDE_COUNT_OF(checkpointing_kwargs_rows)};

/* For from_pretrained(). */
static const tide_key_row model_rows[] = {
    KEY_SETS("torch_dtype", dtype, ""),
    KEY_SETS("dtype", dtype, ""),
    KEY_SETS("attn_implementation", attention, KEY_ATTENTION),
    KEY_NEUTRAL("*"),
};

const tide_key_table tide_model_keys = {.rows = model_rows, .count = TIDE_COUNT_OF(model_rows)};

static const tide_key_row liger_kernel_rows[] = {
    KEY_SETS("rope", liger_rope, ""),
    KEY_SETS("rms_norm", liger_rms_norm, ""),
    KEY_SETS("layer_norm", liger_layer_norm, ""),
    KEY_SETS("swiglu", liger_swiglu, ""),
    KEY_SETS("geglu", liger_swiglu, ""),
    KEY_SETS("cross_entropy", liger_cross_entropy, ""),
    KEY_SETS("fused_linear_cross_entropy", liger_fused_linear_cross_entropy, ""),
};

static const tide_key_table liger_kernel_keys = {.rows = liger_kernel_rows, .count = TIDE_COUNT_OF(liger_kernel_rows)};

static const tide_key_row teacher_rows[] = {
    KEY_SETS("dtype|torch_dtype", trainer_teacher_dtype, ""),
    KEY_NEUTRAL("attn_implementation|device_map|low_cpu_mem_usage|revision|trust_remote_code|use_cache"),
};

static const tide_key_table teacher_keys = {.rows = teacher_rows, .count = TIDE_COUNT_OF(teacher_rows)};

static const tide_key_row trainer_rows[] = {
#include "job/readers/keys/trainer.def"
};

const tide_key_table tide_trainer_keys = {.rows = trainer_rows, .count = TIDE_COUNT_OF(trainer_rows)};

/* A file with few keys, all of which are theirs. */
static bool has_trainer_keys_only(const tide_json *root) {
    for (const tide_json *entry = root->first; entry; entry = entry->next)
        if (!tide_key_find(&tide_trainer_keys, entry->key)) return false;
    return root->first != NULL;
}

const tide_reader tide_trainer_reader = {
    .title = "training arguments of transformers",
    .marks = "per_device_train_batch_size|gradient_checkpointing|activation_checkpointing|gradient_accumulation_steps|"
             "max_grad_norm|num_train_epochs|use_peft|reward_funcs|num_generations|lr_scheduler_type|dataset_name",
    .recognises = has_trainer_keys_only,
    .keys = &tide_trainer_keys,
    .program = TIDE_PROGRAM_transformers,
    .trains = true,
    .precedence = 2};
