ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 --ref_num_gpus_per_node 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 \
   --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models --vllm_gpu_memory_utilization 0.6 \
   --pretrain OpenRLHF/Llama-3-8b-sft-mixture --reward_pretrain OpenRLHF/Llama-3-8b-rm-700k \
   --micro_train_batch_size 8 --train_batch_size 128 --n_samples_per_prompt 8 --advantage_estimator group_norm \
   --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 --gradient_checkpointing --vllm_enable_sleep
