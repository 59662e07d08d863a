accelerate launch --config_file examples/accelerate_configs/two_zero2.yaml \
    examples/scripts/dpo_vlm.py \
    --model_name_or_path HuggingFaceTB/SmolLM2-135M \
    --per_device_train_batch_size 2 \
    --max_length 256 \
    --dtype bfloat16
