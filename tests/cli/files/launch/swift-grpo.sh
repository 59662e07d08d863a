swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B-Instruct --tuner_type full --per_device_train_batch_size 8 \
  --max_length 128 --max_completion_length 16
