torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer \
    data.train_files=train.parquet data.micro_batch_size_per_gpu=4 data.use_dynamic_bsz=False \
    model.path=Qwen/Qwen2.5-0.5B engine=fsdp
