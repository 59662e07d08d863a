python examples/scripts/prm.py --model_name_or_path HuggingFaceTB/SmolLM2-135M --per_device_train_batch_size 2
