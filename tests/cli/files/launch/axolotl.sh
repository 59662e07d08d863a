accelerate launch -m axolotl.cli.train axolotl.yml
