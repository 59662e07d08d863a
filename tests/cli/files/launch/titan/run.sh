NGPU=8 CONFIG_FILE=./llama3_8b.toml ./run_train.sh --training.local_batch_size 2
