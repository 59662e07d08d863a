#!/bin/sh
exec vllm serve Qwen/Qwen2.5-0.5B --cudagraph-capture-sizes 1 2 4 8 --max-model-len 4096 -cc.cudagraph_mode=PIECEWISE
