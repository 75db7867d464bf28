"""Prepared loaders: each process gets its part of every epoch."""

from .dispatch import DataLoaderDispatcher
from .loader import DataLoaderShard, Pass
from .prepare import prepare_loader
from .samplers import BatchSamplerShard, IterableDatasetShard, Share

__all__ = [
    "BatchSamplerShard",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "IterableDatasetShard",
    "Pass",
    "Share",
    "prepare_loader",
]
