python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 --mem-fraction-static 0.85 --context-length 16384 \
  --chunked-prefill-size 4096 --cuda-graph-max-bs 64 --host 0.0.0.0 --port 30000 --trust-remote-code --schedule-conservativeness 0.8 --such-thing 3
