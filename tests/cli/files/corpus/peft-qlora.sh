python train.py --model_name_or_path "mistralai/Mistral-7B-v0.1" --dataset_name "my/chat" \
    --chat_template_format "chatml" --add_special_tokens False --append_concat_token False --splits "train,test" \
    --max_length 1024 --bf16 True --per_device_train_batch_size 2 --gradient_checkpointing True --use_reentrant True \
    --use_flash_attn True --use_peft_lora True --lora_r 8 --lora_alpha 16 --lora_target_modules "all-linear" \
    --use_4bit_quantization True --use_nested_quant True --bnb_4bit_compute_dtype "bfloat16"
