"""How loaders are spread."""

from __future__ import annotations

from dataclasses import dataclass


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
        use_seedable_sampler: replace a RandomSampler by one whose order is a function of a seed and the number of the
            epoch, whatever else was drawn; the prepared loader's `set_epoch` chooses the number.
        data_seed: that seed; None takes the one that torch was seeded with when the loader was prepared.
        use_stateful_dataloader: have prepared loaders pass for torchdata's StatefulDataLoader, where it is installed;
            they have `state_dict` and `load_state_dict` anyway.
        non_blocking: move batches to the device asynchronously (with pinned memory).
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
        if self.dispatch_batches not in (None, True, False):
            raise TypeError(f"DataLoaderConfiguration(dispatch_batches={self.dispatch_batches!r}): pass True or False")
