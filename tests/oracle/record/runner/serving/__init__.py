"""The memory of a serving engine: unchanged vLLM on phantom GPUs of a stated size."""
