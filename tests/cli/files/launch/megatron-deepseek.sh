#!/bin/bash
# DeepSeek-V3's layers by arguments, as small as a test's
MODEL_ARGS="
    --use-mcore-models
    --num-layers 6
    --hidden-size 512
    --ffn-hidden-size 1536
    --num-attention-heads 8
    --kv-channels 64
    --max-position-embeddings 4096
    --position-embedding-type rope
    --rotary-base 10000
    --make-vocab-size-divisible-by 128
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --hidden-dropout 0
    --attention-dropout 0
    --vocab-size 32000
    --multi-latent-attention
    --q-lora-rank 192
    --kv-lora-rank 64
    --qk-head-dim 64
    --qk-pos-emb-head-dim 32
    --v-head-dim 64
    --rotary-scaling-factor 40
    --mscale 1.0
    --mscale-all-dim 1.0
    --qk-layernorm
"
MOE_ARGS="
    --num-experts 8
    --moe-layer-freq ([0]*3+[1]*3)
    --moe-ffn-hidden-size 256
    --moe-router-topk 4
    --moe-router-num-groups 4
    --moe-router-group-topk 2
    --moe-router-score-function sigmoid
    --moe-router-topk-scaling-factor 2.5
    --moe-router-enable-expert-bias
    --moe-router-dtype fp32
    --moe-router-load-balancing-type seq_aux_loss
    --moe-aux-loss-coeff 1e-4
    --moe-shared-expert-intermediate-size 256
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --moe-permute-fusion
"
TRAIN_ARGS="
    --micro-batch-size 1
    --global-batch-size 32
    --seq-length 1024
    --train-iters 100
    --lr 1e-4
    --bf16
    --use-distributed-optimizer
    --no-create-attention-mask-in-dataloader
    --recompute-granularity selective
    --recompute-modules mla_up_proj moe_act
"
torchrun --nproc_per_node 8 pretrain_gpt.py $MODEL_ARGS $MOE_ARGS $TRAIN_ARGS \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4
