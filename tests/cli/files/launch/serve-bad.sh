vllm serve $MODEL --max-model-len lots --tensor-parallel-size 0
