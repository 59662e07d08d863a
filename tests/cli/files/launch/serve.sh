#!/bin/bash
export HF_HOME=/data
# the server
vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --max-model-len 16K \
    --gpu-memory-utilization=0.9 -q fp8 --enforce-eager --no-enable-prefix-caching \
    --limit-mm-per-prompt '{"image": 1}' --port 8000 --served-model-name "my model" >log 2>&1
