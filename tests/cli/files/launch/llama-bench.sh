llama-bench -m models/llama-3.2-1b-instruct-q8_0.gguf -p 512,2048 -n 128 -ngl 99 -fa 1 -nkvo 0 -d 4096 -r 5
