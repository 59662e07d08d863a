accelerate launch --num_processes 1 scripts/run_dpo.py recipes/config.yaml --per_device_train_batch_size 4
