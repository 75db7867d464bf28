"""Training by DeepSpeed: ZeRO shards optimizer states, gradients and parameters.

`strategy` is what an Accelerator calls; `filling` makes DeepSpeed's config, `making` the engine, `engine` and `optimizer`
stand in for the script's model and optimizer, `wholes` gathers and spreads what the engine shards.
"""
