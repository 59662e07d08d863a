# SPDX-License-Identifier: Apache-2.0
ranks=4
total=$((ranks * 8))
NPROC_PER_NODE=$ranks \
swift sft \
    --model Qwen/Qwen2.5-0.5B \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps $(expr $total / 16) \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    --max_length 512 \
    --deepspeed zero2
