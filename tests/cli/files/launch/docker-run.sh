docker pull vllm/vllm-openai:v0.32.0
sudo docker run --runtime nvidia --gpus all -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HUGGING_FACE_HUB_TOKEN=<secret>" -p 8000:8000 --ipc=host \
    vllm/vllm-openai:v0.32.0 \
    --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --tensor-parallel-size 2
