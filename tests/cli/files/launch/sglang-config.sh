sglang serve --config sglang.yaml --max-total-tokens 100000
