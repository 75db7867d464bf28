"""Training by DeepSpeed: ZeRO shards optimizer states, gradients and parameters.

`strategy` is what an Accelerator calls; `filling` makes DeepSpeed's config, `making` prepares for an engine, `engine`
and `optimizer` stand in for the script's model and optimizer, `wholes` and `states` gather and spread what ZeRO shards,
and `guards` refuses what would go wrong in silence.
"""
