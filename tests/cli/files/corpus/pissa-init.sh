python scripts/pissa_init.py --model_name_or_path meta-llama/Llama-3.1-8B-Instruct --lora_rank 16 --output_dir out
