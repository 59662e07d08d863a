uv run python -m torch.distributed.run --nproc_per_node=8 scripts/training/run_recipe.py --recipe qwen3_600m_sft_config
