"""How loaders are spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class DataLoaderConfiguration:
    """How prepared loaders split their batches between processes.

    Args:
        split_batches: the loader's batch size is the global one, and each batch is split between the processes; it must
            be divisible by their number. Otherwise each process gets batches of the loader's size.
        dispatch_batches: True has the main process alone read each loader and send the others their batches: for
            datasets that only it can read, or that must not be read by each. It costs the sending. None and False
            have each process read its own part; iterable datasets too, of which Accelerate dispatches by default.
        even_batches: where the last batches don't go round, samples from the epoch's start complete them, so that every
            process sees as many batches of as many samples.
        non_blocking: move batches to the device asynchronously (with pinned memory).

    The other fields are known, and refused where they ask for what this version does not do.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False

    def __post_init__(self) -> None:
        if self.dispatch_batches not in (None, True, False):
            raise TypeError(f"DataLoaderConfiguration(dispatch_batches={self.dispatch_batches!r}): pass True or False")
        for name, harmless in _NOT_YET_IN_LOADERS.items():
            if getattr(self, name) not in harmless:
                raise NotImplementedError(
                    f"DataLoaderConfiguration({name}={getattr(self, name)!r}) is not supported in this version of "
                    f"accelerate_runtime; leave it at {harmless[0]!r}."
                )


_NOT_YET_IN_LOADERS: dict[str, tuple[Any, ...]] = {
    "use_seedable_sampler": (False,),
    "data_seed": (None,),
    "use_stateful_dataloader": (False,),
}
