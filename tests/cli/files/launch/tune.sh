MODEL=llama3_1/8B_full
tune run --nproc_per_node 4 full_finetune_distributed --config $MODEL batch_size=2
