"""Checks of dispatch_batches=True on two processes."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from both import accelerator, batches_of, everyone, me, numbers
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from accelerate_runtime import Accelerator, DataLoaderConfiguration


def dispatching(**options: Any) -> Accelerator:
    return Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True, **options))


class Stream(IterableDataset[tuple[torch.Tensor]]):
    def __init__(self, count: int) -> None:
        self.count, self.read = count, 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        for number in range(self.count):
            self.read += 1
            yield (torch.tensor(float(number)),)


class Given(Dataset[Any]):
    """The samples given; one that is an exception is raised."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.samples[index], Exception):
            raise self.samples[index]
        return self.samples[index]


Pair = namedtuple("Pair", "left right")


@dataclass
class Example:
    x: torch.Tensor
    names: list[str]


def check_dispatched_batches_are_those_of_sharded_loaders() -> None:
    for options in (
        {},
        {"split_batches": True},
        {"even_batches": False},
        {"split_batches": True, "even_batches": False},
    ):
        dispatcher, sharder = dispatching(**options), Accelerator(dataloader_config=DataLoaderConfiguration(**options))
        for count, drop_last in ((11, False), (12, False), (16, False), (1, False), (0, False), (13, True), (4, False)):
            for make in (numbers, Stream):
                if make is Stream and "even_batches" in options:
                    continue  # a stream's last samples are split, not dealt batch by batch
                args = {"batch_size": 4, "drop_last": drop_last}
                ours = dispatcher.prepare(DataLoader(make(count), **args))
                theirs = sharder.prepare(DataLoader(make(count), **args))
                if "even_batches" in options:
                    seen, wanted = batches_of(ours), batches_of(theirs)
                else:
                    seen = [(x.tolist(), dispatcher.gather_for_metrics(x).tolist(), ours.remainder) for (x,) in ours]
                    wanted = [(x.tolist(), sharder.gather_for_metrics(x).tolist(), theirs.remainder) for (x,) in theirs]
                assert seen == wanted, (options, count, drop_last, make)
                if make is numbers:
                    assert len(ours) == len(theirs) == len(seen)


def check_only_the_main_process_reads() -> None:
    stream = Stream(8)
    loader = dispatching().prepare(DataLoader(stream, batch_size=2))
    assert batches_of(loader) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]][me]
    assert stream.read == [8, 0][me]
    loader = dispatching().prepare(DataLoader(Stream(8), batch_size=2, num_workers=1))
    assert batches_of(loader) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]][me]


def check_the_order_is_that_of_one_process_and_draws_stay_in_step() -> None:
    torch.manual_seed(3)
    alone = [
        x for _ in range(2) for batch in batches_of(DataLoader(numbers(16), batch_size=4, shuffle=True)) for x in batch
    ]
    after = torch.rand(()).item()
    torch.manual_seed(3)
    loader = dispatching().prepare(DataLoader(numbers(16), batch_size=2, shuffle=True))
    both = everyone(batches_of(loader) + batches_of(loader))
    assert [x for pair in zip(*both, strict=True) for batch in pair for x in batch] == alone
    assert everyone(torch.rand(()).item()) == [after, after]


def check_accumulation_windows_end_with_a_dispatched_stream() -> None:
    many = Accelerator(gradient_accumulation_steps=2, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    loader = many.prepare(DataLoader(Stream(10), batch_size=2))
    ends = []
    for _ in loader:
        with many.accumulate():
            ends.append((many.sync_gradients, loader.end_of_dataloader))
    assert ends == [(False, False), (True, False), (True, True)]


def check_nested_batches_arrive_as_they_were() -> None:
    def collate(samples: list[int]) -> Any:
        number = samples[0]
        x = torch.arange(float(2 * number)).reshape(2, number)  # another shape in each batch
        return {
            "pair": Pair(x, (x > 1, x.to(torch.bfloat16))),
            "example": Example(x.t()[:1].t(), ["a" * number, "b"]),
            "user": UserDict(ids=x.to([torch.int64, torch.float64][number % 2])),
            "empty": torch.empty(2, 0),
            "scale": torch.tensor(number),
            "extra": (None, number, "text", {number}),
        }

    loader = dispatching().prepare(DataLoader(range(1, 600, 99), batch_size=1, collate_fn=collate))  # type: ignore[arg-type]
    got = list(loader)
    assert len(got) == 4
    for turn, batch in enumerate(got):
        number = [*range(1, 600, 99), 1][2 * turn + me]
        wanted = collate([number])
        assert type(batch["pair"]) is Pair
        assert type(batch["user"]) is UserDict
        assert type(batch["example"]) is Example
        assert batch["extra"] == wanted["extra"]
        assert batch["example"].names == wanted["example"].names
        pairs = [
            (batch["pair"].left, wanted["pair"].left),
            (batch["pair"].right[0], wanted["pair"].right[0]),
            (batch["pair"].right[1], wanted["pair"].right[1]),
            (batch["example"].x, wanted["example"].x),
            (batch["user"]["ids"], wanted["user"]["ids"]),
            (batch["empty"], wanted["empty"]),
            (batch["scale"], wanted["scale"]),
        ]
        for ours, theirs in pairs:
            assert ours.dtype is theirs.dtype
            assert torch.equal(ours, theirs)
    kept = [batch["pair"].left.clone() for batch in got]
    list(loader)
    assert all(torch.equal(a["pair"].left, b) for a, b in zip(got, kept, strict=True))  # no memory is used twice


def check_texts_are_split_and_the_last_round_is_completed() -> None:
    samples = [(str(number), float(number)) for number in range(7)]
    split = dispatching(split_batches=True)
    loader = split.prepare(DataLoader(Given(samples), batch_size=4))
    got = [(list(texts), x.tolist()) for texts, x in loader]
    assert got == [[(["0", "1"], [0, 1]), (["4", "5"], [4, 5])], [(["2", "3"], [2, 3]), (["6", "0"], [6, 0])]][me]
    named = [{"text": text} for text, _ in samples]
    whole = dispatching().prepare(DataLoader(Given(named), batch_size=2, collate_fn=list))
    assert list(whole) == [[named[0:2], named[4:6]], [named[2:4], [named[6], named[0]]]][me]


def check_batches_that_cannot_be_cut_take_turns() -> None:
    def collate(samples: list[Any]) -> list[torch.Tensor]:
        return [torch.ones(len(samples)), torch.ones(7)]

    loader = dispatching().prepare(DataLoader(range(6), batch_size=2, collate_fn=collate))  # type: ignore[arg-type]
    assert [len(x) for x, _ in loader] == [2, 2]
    split = dispatching(split_batches=True).prepare(
        DataLoader(range(6), batch_size=2, collate_fn=collate)  # type: ignore[arg-type]
    )
    with pytest.raises((ValueError, RuntimeError), match=r"shape \(2,\), a tensor of shape \(7,\)"):
        list(split)


def check_a_script_may_cut_batches_itself() -> None:
    told = []

    def every_other(batch: Any, part: slice, process_index: int, num_processes: int) -> Any:
        told.append((part, process_index))
        return [x[process_index::num_processes] for x in batch]

    for options, size in (({}, 2), ({"split_batches": True}, 4)):
        told.clear()
        dispatcher = dispatching(**options)
        loader = DataLoader(numbers(7), batch_size=size)
        prepared = dispatcher.prepare_data_loader(loader, slice_fn_for_dispatch=every_other)
        assert batches_of(prepared) == [[[0, 2], [4, 6]], [[1, 3], [5, 0]]][me]
        assert told == [[(slice(0, 2), 0), (slice(2, 4), 1)] * 2, []][me]
    with pytest.raises(ValueError, match="dispatch_batches=True"):
        accelerator.prepare_data_loader(DataLoader(numbers(7)), slice_fn_for_dispatch=every_other)


def check_an_error_of_the_dataset_reaches_every_process() -> None:
    broken: list[Any] = [0.0, 1.0, 2.0, 3.0, 4.0, KeyError("no such sample")]
    unpicklable: list[Any] = [0.0, 1.0, 2.0, 3.0, 4.0, lambda: None]
    for samples, told in ((broken, "no such sample"), (unpicklable, "pickle")):
        loader = dispatching().prepare(DataLoader(Given(samples), batch_size=1, collate_fn=list))
        epoch = iter(loader)
        assert len([next(epoch), next(epoch)]) == 2
        with pytest.raises(Exception, match=told) as error:
            next(epoch)
        if me == 1:
            assert "the main process failed to read batch 2" in str(error.value)
    assert everyone(me) == [0, 1]


def check_a_dispatched_loader_goes_on_where_it_was() -> None:
    def made(shuffle: bool) -> DataLoader[Any]:
        return DataLoader(numbers(16) if shuffle else Stream(16), batch_size=2, shuffle=shuffle or None)

    for shuffle in (True, False):
        dispatcher = dispatching()
        loader = dispatcher.prepare(made(shuffle))
        epoch = iter(loader)
        next(epoch)
        state = loader.state_dict()
        rest = [x.tolist() for (x,) in epoch]
        again = dispatching().prepare(made(shuffle))
        again.load_state_dict(state)
        assert batches_of(again) == rest
        assert len(rest) == 3
    skipping = dispatcher.skip_first_batches(loader, 3)
    assert batches_of(skipping) == [[[12, 13]], [[14, 15]]][me]


def check_loops_may_be_left_early_by_all() -> None:
    dispatcher = dispatching()
    loader, other = (dispatcher.prepare(DataLoader(numbers(12), batch_size=2)) for _ in range(2))
    for _ in range(2):
        for (x,) in loader:
            for (y,) in other:
                assert y.tolist() == [2 * me, 2 * me + 1]
                break
            assert x.tolist() == [2 * me, 2 * me + 1]
            break
    assert len(batches_of(loader)) == 3


def check_processes_that_leave_at_different_batches_are_told() -> None:
    loader = dispatching().prepare(DataLoader(numbers(12), batch_size=2))
    epoch = iter(loader)
    next(epoch)
    if me == 0:
        next(iter(loader))
    else:
        with pytest.raises(RuntimeError, match=r"waits for batch 1 of pass 1 .* sent batch 0 of pass 2"):
            next(epoch)


def check_what_cannot_be_dispatched_is_refused() -> None:
    data = numbers(8)
    with pytest.raises(ValueError, match="DistributedSampler gives it a part only"):
        dispatching().prepare(DataLoader(data, sampler=DistributedSampler(data)))
    with pytest.raises(ValueError, match="multiple of 2"):
        dispatching(split_batches=True).prepare(DataLoader(data, batch_size=3))
    with pytest.raises(TypeError, match="dispatch_batches='yes'"):
        DataLoaderConfiguration(dispatch_batches="yes")  # type: ignore[arg-type]
