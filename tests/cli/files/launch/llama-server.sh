#!/bin/bash
./build/bin/llama-server -m /models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -ngl 99 -c 16384 -np 4 -fa -ctk q8_0 -ctv q8_0 -ub 1024 -b 4096 --host 0.0.0.0 --port 8080 --jinja -t 8 --no-webui
