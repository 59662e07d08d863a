torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer \
    data.train_files=train.parquet data.micro_batch_size_per_gpu=4 \
    model.path=Qwen/Qwen3-8B engine=megatron \
    engine.tensor_model_parallel_size=4
