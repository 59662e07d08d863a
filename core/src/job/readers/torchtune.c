/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes of torchtune 0.6 (recipes/configs). It has its own modules, which are not described; with trainer=none,
 * transformers' modules are played with the same settings instead. */
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

/* The builders of torchtune.models, with variants lora_ and qlora_. */
static const tide_key_row torchtune_model_rows[] = {
    KEY_SAYS("_component_", model,
             "*code_llama2_7b=codellama-7b|*llama2_7b=llama-2-7b|*llama2_13b=llama-2-13b|*llama2_70b=llama-2-70b|"
             "*llama3_8b=llama-3-8b|*llama3_70b=llama-3-70b|*llama3_1_8b=llama-3.1-8b|*llama3_1_70b=llama-3.1-70b|"
             "*llama3_1_405b=llama-3.1-405b|*llama3_2_1b=llama-3.2-1b|*llama3_2_3b=llama-3.2-3b|"
             "*llama3_3_70b=llama-3.3-70b|*llama3_2_vision_11b=llama-3.2-11b-vision|*mistral_7b=mistral-7b|"
             "*gemma_2b=gemma-2b|*gemma_7b=gemma-7b|*gemma2_2b=gemma-2-2b|*gemma2_9b=gemma-2-9b|"
             "*gemma2_27b=gemma-2-27b|*phi3_mini=phi-3-mini|*phi4_14b=phi-4|*qwen2_0_5b=qwen2-0.5b|"
             "*qwen2_1_5b=qwen2-1.5b|*qwen2_7b=qwen2-7b|*qwen2_5_0_5b=qwen2.5-0.5b|*qwen2_5_1_5b*=qwen2.5-1.5b|"
             "*qwen2_5_3b=qwen2.5-3b|*qwen2_5_7b*=qwen2.5-7b|*qwen2_5_14b*=qwen2.5-14b|*qwen2_5_32b*=qwen2.5-32b|"
             "*qwen2_5_72b*=qwen2.5-72b"),
    KEY_SETS("lora_rank", adapter_r, ""),
    KEY_SETS("lora_dropout", adapter_dropout, ""),
    KEY_SETS("use_dora", adapter_dora, ""),
    KEY_NEUTRAL("lora_alpha|lora_attn_modules|apply_lora_to_mlp|apply_lora_to_output|quantize_base"),
    KEY_REFUSED("image_size|*_trainable|fusion_*", "trains parts of a model of images", ""),
};

static const tide_key_row torchtune_optimizer_rows[] = {
    KEY_SETS("_component_", optimizer,
             "torch.optim.adamw=adamw|torch.optim.sgd=sgd|bitsandbytes.optim.pagedadamw=paged_adamw|"
             "bitsandbytes.optim.pagedadamw8bit=paged_adamw8bit|bitsandbytes.optim.adamw8bit=adamw8bit"),
    KEY_NEUTRAL("*"),
};

static const tide_key_row torchtune_loss_rows[] = {
    KEY_MATTERS("_component_", "computes the loss in chunks", "torch.nn.CrossEntropyLoss"),
    KEY_NEUTRAL("*"),
};

static const tide_key_row torchtune_tokenizer_rows[] = {
    KEY_SETS("max_seq_len", seq, ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row torchtune_dataset_rows[] = {
    KEY_SETS("packed", packing, ""),
    KEY_NEUTRAL("*"),
};

#define SECTION(name)                                                                                                  \
    static const tide_key_table torchtune_##name##_keys = {.rows = torchtune_##name##_rows,                            \
                                                           .count = TIDE_COUNT_OF(torchtune_##name##_rows)}
SECTION(model);
SECTION(optimizer);
SECTION(loss);
SECTION(tokenizer);
SECTION(dataset);
#undef SECTION

static const tide_key_row torchtune_rows[] = {
    KEY_HOLDS("model", torchtune_model_keys),
    KEY_HOLDS("optimizer", torchtune_optimizer_keys),
    KEY_HOLDS("loss", torchtune_loss_keys),
    KEY_HOLDS("tokenizer", torchtune_tokenizer_keys),
    KEY_HOLDS("dataset", torchtune_dataset_keys),
    KEY_SETS("batch_size", batch, ""),
    KEY_SETS("gradient_accumulation_steps", grad_accum, ""),
    KEY_SETS("dtype", dtype, ""),
    KEY_SETS("clip_grad_norm", clip, ""),
    KEY_SETS("enable_activation_checkpointing", checkpointing, "true=full|false=none"),
    KEY_REFUSED("enable_activation_offloading|fsdp_cpu_offload", "moves tensors to the host", ""),
    KEY_REFUSED("optimizer_in_bwd", "steps in the backward pass", ""),
    KEY_REFUSED("ac_mode", "checkpoints some layers or operations", "full"),
    KEY_REFUSED("tensor_parallel_*|context_parallel_*|data_parallel_*", "shards the model over ranks", "1|-1"),
    KEY_REFUSED("ref_checkpointer|teacher_*|generation_*|quantizer", "trains with an additional model", ""),
    KEY_MATTERS("compile", "fuses kernels", ""),
    KEY_NEUTRAL(
        "ac_option|checkpointer|custom_sharded_layers|device|epochs|max_steps_per_epoch|seed|shuffle|output_dir"),
    KEY_NEUTRAL("lr_scheduler|log_*|metric_logger|profiler|resume_from_checkpoint|save_*|cudnn_deterministic_mode"),
    KEY_NEUTRAL(
        "fsdp_reshard_after_forward|dataset_val|run_val_every_n_steps|batch_size_val|enable_async_checkpointing"),
};

static const tide_key_table torchtune_keys = {.rows = torchtune_rows, .count = TIDE_COUNT_OF(torchtune_rows)};

static bool truth_at(const tide_json *object, const char *key) {
    const tide_json *value = object ? tide_json_at(object, key) : NULL;
    return tide_json_is(value, TIDE_JSON_BOOL) && value->is_true;
}

/* torchtune/models/llama3_1/_component_builders.py, lora_llama3_1: its layers under transformers' names. */
static const char *lora_targets(tide_claims *c, const tide_json *model) {
    const tide_json *names = tide_json_at(model, "lora_attn_modules");
    const char *targets = "";
    for (const tide_json *name = tide_json_is(names, TIDE_JSON_ARRAY) ? names->first : NULL; name; name = name->next)
        if (tide_json_is(name, TIDE_JSON_STRING))
            targets = tide_format(c->arena, "%s%s%s", targets, *targets ? "," : "",
                                  tide_text_is(name->text, "output_proj") ? "o_proj" : name->text.at);
    if (truth_at(model, "apply_lora_to_mlp"))
        targets = tide_format(c->arena, "%s%sgate_proj,up_proj,down_proj", targets, *targets ? "," : "");
    if (truth_at(model, "apply_lora_to_output"))
        targets = tide_format(c->arena, "%s%slm_head", targets, *targets ? "," : "");
    return targets;
}

static void settle_recipe(tide_claims *c, const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model"), *optimizer = tide_json_at(root, "optimizer");
    const char *builder = tide_json_is(tide_json_at(model, "_component_"), TIDE_JSON_STRING)
                              ? tide_json_at(model, "_component_")->text.at
                              : "";
    const tide_file_key *stepper = c->settings[TIDE_SET_optimizer];
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    if (strstr(builder, "lora_")) {
        const char *targets = lora_targets(c, model);
        tide_imply(c, TIDE_SET_adapter, "lora");
        if (*targets) tide_imply(c, TIDE_SET_adapter_target_modules, targets);
    }
    if (strstr(builder, "qlora_") || truth_at(model, "quantize_base")) tide_imply(c, TIDE_SET_quant, "nf4");
    if (stepper && strcmp(stepper->taken, "adamw") == 0 && truth_at(optimizer, "fused")) {
        c->settings[TIDE_SET_optimizer] = NULL;
        tide_imply(c, TIDE_SET_optimizer, "adamw_fused");
    }
    tide_imply(c, TIDE_SET_use_cache, "false");
}

static void settle_torchtune(tide_claims *c) {
    const char *asked = c->arguments->asked_trainer;
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_torchtune_reader) file = file->next;
    if (!file) return;
    c->at = file;
    if (!asked || strcmp(asked, "none") != 0) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "model"),
                   tide_format(c->arena, "%s is a recipe for torchtune, whose own models are not described",
                               file->summary->name),
                   "give trainer=none for transformers' modules with its settings, or run the recipe with `tidemark"
                   " dry-run`");
        return;
    }
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "model"),
                "torchtune's models are not described: transformers' modules are played with the recipe's settings",
                NULL);
    settle_recipe(c, file->root);
}

static bool is_of_torchtune(const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model");
    const tide_json *builder = tide_json_is(model, TIDE_JSON_OBJECT) ? tide_json_at(model, "_component_") : NULL;
    return tide_json_is(builder, TIDE_JSON_STRING) && tide_text_starts(builder->text, TIDE_TEXT("torchtune."));
}

const tide_reader tide_torchtune_reader = {.title = "a recipe of torchtune",
                                           .recognises = is_of_torchtune,
                                           .keys = &torchtune_keys,
                                           .trains = true,
                                           .precedence = 2,
                                           .settle = settle_torchtune};
