torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 \
  --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \
  --micro-batch-size 1 --seq-length 512 --max-position-embeddings 512 --bf16
