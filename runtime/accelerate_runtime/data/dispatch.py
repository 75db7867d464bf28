"""`dispatch_batches=True`: the main process alone reads a loader, and sends each process its part."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, RandomSampler, default_collate

from .. import topology
from ..division import Division
from ..plugins import DataLoaderConfiguration
from ..random import global_states, set_global_states
from ..topology import Topology
from ..waiting import together
from .channel import Kind, Label, Receiver, Sender
from .loader import DataLoaderShard
from .loaders import is_stream
from .opening import Opened, Reopening, dismiss_workers, place_of_idle_workers
from .rows import RowRange, layout_of, take_out
from .samplers import BatchSamplerShard, Share, deal

_CALL = "the next batch of a dispatched loader"
_loaders = itertools.count()
_groups: list[dist.ProcessGroup | None] = []


class DataLoaderDispatcher(DataLoaderShard):
    """A prepared loader that only the main process reads; see `Dispatched`."""


def dispatched(
    loader: DataLoader[Any],
    division: Division,
    config: DataLoaderConfiguration,
    slice_fn: Callable[..., Any] | None,
    own_sampler: Any,
) -> Dispatched:
    """The source of a DataLoaderDispatcher over `loader`. To be called on every process.

    Raises:
        ValueError: `own_sampler`, of the loader, deals between the processes already.
    """
    if own_sampler is not None:
        raise ValueError(
            f"dispatch_batches=True has the main process read the whole set, but the loader's "
            f"{type(own_sampler).__name__} gives it a part only: leave the sampler out, or pass dispatch_batches=False."
        )
    return Dispatched(loader, division, config, slice_fn)


class Dispatched(Reopening):
    """Batches of a loader that the main process reads exactly as it would alone: its draws, its workers, its order.

    Batches are dealt as those of sharded loaders are; a batch is cut only where the processes cannot take turns with
    whole ones (`split_batches`, the last round). What the loader's sampler and dataset draw from the global generators
    is drawn on the main process alone; the others follow the draws of a plain shuffled loader, and no more.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        division: Division,
        config: DataLoaderConfiguration,
        slice_fn: Callable[..., Any] | None = None,
    ) -> None:
        place = division.place
        self.loader, self.place, self.slice_fn = loader, place, slice_fn
        whole = is_stream(loader) or loader.batch_sampler is None
        self.dealing = BatchSamplerShard(
            loader if whole else loader.batch_sampler,
            place.num_processes,
            place.process_index,
            split=config.split_batches,
            even=config.even_batches,
        )
        self.share = self.dealing.share
        self._size = self.dealing.batch_size
        self._number, self._iterations = next(_loaders), 0
        self._reader: dict[str, Any] | None = None  # where the main process's iterator begins
        self._opened: Opened | None = None
        group = _cpu_group(place)
        self._shared = division.shared
        self._reads = topology.current().is_main_process if division.shared else place.is_main_process
        if self._reads:
            self._parts = division.parts[1:]
            self._senders = [Sender(peer, group) for peer in range(1, len(division.parts))]
            self._work: list[Any] = []
        else:
            self._receiver = Receiver(0, group)
            self._pin = loader.pin_memory and torch.accelerator.is_available()

    def __len__(self) -> int:
        return len(self.dealing)

    def __iter__(self) -> Iterator[Any]:
        self._iterations += 1
        labels = (Label(self._number, self._iterations, number) for number in itertools.count())
        return self._give(labels) if self._reads else self._take(labels)

    def begin(self, beginning: dict[str, Any] | None, exact: bool) -> Iterator[Any]:
        if beginning is not None:
            self._iterations = beginning["iteration"] - 1
            self._reader = {key: value for key, value in beginning["reader"].items() if exact or key != "indices"}
        return iter(self)

    def beginning(self) -> dict[str, Any]:
        reader = {} if self._opened is None else self._opened.place_of_start()
        return {"iteration": self._iterations, "reader": reader}

    def next_beginning(self) -> dict[str, Any]:
        return {"iteration": self._iterations + 1, "reader": place_of_idle_workers(self.loader)}

    def dismiss_workers(self) -> None:
        dismiss_workers(self.loader)

    def _give(self, labels: Iterator[Label]) -> Iterator[Any]:
        rounds = self._rounds()
        try:
            for label in labels:
                before = self._random_states()
                turn = self._or_tell(label, next, rounds, None)
                after = self._random_states()
                drawn = after if after != before else None
                together(_CALL, self._settle)
                if turn is None:
                    self._tell(Kind.END, drawn, label)
                    return
                parts, share = turn
                self._or_tell(label, self._pack, parts, share, drawn, label)
                self._work = [work for sender in self._senders for work in sender.send(label)]
                self.dealing.remember(label.round, share)
                if share is None or share.sizes[0]:
                    yield parts[0]
        finally:
            self._settle()

    def _pack(self, parts: list[Any], share: Share | None, drawn: bytes | None, label: Label) -> None:
        for sender, part in zip(self._senders, self._parts, strict=True):
            sender.pack(Kind.BATCH, (parts[part], share, drawn), label)

    def _random_states(self) -> bytes | None:
        """The global random states, where others work on the main process's batch too: they must draw as it does."""
        return pickle.dumps(global_states()) if self._shared else None

    def _follow(self, drawn: bytes | None) -> None:
        if drawn is not None and self.dealing.index == 0:
            set_global_states(pickle.loads(drawn))

    def _settle(self) -> None:
        """Wait until the others have what was sent last; meanwhile the next round was read."""
        while self._work:
            self._work.pop(0).wait()

    def _or_tell(self, label: Label, action: Callable[..., Any], *args: Any) -> Any:
        """`action(*args)`; an error in it reaches the other processes too."""
        try:
            return action(*args)
        except Exception:
            self._tell(Kind.ERROR, traceback.format_exc(), label)
            raise

    def _tell(self, kind: Kind, value: Any, label: Label) -> None:
        self._settle()
        for sender in self._senders:
            sender.pack(kind, value, label)
            self._work += sender.send(label)

    def _take(self, labels: Iterator[Label]) -> Iterator[Any]:
        self._follow_draws()
        for label in labels:
            got = together(_CALL, self._receiver.receive, self._pin)
            if got.label != label:
                raise RuntimeError(
                    f"dispatched loader: process {topology.rank()} waits for batch {label.round} of pass "
                    f"{label.iteration} of loader {label.loader}, but the main process sent batch {got.label.round} of "
                    f"pass {got.label.iteration} of loader {got.label.loader}. Every process must run through the same "
                    "loaders, and leave a loop early at the same batch."
                )
            if got.kind == Kind.END:
                self._follow(got.value)
                return
            if got.kind == Kind.ERROR:
                raise RuntimeError(
                    f"dispatched loader: the main process failed to read batch {label.round}, which is sent to all:\n"
                    f"{got.value}"
                )
            part, share, drawn = got.value
            self._follow(drawn)
            self.dealing.remember(label.round, share)
            if share is None or share.sizes[self.place.process_index]:
                yield part

    def _follow_draws(self) -> None:
        """Draw what a plain loader's iterator draws on the main process: its base seed, a shuffling sampler's seed."""
        loader = self.loader
        if loader.generator is None and not (loader.persistent_workers and self._iterations > 1):
            torch.empty((), dtype=torch.int64).random_()
        if type(loader.sampler) is RandomSampler and loader.sampler.generator is None:
            torch.empty((), dtype=torch.int64).random_()

    # Only the main process

    def _rounds(self) -> Iterator[tuple[list[Any], Share | None]]:
        """For each round the processes' batches (anything where a share is 0), and the share if it is not full."""
        reader, self._reader = self._reader, None
        self._opened = Opened(self.loader, 0, reader)
        batches = self._opened.iterator
        first = next(batches, _NOTHING)
        if first is _NOTHING:
            return
        layout = self._layout_of(first)
        batches = itertools.chain([first], batches)
        self.dealing.atoms, self.dealing.batch_size = layout is None, None if layout is None else self._size
        if layout is None:
            if self.dealing.split or self.slice_fn is not None:
                raise ValueError(
                    f"dispatch_batches=True: it cannot be told where the samples of a batch are ({_sketch(first)}), so "
                    "it can't be cut: collate tensors (or lists) of one row a sample, or leave split_batches and "
                    "slice_fn_for_dispatch out."
                )
            yield from self.dealing.rounds(batches)
            return
        rows = (self._rows_of(batch, layout) for batch in batches)
        if self.slice_fn is not None:
            yield from self._sliced_rounds(rows)
            return
        for parts, share in self.dealing.rounds(rows):
            yield [take_out(part) if len(part) else None for part in parts], share

    def _rows_of(self, batch: Any, layout: Any) -> RowRange:
        try:
            return RowRange.whole(batch, layout)
        except ValueError as error:
            layout = self._layout_of(batch)
            if layout is None:
                raise ValueError(f"dispatch_batches=True: {error} ({_sketch(batch)})") from None
            return RowRange.whole(batch, layout)

    def _layout_of(self, batch: Any) -> Any:
        return layout_of(batch, self._size, self.loader.collate_fn is default_collate)

    def _sliced_rounds(self, rows: Iterator[RowRange]) -> Iterator[tuple[list[Any], Share | None]]:
        """Rounds that `slice_fn` cuts out of the batch of all processes."""
        assert self.slice_fn is not None
        dealing, start = self.dealing, list[RowRange]()
        while turn := list(itertools.islice(rows, 1 if dealing.split else dealing.count)):
            if len(turn) < dealing.count and dealing.drop_last and not dealing.split:
                return
            start = start or turn
            samples = list(itertools.chain.from_iterable(turn))
            parts, share = deal(samples, list(itertools.chain.from_iterable(start)), dealing.count, dealing.even)
            batch = take_out([sample for part in parts for sample in part])
            ends = list(itertools.accumulate(share.sizes, initial=0))
            cut = [
                self.slice_fn(batch, slice(ends[i], ends[i + 1]), process_index=i, num_processes=dealing.count)
                for i in range(dealing.count)
            ]
            yield cut, share if share.padded or share.uneven or len(turn[0]) != dealing.batch_size else None


_NOTHING: Any = object()


def _cpu_group(place: Topology) -> dist.ProcessGroup | None:
    """A group that sends what lies in main memory, where loaders' batches are; None is the default group."""
    if place.backend is not None and "gloo" in place.backend:
        return None
    if not _groups:
        _groups.append(dist.new_group(backend="gloo"))
        topology.before_shutdown(_groups.clear)
    return _groups[0]


def _sketch(batch: Any) -> str:
    if isinstance(batch, torch.Tensor):
        return f"a tensor of shape {tuple(batch.shape)}"
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__} of {', '.join(_sketch(item) for item in batch[:4])}"
    return type(batch).__name__
