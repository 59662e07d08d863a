#!/bin/bash
# a GPT by Megatron-LM's script, its arguments in arrays
GPUS_PER_NODE=8
NUM_NODES=${SLURM_NNODES:-1}
TP=2
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 # a Llama
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 8192
    --swiglu --normalization RMSNorm --position-embedding-type rope
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
)
PARALLEL_ARGS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 2 \
    --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} $PARALLEL_ARGS \
    --vocab-size 128256 --micro-batch-size 1 --global-batch-size 32 --bf16 \
    --no-create-attention-mask-in-dataloader --cross-entropy-loss-fusion \
    --lr 3e-4 --train-iters 500 --data-path "$DATA"
