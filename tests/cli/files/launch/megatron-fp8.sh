# a Llama in FP8 by Megatron-LM's script: the recipe is read with a format
torchrun --nproc_per_node 4 pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel --num-layers 4 --hidden-size 1024 \
  --ffn-hidden-size 4096 --num-attention-heads 16 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \
  --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 32000 --seq-length 2048 \
  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 4 --hidden-dropout 0 --attention-dropout 0 --bf16 \
  --use-distributed-optimizer --no-create-attention-mask-in-dataloader --fp8-format hybrid --fp8-recipe blockwise
