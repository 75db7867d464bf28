"""Pipeline parallelism: each process holds one part of a model's depth, and micro-batches go from one to the next."""
