python3 -m verl.trainer.main_generation model.path=Qwen/Qwen2.5-7B-Instruct rollout.temperature=0 data.path=x
