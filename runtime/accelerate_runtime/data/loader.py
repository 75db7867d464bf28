"""The prepared loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from ..accumulation import GradientState
from ..collectives import send_to_device
from .samplers import Share, Tagged, pass_on_epoch


class Pass:
    """One iteration over a prepared loader: which batch it gave last, and what that batch is made of."""

    __slots__ = ("at_end", "loader", "share")

    def __init__(self, loader: DataLoaderShard) -> None:
        self.loader = loader
        self.at_end = False
        self.share: Share | None = None


class DataLoaderShard(DataLoader[Any]):
    """A loader that gives this process its part of each epoch, on its device.

    It has the attributes of the loader it was made from (`.dataset`, `.sampler`, `.batch_size`, …). On one process it
    iterates that very loader: nothing is fetched earlier, and nothing more drawn, than without us.

    Args:
        base: the loader that the script made.
        source: what is iterated: `base`, or a copy of it over a shard of its sampler or dataset.
        device: where batches go; None leaves them where they are.
        share: tells how batch number i was dealt (None: evenly, without padding).
        prepare_pass: called where a pass begins.
    """

    def __init__(
        self,
        base: DataLoader[Any],
        source: DataLoader[Any],
        gradient_state: GradientState,
        *,
        device: torch.device | None,
        non_blocking: bool = False,
        processes: int = 1,
        split_batches: bool = False,
        share: Callable[[int], Share | None] | None = None,
        prepare_pass: Sequence[Callable[[], object]] = (),
    ) -> None:
        # Deliberately not DataLoader.__init__: this is a view of two loaders that exist already.
        own = self.__dict__
        own["base"], own["source"], own["gradient_state"] = base, source, gradient_state
        own["device"], own["non_blocking"] = device, non_blocking
        own["_processes"], own["_split"] = processes, split_batches
        own["_share"], own["_prepare_pass"] = share, prepare_pass

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for action in self._prepare_pass:
            action()
        passes = self.gradient_state.passes
        this = Pass(self)
        passes.append(this)
        device, share_of, last = self.device, self._share, self._last_index()
        number = -1
        try:
            for number, batch in enumerate(self._batches(this, last)):
                if passes[-1] is not this:  # another loader gave a batch meanwhile
                    passes.remove(this)
                    passes.append(this)
                if number == last:
                    this.at_end = True
                if share_of is not None:
                    this.share = share_of(number)
                if type(batch) is Tagged:
                    batch, this.share = batch.value, batch.share
                yield batch if device is None else send_to_device(batch, device, self.non_blocking)
        finally:
            if this in passes:
                passes.remove(this)

    def _batches(self, this: Pass, last: int | None) -> Iterator[Any]:
        """The source's batches. Where its length is unknown and a window must end with it, read one batch ahead."""
        state = self.gradient_state
        if last is not None or state.num_steps == 1 or not state.sync_with_dataloader:
            return iter(self.source)
        return self._looking_ahead(this)

    def _looking_ahead(self, this: Pass) -> Iterator[Any]:
        iterator = iter(self.source)
        try:
            batch = next(iterator)
        except StopIteration:
            return
        for following in iterator:
            yield batch
            batch = following
        this.at_end = True
        yield batch

    def _last_index(self) -> int | None:
        if isinstance(self.base.dataset, torch.utils.data.IterableDataset):
            return None  # a length given by an iterable dataset is a guess
        try:
            return len(self.source) - 1
        except TypeError:
            return None

    def __len__(self) -> int:
        """Batches that this process gets in an epoch."""
        return len(self.source)

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset which epoch begins, where they want to know."""
        base = self.base
        batches = getattr(base, "batch_sampler", None)
        pass_on_epoch(epoch, batches, getattr(batches, "sampler", None), getattr(base, "sampler", None), base.dataset)

    @property
    def total_batch_size(self) -> int:
        """Samples per batch over all processes."""
        size: int | None = self.base.batch_size
        if size is None:
            size = int(getattr(self.base.batch_sampler, "batch_size", None) or 1)
        return size if self._split else size * self._processes

    @property
    def total_dataset_length(self) -> int:
        """Samples of the whole dataset."""
        return len(self.base.dataset)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch given last was the last one."""
        current = [p for p in self.gradient_state.passes if p.loader is self]
        return bool(current) and current[-1].at_end

    @property
    def remainder(self) -> int:
        """The real samples, over all processes, of the batch given last, where some are padding; else -1."""
        current = [p for p in self.gradient_state.passes if p.loader is self and p.share and p.share.padded]
        return sum(current[-1].share.real) if current and current[-1].share else -1

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "source"):
            raise AttributeError(name)
        return getattr(self.base, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
            return
        setattr(self.base, name, value)
        if self.source is not self.base:
            setattr(self.source, name, value)

    def __repr__(self) -> str:
        return f"DataLoaderShard({self.base!r})"
