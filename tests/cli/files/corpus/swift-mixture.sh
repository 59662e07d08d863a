CUDA_VISIBLE_DEVICES=0 swift sft \
    --model Qwen/Qwen3-30B-A3B \
    --tuner_type lora \
    --target_modules all-linear \
    --torch_dtype bfloat16 \
    --max_length 1024 \
    --per_device_train_batch_size 1 \
    --init_weights lora-ga
