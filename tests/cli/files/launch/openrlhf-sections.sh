deepspeed --num_gpus 4 --module openrlhf.cli.train_sft \
   --model.model_name_or_path Qwen/Qwen2.5-0.5B --model.gradient_checkpointing_enable \
   --data.dataset Open-Orca/OpenOrca --data.max_len 1024 --train.batch_size 64 --train.micro_batch_size 4 \
   --ds.zero_stage 3 --ds.param_dtype bf16 --ds.attn_implementation eager --ds.lora.rank 16 --ds.new_option 2 \
   --adam.lr 5e-6 --ckpt.output_dir x
