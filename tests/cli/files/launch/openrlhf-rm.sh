deepspeed --module openrlhf.cli.train_rm --pretrain meta-llama/Meta-Llama-3-8B --max_len 2048 --zero_stage 3 --bf16
