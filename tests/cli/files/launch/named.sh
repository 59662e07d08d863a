accelerate launch --num_processes 1 train_grpo.py --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 4
