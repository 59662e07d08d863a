# SPDX-License-Identifier: Apache-2.0
CUDA_VISIBLE_DEVICES=0 swift export --model Qwen/Qwen2.5-0.5B --quant_bits 4 --quant_method gptq
