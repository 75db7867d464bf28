"""Checks of loaders and metrics on two processes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from both import accelerator, batches_of, diverge, everyone, me, numbers, seen_by_all
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
)

from accelerate_runtime import Accelerator, DataLoaderConfiguration
from accelerate_runtime.utils import set_seed


def check_a_shuffled_epoch_shows_each_sample_once_in_the_order_of_one_process() -> None:
    torch.manual_seed(3)
    alone = [x for batch in batches_of(DataLoader(numbers(16), batch_size=4, shuffle=True)) for x in batch]
    torch.manual_seed(3 if me == 0 else 99)  # only the main process's state counts
    loader = accelerator.prepare(DataLoader(numbers(16), batch_size=2, shuffle=True))
    mine = everyone(batches_of(loader))
    assert [x for pair in zip(*mine, strict=True) for batch in pair for x in batch] == alone
    second = seen_by_all(loader)
    assert sorted(second) == list(range(16))
    assert second != alone


def check_order_is_shared_whatever_the_sampler() -> None:
    class Shuffled(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            order = list(range(12))
            random.shuffle(order)
            yield from order

        def __len__(self) -> int:
            return 12

    class Batches:
        """A batch sampler of its own make, that draws as it goes."""

        def __iter__(self) -> Iterator[list[int]]:
            rest = torch.randperm(12).tolist()
            while rest:
                size = int(torch.randint(1, 3, ()))
                yield rest[:size]
                rest = rest[size:]

    data = numbers(12)
    weights = torch.utils.data.WeightedRandomSampler(torch.ones(12), 12, replacement=False)
    for loader in (
        DataLoader(data, batch_size=2, sampler=Shuffled()),
        DataLoader(data, batch_size=2, sampler=weights),
        DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(me)),
        DataLoader(data, batch_size=2, sampler=torch.utils.data.SubsetRandomSampler(range(12))),
        DataLoader(data, batch_sampler=Batches()),  # type: ignore[arg-type]
        DataLoader(data, batch_size=None, sampler=BatchSampler(Shuffled(), 2, False)),
        DataLoader(data, batch_size=2, shuffle=True, num_workers=1),
    ):
        diverge()
        state = random.getstate()
        prepared = accelerator.prepare(loader)
        for _ in range(2):
            seen = set(seen_by_all(prepared))
            assert seen == set(range(12)), (loader.batch_sampler, seen)
        assert random.getstate() == state  # the sampler's own randomness stays out of the script's


def check_the_last_round_is_dealt_evenly() -> None:
    loader = accelerator.prepare(DataLoader(numbers(11), batch_size=4))
    assert len(loader) == 2
    assert batches_of(loader) == [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7], [10, 0]]][me]
    loader = accelerator.prepare(DataLoader(numbers(11), batch_size=4, drop_last=True))
    assert len(loader) == 1
    assert batches_of(loader) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]][me]


def check_batches_may_be_split_or_left_uneven() -> None:
    split = Accelerator(split_batches=True)
    loader = split.prepare(DataLoader(numbers(11), batch_size=4))
    assert len(loader) == 3
    assert loader.total_batch_size == 4
    assert batches_of(loader) == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 0]]][me]
    with pytest.raises(ValueError, match="multiple of 2"):
        split.prepare(DataLoader(numbers(11), batch_size=3))
    uneven = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
    loader = uneven.prepare(DataLoader(numbers(9), batch_size=3))
    assert len(loader) == [2, 1][me]
    assert batches_of(loader) == [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5]]][me]


def check_streams_are_dealt_in_order() -> None:
    class Stream(IterableDataset[tuple[torch.Tensor]]):
        def __init__(self, shuffled: bool = False) -> None:
            self.shuffled = shuffled

        def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
            order = torch.randperm(11).tolist() if self.shuffled else list(range(11))
            for x in order:
                yield (torch.tensor(float(x)),)

    for workers in (0, 1):
        loader = accelerator.prepare(DataLoader(Stream(), batch_size=4, num_workers=workers))
        got = []
        for (x,) in loader:
            got.append((x.tolist(), accelerator.gather_for_metrics(x).tolist()))
        assert [mine for mine, _ in got] == [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7], [10, 0]]][me]
        assert [all_ for _, all_ in got] == [list(range(8)), [8, 9, 10]]
        diverge()
        shuffled = accelerator.prepare(DataLoader(Stream(True), batch_size=2, num_workers=workers))
        assert set(seen_by_all(shuffled)) == set(range(11))


def check_datasets_draw_other_numbers_on_each_process() -> None:
    class Noisy(Dataset[tuple[float, float]]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> tuple[float, float]:
            return random.random(), float(torch.rand(()))

    for workers in (0, 2):
        set_seed(7)
        loader = accelerator.prepare(DataLoader(Noisy(), batch_size=2, shuffle=True, num_workers=workers))
        for _ in range(2):
            mine = [tuple(x) for batch in loader for x in torch.stack(list(batch), 1).tolist()]
            both = everyone(mine)
            for kind in (0, 1):
                assert len({x[kind] for side in both for x in side}) == 16, (workers, both)
            ours = everyone((random.random(), float(torch.rand(()))))
            assert ours[0] == ours[1]  # what a script draws stays in step


def check_a_sampler_that_deals_already_is_left_alone() -> None:
    data = numbers(11)
    loader = accelerator.prepare(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)))
    got = []
    for (x,) in loader:
        got.append(x.tolist())
        every = accelerator.gather_for_metrics(x).tolist()
    assert got == [[[0, 2, 4, 6], [8, 10]], [[1, 3, 5, 7], [9, 0]]][me]
    assert every == [8, 10, 9]
    with pytest.raises(ValueError, match="4 processes, but there are 2"):
        accelerator.prepare(DataLoader(data, sampler=DistributedSampler(data, num_replicas=4, rank=me)))


def check_metrics_count_each_sample_once() -> None:
    loader = accelerator.prepare(DataLoader(numbers(11), batch_size=2))
    other = accelerator.prepare(DataLoader(numbers(7), batch_size=2))
    seen, objects = [], []
    for (x,) in loader:
        for _ in other:
            break
        kept = iter(other)
        next(kept)  # one that nobody finishes
        both = accelerator.gather_for_metrics({"x": x, "pair": [x, x * 2]})
        assert torch.equal(both["pair"][1], both["x"] * 2)
        seen += both["x"].tolist()
        objects += accelerator.gather_for_metrics([str(int(v)) for v in x], use_gather_object=True)
        assert accelerator.gather_for_metrics(x.sum()).shape == (2,)
    assert seen == list(range(11))
    assert objects == [str(n) for n in range(11)]
    assert len(accelerator.gather_for_metrics(torch.zeros(4))) == 8  # no loader is being read

    def gather_something_else() -> None:
        for (x,) in loader:
            accelerator.gather_for_metrics(x.repeat(3))

    with pytest.raises(ValueError, match="not known which rows"):
        gather_something_else()


def check_a_process_whose_last_batch_is_padding_adds_nothing_to_metrics() -> None:
    for loader in (
        DataLoader(numbers(6), batch_size=2),
        DataLoader(numbers(6), batch_size=2, num_workers=1),
        DataLoader([(float(number),) for number in range(6)], batch_size=2),  # type: ignore[arg-type]
    ):
        seen, objects, remainders = [], [], []
        prepared = accelerator.prepare(loader)
        assert len(prepared) == 2
        for (x,) in prepared:
            assert x.shape == (2,)
            seen += accelerator.gather_for_metrics(x).tolist()
            objects += accelerator.gather_for_metrics([str(int(v)) for v in x], use_gather_object=True)
            remainders.append(prepared.remainder)
            totals = accelerator.gather_for_metrics({"sum": x.sum()})["sum"].tolist()
            names = accelerator.gather_for_metrics(me, use_gather_object=True)
        assert (seen, objects) == (list(range(6)), [str(n) for n in range(6)])
        assert remainders == [-1, 2]
        assert (totals, names) == ([9], [0])  # one number a process: none of a process that has no sample


def check_a_number_over_a_batch_that_is_partly_padding_is_an_error() -> None:
    loader = accelerator.prepare(DataLoader(numbers(11), batch_size=4))  # the last round: [8, 9], [10, 0]
    other = accelerator.prepare(DataLoader(numbers(11), batch_size=4))
    for number, (x,) in enumerate(loader):
        for _ in other:
            break  # a loop that was left has no say in it
        for value in (x.mean(), {"loss": x.mean()}, x.mean().item(), [x.mean().item()] * 3):
            if number == 0:
                assert accelerator.gather_for_metrics(value) is not None
                continue
            with pytest.raises(ValueError, match=r"partly padding .* \(2, 1\) are real"):
                accelerator.gather_for_metrics(value)
    assert accelerator.gather_for_metrics(torch.tensor(1.0)).shape == (2,)


def check_uneven_batches_are_gathered_too() -> None:
    class Lengths:
        def __iter__(self) -> Iterator[list[int]]:
            yield from ([0], [1, 2, 3], [4, 5], [6])

    loader = accelerator.prepare(DataLoader(numbers(7), batch_sampler=Lengths()))  # type: ignore[arg-type]
    assert [x for (b,) in loader for x in accelerator.gather_for_metrics(b).tolist()] == list(range(7))
