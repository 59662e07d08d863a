#!/bin/bash
# SFT on eight GPUs
export WANDB_PROJECT=mine
accelerate launch --num_processes 1 --mixed_precision bf16 \
    trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dtype bfloat16 \
    --dataset_name my/chats --per_device_train_batch_size 2 --max_length 512 --use_peft --lora-r 8 \
    --lora_target_modules q_proj v_proj --learning_rate 2e-4 --report_to none
