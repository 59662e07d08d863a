torchrun --nproc_per_node=8 --nnodes 2 -m torchtitan.train --job.config_file llama3_8b.toml \
  --training.seq_len 4096 --parallelism.tensor_parallel_degree 2 --activation_checkpoint.mode full
