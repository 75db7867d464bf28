"""Prepared loaders: each process gets its part of every epoch."""

from .loader import DataLoaderShard, Pass
from .prepare import prepare_loader
from .samplers import BatchSamplerShard, Share
from .seedable import SeedableRandomSampler
from .skipping import skip_first_batches
from .streams import IterableDatasetShard

__all__ = [
    "BatchSamplerShard",
    "DataLoaderShard",
    "IterableDatasetShard",
    "Pass",
    "SeedableRandomSampler",
    "Share",
    "prepare_loader",
    "skip_first_batches",
]
