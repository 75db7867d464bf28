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
        even_batches: where the last batches don't go round, samples from the epoch's start complete them, so that every
            process sees as many batches of as many samples.
        use_seedable_sampler: replace a RandomSampler by one whose order is a function of a seed and the number of the
            epoch, whatever else was drawn; the prepared loader's `set_epoch` chooses the number.
        data_seed: that seed; None takes the one that torch was seeded with when the loader was prepared.
        use_stateful_dataloader: accepted; prepared loaders have `state_dict` and `load_state_dict` anyway.
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
        if self.data_seed is not None and not self.use_seedable_sampler:
            raise ValueError(
                f"DataLoaderConfiguration(data_seed={self.data_seed!r}) is the seed of the seedable sampler: set "
                "use_seedable_sampler=True as well, or leave it out."
            )
        for name, harmless in _NOT_YET_IN_LOADERS.items():
            if getattr(self, name) not in harmless:
                raise NotImplementedError(
                    f"DataLoaderConfiguration({name}={getattr(self, name)!r}) is not supported in this version of "
                    f"accelerate_runtime; leave it at {harmless[0]!r}."
                )


_NOT_YET_IN_LOADERS: dict[str, tuple[Any, ...]] = {
    "dispatch_batches": (None, False),
}
