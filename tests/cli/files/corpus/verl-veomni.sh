torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer \
    data.train_files=train.parquet model.path=Qwen/Qwen2.5-0.5B engine=veomni
