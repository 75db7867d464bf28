"""`use_stateful_dataloader=True`: prepared loaders that torchdata's own checks take for its StatefulDataLoader.

They keep their state themselves, with or without it; the class is all that is added.
"""

from __future__ import annotations

from ..requirements import is_installed
from .loader import DataLoaderShard

_made: dict[type[DataLoaderShard], type[DataLoaderShard]] = {}


def as_stateful(kind: type[DataLoaderShard]) -> type[DataLoaderShard]:
    """`kind`, also derived from torchdata's StatefulDataLoader where torchdata is installed."""
    if kind not in _made:
        _made[kind] = _derived(kind)
    return _made[kind]


def _derived(kind: type[DataLoaderShard]) -> type[DataLoaderShard]:
    if not is_installed("torchdata"):
        return kind
    from torchdata.stateful_dataloader import StatefulDataLoader

    return type(kind.__name__, (kind, StatefulDataLoader), {"__doc__": kind.__doc__})
