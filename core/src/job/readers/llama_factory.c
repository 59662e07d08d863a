/* LLaMA-Factory's arguments: hparams/model_args.py, finetuning_args.py, data_args.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row llama_factory_rows[] = {
    KEY_REFUSED("stage", "trains by preferences or rewards, with other models and losses beside", "sft|pt"),
    KEY_SAYS("finetuning_type", finetuning, ""),
    KEY_SETS("cutoff_len", seq, ""),
    KEY_SETS("lora_rank", adapter_r, ""),
    KEY_SETS("lora_target", adapter_target_modules, "all=all-linear"),
    KEY_SETS("additional_target", adapter_modules_to_save, ""),
    KEY_SETS("quantization_bit", quant, "4=nf4|8=int8"),
    KEY_SETS("quantization_type", quant, ""),
    KEY_MATTERS("quantization_method", "quantises in another way than bitsandbytes", "bitsandbytes|bnb"),
    KEY_SETS("double_quantization", quant_double, ""),
    KEY_SETS("flash_attn", attention, "auto=sdpa|fa2=sdpa|disabled=eager"),
    KEY_SAYS("pure_bf16", pure, "false="),
    KEY_SAYS("disable_gradient_checkpointing", checkpointing, "true=false|false=true"),
    KEY_SAYS("use_reentrant_gc", reentrant, ""),
    KEY_MATTERS("freeze_vision_tower", "freezes modules: name them, as freeze=vision_tower", ""),
    KEY_MATTERS("freeze_multi_modal_projector", "freezes modules: name them, as freeze=multi_modal_projector", ""),
    KEY_MATTERS("freeze_language_model", "freezes modules: name them, as freeze=language_model", ""),
    KEY_MATTERS("freeze_trainable_*", "trains some layers only", ""),
    KEY_MATTERS("upcast_layernorm", "keeps norms in fp32", ""),
    KEY_MATTERS("upcast_lmhead_output", "casts logits to fp32", ""),
    KEY_MATTERS("enable_liger_kernel", "replaces kernels", ""),
    KEY_MATTERS("use_unsloth*", "replaces kernels", ""),
    KEY_MATTERS("use_galore", "replaces the optimizer", ""),
    KEY_MATTERS("use_apollo", "replaces the optimizer", ""),
    KEY_MATTERS("use_badam", "replaces the optimizer", ""),
    KEY_MATTERS("shift_attn", "replaces attention", ""),
    KEY_MATTERS("mixture_of_depths", "replaces layers", ""),
    KEY_MATTERS("resize_vocab", "makes embeddings larger", ""),
    KEY_MATTERS("image_*_pixels", "resizes images: say image_size", ""),
    KEY_MATTERS("video_*", "resizes videos", ""),
    KEY_REFUSED("ref_model*", "loads another model", ""),
    KEY_REFUSED("reward_model*", "loads another model", ""),
    KEY_SETS("use_dora", adapter_dora, ""),
    KEY_SETS("use_rslora", adapter_rslora, ""),
    KEY_NEUTRAL("template"),
    KEY_NEUTRAL("packing"),
    KEY_NEUTRAL("neat_packing"),
    KEY_NEUTRAL("plot_loss"),
    KEY_NEUTRAL("mask_history"),
    KEY_NEUTRAL("media_dir"),
    KEY_NEUTRAL("val_size"),
    KEY_NEUTRAL("enable_thinking"),
};

static const tide_key_table llama_factory_keys = {
    .rows = llama_factory_rows, .count = TIDE_COUNT_OF(llama_factory_rows), .more = &tide_trainer_keys};

const tide_reader tide_llama_factory_reader = {.title = "a LLaMA-Factory configuration",
                                               .marks = "finetuning_type|cutoff_len",
                                               .keys = &llama_factory_keys,
                                               .trains = true,
                                               .precedence = 2,
                                               .settle = tide_training_settle};
