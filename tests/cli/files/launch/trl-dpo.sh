trl dpo --config dpo-arguments.yaml --beta 0.2
