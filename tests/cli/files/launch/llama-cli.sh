llama-cli -hf bartowski/Qwen2.5-7B-Instruct-GGUF:Q5_K_M -c 0 -ngl 20 -p "hello there" -n 128 --mlock -ot 'exps=CPU' -ot "blk\.1.*=CUDA0" --foo 3
