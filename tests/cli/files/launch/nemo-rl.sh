uv run examples/run_grpo_math.py --config mine.yaml
