#!/bin/bash
DTYPE=${1:-fp8}
TP=2
ARGS=(
    --num-layers 8 --hidden-size 1024
    --num-attention-heads 16
)
if [[ "$DTYPE" == "fp8" ]]; then
    ARGS+=("--fp8-format hybrid" "--fp8-recipe tensorwise")
elif [ "$DTYPE" = "fp16" ]; then
    ARGS+=(--fp16)
else
    ARGS+=(--bf16)
fi
if [ $TP -gt 1 ] && [ -n "$TP" ]; then ARGS+=(--sequence-parallel); fi
if [ -z "${DTYPE}" ] || [[ $TP != 2 ]]; then
    ARGS+=(--num-experts 8)
fi
if [ -f /data/vocab ]; then
    ARGS+=(--vocab-size 50000)
else
    ARGS+=(--vocab-size 51200)
fi
MORE="--micro-batch-size 1"
MORE+=" --seq-length 1024 --max-position-embeddings 1024 --bf16"
torchrun --nproc_per_node 4 pretrain_gpt.py --tensor-model-parallel-size $TP ${ARGS[@]} $MORE
