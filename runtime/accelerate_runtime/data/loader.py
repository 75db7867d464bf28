"""The prepared loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from ..accumulation import GradientState
from ..structures import send_to_device
from .loaders import is_stream
from .parcels import Tagged
from .position import Position, Reading
from .samplers import BatchSamplerShard, Share
from .streams import IterableDatasetShard


class Pass:
    """One iteration over a prepared loader: which batch it gave last, and what that batch is made of."""

    __slots__ = ("at_end", "loader", "number", "share")

    def __init__(self, loader: DataLoaderShard) -> None:
        self.loader = loader
        self.at_end = False
        self.number = -1
        self.share: Share | None = None


class DataLoaderShard(DataLoader[Any]):
    """A loader that gives this process its part of each epoch, on its device.

    It has the attributes of the loader it was made from (`.dataset`, `.sampler`, `.batch_size`, …). On one process it
    iterates that very loader: nothing is fetched earlier, and nothing more drawn, than without us.

    Args:
        base: the loader that the script made.
        source: what is iterated: `base`, or a copy of it over a shard of its sampler or dataset.
        device: where batches go; None leaves them where they are.
        deliver: brings them there: `deliver(batch, device, non_blocking)`.
        share: tells how batch number i was dealt (None: evenly, without padding).
        dealing: what deals the samples, where it is ours.
        prepare_pass: called where a pass begins.
        inspect: is given the batches of a pass, and gives them back.
    """

    position: Position
    skipped: int | None

    def __init__(
        self,
        base: DataLoader[Any],
        source: DataLoader[Any],
        gradient_state: GradientState,
        *,
        device: torch.device | None,
        non_blocking: bool = False,
        deliver: Callable[[Any, torch.device, bool], Any] = send_to_device,
        processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        share: Callable[[int], Share | None] | None = None,
        dealing: BatchSamplerShard | IterableDatasetShard | None = None,
        prepare_pass: Sequence[Callable[[], object]] = (),
        inspect: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
    ) -> None:
        # Deliberately not DataLoader.__init__: this is a view of two loaders that exist already.
        own = self.__dict__
        own["base"], own["source"], own["gradient_state"] = base, source, gradient_state
        own["device"], own["non_blocking"], own["_deliver"] = device, non_blocking, deliver
        own["_processes"], own["_split"] = processes, split_batches
        own["_share"], own["dealing"], own["_prepare_pass"], own["_inspect"] = share, dealing, prepare_pass, inspect
        own["position"] = Position(base, source, processes, process_index, self._round_size())
        own["skipped"] = None

    def _round_size(self) -> int | None:
        """How many samples all processes together take with each batch, one round after the other as the sampler has
        them; None where that is not known."""
        if is_stream(self.base) or not (self._processes == 1 or isinstance(self.dealing, BatchSamplerShard)):
            return None
        size = getattr(self.base.batch_sampler, "batch_size", None)
        return self.total_batch_size if isinstance(size, int) else None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        length = self.position.length_of(self.source)
        last = None if length is None else length - 1
        reading = self.position.begin(self._prepare_pass, self.skipped, self._looks_ahead(last))
        passes = self.gradient_state.passes
        this = Pass(self)
        passes.append(this)
        device, share_of, deliver = self.device, self._share, self._deliver
        try:
            for number, batch in enumerate(self._batches(this, reading, last), reading.given):
                if passes[-1] is not this:  # another loader gave a batch meanwhile
                    passes.remove(this)
                    passes.append(this)
                this.number = number
                if number == last:
                    this.at_end = True
                reading.given = number + 1
                if share_of is not None:
                    this.share = share_of(number)
                if type(batch) is Tagged:
                    batch, this.share = batch.value, batch.share
                yield batch if device is None else deliver(batch, device, self.non_blocking)
        finally:
            if this in passes:
                passes.remove(this)
            self.position.end(reading)

    def _looks_ahead(self, last: int | None) -> bool:
        """Whether to read one batch ahead: their number is unknown, and an accumulation window must end with them."""
        state = self.gradient_state
        return last is None and state.num_steps > 1 and state.sync_with_dataloader

    def _batches(self, this: Pass, reading: Reading, last: int | None) -> Iterator[Any]:
        batches = self._looking_ahead(this, reading) if self._looks_ahead(last) else reading.opened.iterator
        return batches if self._inspect is None else self._inspect(batches)

    def _looking_ahead(self, this: Pass, reading: Reading) -> Iterator[Any]:
        iterator = reading.opened.iterator
        held = list(islice(iterator, 1)) if reading.held is None else reading.held
        while held:
            self.position.before_reading_ahead(reading)
            following = list(islice(iterator, 1))
            if not following:
                this.at_end = reading.whole = True
            yield held.pop()
            held = following

    def __len__(self) -> int:
        """Batches that this process gets in an epoch."""
        return max(0, len(self.source) - (self.skipped or 0))

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset which epoch begins, where they want to know."""
        self.position.set_epoch(epoch)

    @property
    def iteration(self) -> int:
        """The number of the pass in progress, or of the next one; `set_epoch` sets it."""
        return self.position.iteration

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: its epoch and, if a pass is in progress, how many batches it has given.

        Returns:
            Numbers, strings, bytes, lists, tuples and dicts; some 10 kB, more if the dataset draws in workers. It is
            this process's own. The states of the global random generators are not in it: save them with it.
        """
        return self.position.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`, which a loader made in the same way gave.

        The next pass gives the batches that the interrupted one had not given (none, where it had given its last), and
        the passes after it give the orders that would have come. Where no pass was in progress, the next is a new one.
        With the global random states restored as well, everything draws the numbers that it would have drawn.

        What the script cannot see is not restored: generators that objects hold elsewhere than in an attribute of the
        loader, its samplers, its dataset or its `collate_fn`. Samplers and iterable datasets give again what they gave;
        a dataset that has `state_dict` and `load_state_dict` is put back by them instead of being read again (but not
        with `dispatch_batches`). Where batches are fetched by another number of workers, a dataset that draws in them
        draws other numbers.

        Raises:
            ValueError: it is the state of another loader: of other processes, another dataset or batch size (only where
                a pass was in progress). What shows only later, that a sampler or a dataset gives something else now, is
                raised where the next pass begins.
        """
        self.position.load_state_dict(state_dict)

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
        current = self._current()
        return current is not None and current.at_end

    @property
    def remainder(self) -> int:
        """The real samples, over all processes, of the batch given last, where some are padding; else -1."""
        current = self._current()
        return sum(current.share.real) if current is not None and current.share and current.share.padded else -1

    def _current(self) -> Pass | None:
        return next((p for p in reversed(self.gradient_state.passes) if p.loader is self), None)

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "source"):
            raise AttributeError(name)
        if name == "batch_sampler":  # this process's batches, as in Accelerate
            return getattr(self.source, name, self.base.batch_sampler)
        return getattr(self.base, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
            return
        setattr(self.base, name, value)
        if self.source is not self.base:
            setattr(self.source, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"
