NUM_NODES=1
torchrun --nproc_per_node 8 --nnodes $NUM_NODES pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16 \
  --seq-length 512 --max-position-embeddings 512 --vocab-size 32000 --bf16
