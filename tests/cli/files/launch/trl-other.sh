trl nash_md --model_name_or_path Qwen/Qwen2.5-0.5B
