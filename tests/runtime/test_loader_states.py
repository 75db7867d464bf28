"""States of loaders that cannot be gone on from are refused, and say why; seedable samplers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler

from accelerate_runtime import Accelerator, DataLoaderConfiguration
from accelerate_runtime.accumulation import GradientState
from accelerate_runtime.data import DataLoaderShard, prepare_loader
from accelerate_runtime.division import each_its_own
from accelerate_runtime.topology import DistributedType, Topology


def prepared(length: int = 10, index: int = 0, count: int = 1, **options: Any) -> DataLoaderShard:
    kind = DistributedType.NO if count == 1 else DistributedType.MULTI_CPU
    place = Topology(index, index, count, torch.device("cpu"), None, kind)
    loader = DataLoader(range(length), **({"batch_size": 2} | options))  # type: ignore[arg-type]
    return prepare_loader(loader, each_its_own(place), GradientState(), DataLoaderConfiguration())


def after(loader: DataLoader[Any], batches: int) -> dict[str, Any]:
    """The state of `loader` after so many batches of a pass."""
    for number, _ in enumerate(loader, 1):
        if number == batches:
            return loader.state_dict()  # type: ignore[attr-defined, no-any-return]
    raise AssertionError


def test_a_state_of_another_loader() -> None:
    state = after(prepared(), 2)
    for other, told in (
        (prepared(12), "with 10 samples in the dataset, but here are 12"),
        (prepared(batch_size=5), "with 5 batches in an epoch, but here are 2"),
        (prepared(count=3), "with 1 processes, after 4 samples, but here are 3, which take 6 at a time"),
    ):
        with pytest.raises(ValueError, match=told):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="of process index 1, but this is 0"):
        prepared(count=2).load_state_dict(after(prepared(index=1, count=2), 1))
    for foreign in ({}, {"version": 7}, None):
        with pytest.raises(ValueError, match="no state of a prepared loader"):
            prepared().load_state_dict(foreign)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "batch_size", "rest"), [(2, 2, 2), (2, 1, 3), (4, 1, 2)])
def test_the_rest_of_an_epoch_may_go_to_another_number_of_processes(count: int, batch_size: int, rest: int) -> None:
    state = after(prepared(), 2)  # one process, with batches of two samples of ten
    shares = []
    for index in range(count):
        other = prepared(index=index, count=count, batch_size=batch_size)
        other.load_state_dict(state)
        shares.append([batch.tolist() for batch in other])
        assert len(list(other)) == len(other)  # and then a whole epoch
    assert {len(share) for share in shares} == {rest}
    seen = [x for number in range(rest) for share in shares for x in share[number]]
    assert seen[:6] == list(range(4, 10))  # what is more begins the epoch again, to fill the round


def test_between_epochs_the_dataset_and_the_processes_may_change() -> None:
    loader = prepared()
    list(loader)
    for other in (prepared(12), prepared(batch_size=5), prepared(count=2)):
        other.load_state_dict(loader.state_dict())
        assert other.iteration == 1
        list(other)


def test_a_sampler_that_gives_something_else() -> None:
    class Hidden(Sampler[int]):
        """Draws where nobody can see it."""

        def __init__(self) -> None:
            self.draw = random.Random(len(made)).sample
            made.append(1)

        def __iter__(self) -> Iterator[int]:
            yield from self.draw(range(10), 10)

        def __len__(self) -> int:
            return 10

    made: list[int] = []
    state = after(prepared(sampler=Hidden()), 3)
    other = prepared(sampler=Hidden())
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="does not give the same first 3 items again"):
        list(other)
    shorter = prepared(sampler=torch.utils.data.SubsetRandomSampler(range(4)))
    shorter.load_state_dict(state | {"batches": None})
    with pytest.raises(ValueError, match="after batch 3, but its sampler ended after 2"):
        list(shorter)


def test_a_sampler_that_draws_between_the_scripts_draws() -> None:
    """What it does next depends on draws that were among others: refused, unless it draws from its own generator."""

    class Pairs(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            rest = list(range(20))
            while rest:
                yield [rest.pop(int(torch.randint(len(rest), ()))) for _ in range(2)]

    def new() -> DataLoaderShard:
        return prepared(20, batch_size=1, batch_sampler=Pairs())

    for dropout in (False, True):
        torch.manual_seed(4)
        loader, given = new(), []
        for number, batch in enumerate(loader, 1):
            given.append(batch.tolist())
            if dropout:
                torch.rand(3)
            if number == 4:
                state, generator = loader.state_dict(), torch.get_rng_state()
        again = new()
        again.load_state_dict(state)
        torch.set_rng_state(generator)
        if dropout:
            with pytest.raises(ValueError, match="does not give the same"):
                list(again)
        else:
            assert [batch.tolist() for batch in again] == given[4:]


def test_a_stream_that_has_changed() -> None:
    class Stream(IterableDataset[int]):
        def __init__(self, length: int) -> None:
            self.length = length

        def __iter__(self) -> Iterator[int]:
            yield from range(self.length)

    def new(length: int, **options: Any) -> DataLoaderShard:
        loader: DataLoaderShard = Accelerator().prepare(DataLoader(Stream(length), batch_size=2, **options))
        return loader

    shorter = new(4)
    shorter.load_state_dict(after(new(10), 3))
    with pytest.raises(ValueError, match="after batch 3, but the loader ended after 2"):
        list(shorter)
    other = new(10, num_workers=1)
    other.load_state_dict(after(new(10, num_workers=2), 3))
    with pytest.raises(ValueError, match="num_workers=2, but it has num_workers=1"):
        list(other)


def test_batches_in_no_order() -> None:
    state = after(prepared(num_workers=1), 2)
    with pytest.raises(ValueError, match="in_order=True"):
        prepared(num_workers=1, in_order=False).load_state_dict(state)


def test_another_number_of_workers_gives_the_same_order() -> None:
    torch.manual_seed(3)
    loader = prepared(shuffle=True, num_workers=1)
    given = []
    for batch in loader:
        given.append(batch.tolist())
        if len(given) == 2:
            state = loader.state_dict()
    for workers in (0, 2):
        other = prepared(shuffle=True, num_workers=workers)
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == given[2:]


def test_a_state_holds_plain_things_only() -> None:
    class Odd(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return index

        def state_dict(self) -> dict[str, Any]:
            return {"at": object()}

        load_state_dict = state_dict

    with pytest.raises(TypeError, match="holds a object; it can hold tensors"):
        after(Accelerator().prepare(DataLoader(Odd())), 1)


# Seedable samplers


def shuffled(seed: int | None = None, **options: Any) -> DataLoaderShard:
    config = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=seed, use_stateful_dataloader=True)
    loader: DataLoader[Any] = DataLoader(range(10), **({"batch_size": 2, "shuffle": True} | options))  # type: ignore
    prepared: DataLoaderShard = Accelerator(dataloader_config=config).prepare(loader)
    return prepared


def epoch(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    loader = shuffled(7)
    orders = [epoch(loader) for _ in range(3)]
    assert orders[0] != orders[1] != orders[2]
    torch.manual_seed(99)
    loader.set_epoch(1)
    assert [epoch(loader), epoch(loader)] == orders[1:]
    assert epoch(shuffled(8)) != orders[0] == epoch(shuffled(7, num_workers=2))
    expected = torch.randperm(10, generator=torch.Generator().manual_seed(7 + 2)).tolist()  # as in Accelerate
    assert [x for batch in orders[2] for x in batch] == expected


def test_the_seed_is_torchs_unless_it_is_given() -> None:
    torch.manual_seed(7)
    assert epoch(shuffled()) == epoch(shuffled(7))


def test_a_pass_that_is_left_counts_as_an_epoch() -> None:
    """Else a script that leaves its loops early would see the same first batches for ever."""
    loader = shuffled(7)
    first = next(iter(loader)).tolist()
    assert next(iter(loader)).tolist() != first


def test_samplers_of_all_places_are_replaced_and_the_scripts_own_loader_is_not() -> None:
    own = DataLoader(range(10), batch_sampler=BatchSampler(RandomSampler(range(10)), 2, False))  # type: ignore[arg-type]
    config = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7)
    for loader in (own, DataLoader(torch.arange(10), batch_size=None, sampler=own.batch_sampler)):  # type: ignore
        assert epoch(Accelerator(dataloader_config=config).prepare(loader)) == epoch(shuffled(7))
    assert type(own.batch_sampler.sampler) is RandomSampler  # type: ignore[union-attr]
    in_order = DataLoader(range(4))  # type: ignore[arg-type]
    assert Accelerator(dataloader_config=config).prepare(in_order).base is in_order


def test_the_seed_is_in_the_state() -> None:
    loader = shuffled(7)
    state = loader.state_dict()
    other = shuffled(8)
    other.load_state_dict(state)
    assert epoch(other) == epoch(loader)


def test_a_seed_without_its_sampler_is_refused() -> None:
    with pytest.raises(ValueError, match="use_seedable_sampler=True as well"):
        DataLoaderConfiguration(data_seed=3)
