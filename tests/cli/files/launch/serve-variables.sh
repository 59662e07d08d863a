#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1
MODEL=meta-llama/Llama-3.1-8B-Instruct
vllm serve $MODEL \
  --tensor-parallel-size 2 --max-model-len 16k --gpu-memory-utilization 0.9 \
  --enable-auto-tool-choice --tool-call-parser llama3_json --port 8000
