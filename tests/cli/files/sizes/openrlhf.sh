deepspeed --module openrlhf.cli.train_sft --model.model_name_or_path Qwen/Qwen2.5-0.5B --data.max_len 1024 \
   --train.micro_batch_size 4 --ds.zero_stage 2 --ds.ring_attn_size 2 --ds.tensor_parallel_size 2
