"""How the samples of an epoch are dealt to the processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch.utils.data import BatchSampler

from .rows import RowRange
from .stand_in import StandIn

_REMEMBERED = 4096  # irregular rounds that a shard remembers: more than any prefetching runs ahead


@dataclass(frozen=True)
class Share:
    """How many samples each process holds in a round, and how many of them are real (the others are padding)."""

    sizes: tuple[int, ...]
    real: tuple[int, ...]

    @property
    def padded(self) -> bool:
        return self.sizes != self.real

    @property
    def uneven(self) -> bool:
        return len(set(self.sizes)) > 1


def deal(samples: Any, start: list[Any], count: int, even: bool, full: int | None = None) -> tuple[list[Any], Share]:
    """Split a global batch into `count` consecutive parts.

    Args:
        samples: the global batch, a list (or a RowRange).
        start: the epoch's first samples, which complete a batch that does not go round.
        even: complete it, with as few samples as needed; otherwise the last parts are shorter, or empty.
        full: a batch's size. Samples that fill some batches stay these batches, and whole ones complete them.
    """
    size = full if even and full is not None and len(samples) % full == 0 else -(-len(samples) // count)
    real = tuple(min(size, max(0, len(samples) - part * size)) for part in range(count))
    if even and (missing := size * count - len(samples)):
        samples = samples + list(itertools.islice(itertools.cycle(start), missing))
    parts = [samples[part * size : (part + 1) * size] for part in range(count)]
    return parts, Share(tuple(map(len, parts)), real)


def size_of_part(size: int, count: int) -> int:
    """How many samples of a batch each process gets under `split_batches`.

    Raises:
        ValueError: the batch cannot be split evenly.
    """
    if size % count:
        raise ValueError(
            f"split_batches=True splits each batch between {count} processes, but the loader's batch size is {size}: "
            f"choose a multiple of {count}, or split_batches=False."
        )
    return size // count


class BatchSamplerShard(StandIn):
    """One process's batches of a batch sampler.

    Every process runs through the whole sampler, which must give the same batches everywhere, and takes its part.

    Args:
        batches: a batch sampler, or (with `atoms`) a sampler whose items are batches already.
        count, index: the number of processes, and which of them this is.
        split: each batch is split between the processes; otherwise they take turns.
        even: every process gets as many batches; what is missing at the end comes from the epoch's start. Where the
            last batch is not full, the last round is dealt again, so that at most `count - 1` samples are seen twice.
            Where all batches are full they stay so, since a script may count on their size: then up to `count - 1`
            whole batches are.
        atoms: items are indivisible.
        advance: how to iterate `batches`, in the place of `iter`.
    """

    stands_for = "batches"

    def __init__(
        self,
        batches: Any,
        count: int,
        index: int,
        *,
        split: bool = False,
        even: bool = True,
        atoms: bool = False,
        advance: Callable[[Any], Iterator[Any]] = iter,
    ) -> None:
        self.batches = batches
        self.count, self.index, self.split, self.even, self.atoms = count, index, split, even, atoms
        self._advance = advance
        self._irregular: dict[int, Share] = {}
        size = getattr(batches, "batch_size", None)
        self.batch_size: int | None = size if isinstance(size, int) and not atoms else None
        self.drop_last = bool(getattr(batches, "drop_last", False))
        if split and self.batch_size is not None:
            size_of_part(self.batch_size, count)

    def share(self, number: int) -> Share | None:
        """What each process holds in round `number` of the pass being read; None for a full round."""
        return self._irregular.get(number)

    def __iter__(self) -> Iterator[Any]:
        if is_plain_batch_sampler(self.batches) and not self.split and not self.atoms:
            return self._cut_out()
        return self._own(self.rounds(self._advance(self.batches)))

    def _own(self, rounds: Iterator[tuple[list[Any], Share | None]], first: int = 0) -> Iterator[Any]:
        for number, (parts, share) in enumerate(rounds, first):
            self.remember(number, share)
            if share is None or share.sizes[self.index]:
                yield parts[self.index]

    def _cut_out(self) -> Iterator[Any]:
        """This process's batches of torch's own batch sampler, cut out of the indices of a round: this is quicker."""
        size = self.batches.batch_size
        whole, low = size * self.count, size * self.index
        high, start = low + size, None
        for number, indices in enumerate(self._advance(BatchSampler(self.batches.sampler, whole, drop_last=False))):
            start = start or indices
            if len(indices) != whole:
                turn = self._cut(indices)
                if self.batches.drop_last and len(turn[-1]) < size:
                    turn.pop()
                yield from self._own(self._deal_turns([turn] if turn else [], self._cut(start)), number)
                return
            if self._irregular:
                self.remember(number, None)
            yield indices[low:high]

    def _cut(self, indices: list[Any]) -> list[list[Any]]:
        size = self.batches.batch_size
        return [indices[start : start + size] for start in range(0, len(indices), size)]

    def remember(self, number: int, share: Share | None) -> None:
        """Keep what `share(number)` is to tell."""
        if share is not None:
            self._irregular[number] = share
        elif self._irregular:
            self._irregular.pop(number, None)
        self._irregular.pop(number - _REMEMBERED, None)

    def rounds(self, source: Iterator[Any]) -> Iterator[tuple[list[Any], Share | None]]:
        """The batches of `source` dealt, round by round: a part for each process, and the share if it is not full."""
        if self.split and not self.atoms:
            return self._split_rounds(source)
        return self._deal_turns(iter(lambda: list(itertools.islice(source, self.count)), []))

    def _split_rounds(self, source: Iterator[Any]) -> Iterator[tuple[list[Any], Share | None]]:
        start: list[Any] = []
        for batch in source:
            if len(start) < self.count:
                start += batch[: self.count - len(start)]
            samples = batch if isinstance(batch, RowRange) else list(batch)
            parts, share = deal(samples, start, self.count, self.even)
            yield parts, share if share.padded or share.uneven or self._is_short(batch) else None

    def _is_short(self, batch: list[Any]) -> bool:
        return self.batch_size is not None and len(batch) != self.batch_size

    def _deal_turns(
        self, turns: Iterable[list[Any]], start: list[Any] | None = None
    ) -> Iterator[tuple[list[Any], Share | None]]:
        full_turn = [self.batch_size] * self.count if self.batch_size is not None else None
        for turn in turns:
            if start and full_turn is not None and [*map(len, turn)] == full_turn:  # the rule, made short
                yield turn, None
                continue
            if len(turn) < self.count and self.drop_last:
                return
            start = start or turn
            sizes = tuple(1 if self.atoms else len(batch) for batch in turn)
            if len(turn) == self.count and len(set(sizes)) == 1:
                full = self.batch_size is None or sizes[0] == self.batch_size
                yield turn, None if full and not self.atoms else Share(sizes, sizes)
            elif self.even and self.batch_size is not None and set(sizes) != {self.batch_size}:
                yield deal(list(chain.from_iterable(turn)), list(chain.from_iterable(start)), self.count, True)
            else:
                missing = self.count - len(turn)
                spare = list(itertools.islice(itertools.cycle(start), missing)) if self.even else [[]] * missing
                spare_sizes = tuple(1 if self.atoms and self.even else len(batch) for batch in spare)
                yield turn + spare, Share(sizes + spare_sizes, sizes + (0,) * missing)

    def __len__(self) -> int:
        return self._length(self.index)

    def lengths(self) -> list[int]:
        """How many batches each process gets.

        Raises:
            TypeError: the batch sampler has no length.
        """
        return [self._length(index) for index in range(self.count)]

    def _length(self, index: int) -> int:
        total = len(self.batches)
        if self.split and not self.atoms:
            return total - self._without_part_of_last(index)
        if self.even:
            return total // self.count if self.drop_last else -(-total // self.count)
        return total // self.count + (not self.drop_last and index < total % self.count)

    def _without_part_of_last(self, index: int) -> bool:
        """Whether the last batch is too short to give process `index` a sample."""
        sampler = getattr(self.batches, "sampler", None)
        if self.even or self.drop_last or self.batch_size is None or sampler is None:
            return False
        last = len(sampler) % self.batch_size
        return last > 0 and index * -(-last // self.count) >= last

    @property
    def batch_sampler(self) -> Any:
        """What the batches come from."""
        return self.batches

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the batch sampler and its sampler, where they take one."""
        pass_on_epoch(epoch, self.batches, getattr(self.batches, "sampler", None))


class SkippedBatches(StandIn):
    """A batch sampler (or sampler) without its first `count` items."""

    stands_for = "batches"

    def __init__(self, batches: Any, count: int) -> None:
        self.batches, self.count = batches, count

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.batches), self.count, None)

    def __len__(self) -> int:
        return max(0, len(self.batches) - self.count)


def pass_on_epoch(epoch: int, *holders: Any) -> None:
    """Call `set_epoch` of each of `holders` that has one, once."""
    told: list[Any] = []
    for holder in holders:
        if hasattr(holder, "set_epoch") and not any(holder is other for other in told):
            told.append(holder)
            holder.set_epoch(epoch)


def is_plain_batch_sampler(batches: Any) -> bool:
    """Whether this is torch's own BatchSampler, whose batches depend on its sampler alone."""
    return type(batches) is BatchSampler
