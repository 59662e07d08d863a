torchrun --nproc_per_node=6 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 2 --hidden-size 64 \
  --num-attention-heads 4 --position-embedding-type yarn --fp8-format hybrid --micro-batch-size 1 --seq-length 64 --bf16 --num-experts $EXPERTS
