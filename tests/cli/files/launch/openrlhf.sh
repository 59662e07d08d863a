ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --zero_stage 3
