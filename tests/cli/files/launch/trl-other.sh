trl online_dpo --model_name_or_path Qwen/Qwen2.5-0.5B
