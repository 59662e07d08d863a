torchrun --nnodes 2 --nproc_per_node=8 run_clm.py \
  --model_name_or_path gpt2 --per_device_train_batch_size 4 --block_size 512 --bf16 True --do_train
