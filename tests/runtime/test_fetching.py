"""What a dataset draws on a process beside the main one, and where the generators are afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from accelerate_runtime.accumulation import GradientState
from accelerate_runtime.data import fetching, prepare_loader
from accelerate_runtime.data.twisters import global_twisters
from accelerate_runtime.division import each_its_own
from accelerate_runtime.plugins import DataLoaderConfiguration
from accelerate_runtime.topology import DistributedType, Topology


def draw_all() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.rand()), float(torch.rand(()))


def seed_all() -> None:
    random.seed(5)
    numpy.random.seed(5)
    torch.manual_seed(5)


class Drawing(Dataset[Any]):
    def __init__(self, draw: Callable[[], Any], length: int = 8) -> None:
        self.draw, self.length = draw, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.draw()


def prepared(dataset: Dataset[Any], index: int, **options: Any) -> DataLoader[Any]:
    place = Topology(index, index, 2, torch.device("cpu"), "gloo", DistributedType.MULTI_CPU)
    loader = DataLoader(dataset, batch_size=2, collate_fn=list, **options)
    return prepare_loader(loader, each_its_own(place), GradientState(), DataLoaderConfiguration())


@pytest.mark.parametrize("words", [0, 1, 623, 624, 625, 1248, 3000])
def test_what_was_drawn_is_counted_in_words(words: int) -> None:
    seed_all()
    for generator in global_twisters():
        fork = fetching._Fork(generator, 1)
        if words:
            generator.skip(words)
        assert fork.moved() == (words > 0)
        replica = generator.replica()
        if words:
            assert fork.words(replica) == words
        fork.end(words)
    after = draw_all()
    seed_all()
    for generator in global_twisters():
        if words:
            generator.skip(words)
    assert draw_all() == after


def test_an_epoch_draws_other_numbers_and_as_many() -> None:
    seed_all()
    main = list(prepared(Drawing(draw_all), 0))
    after = draw_all()
    seed_all()
    other = list(prepared(Drawing(draw_all), 1))
    assert draw_all() == after  # what the script draws is in step
    assert [x for batch in main for x in batch] == [tuple(x) for x in _alone()]
    for kind in range(3):
        drawn = [x[kind] for epoch in (main, other) for batch in epoch for x in batch]
        assert len(set(drawn)) == len(drawn) == 8


def _alone() -> list[tuple[float, float, float]]:
    seed_all()
    torch.empty((), dtype=torch.int64).random_()  # an iterator's base seed
    return [draw_all() for _ in range(4)]


def test_each_batch_is_drawn_from_where_the_generators_are() -> None:
    """Whoever seeds them before each batch gets the same again, as on the main process."""
    epochs = []
    for _ in range(2):
        epoch = iter(prepared(Drawing(draw_all), 1))
        random.seed(1)
        first = next(epoch)
        random.seed(1)
        second = next(epoch)
        assert [x[0] for x in first] == [x[0] for x in second]
        epochs.append(first)
    assert epochs[0] != epochs[1]  # the other two went on


def test_a_dataset_that_does_not_draw_is_soon_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = []
    monkeypatch.setattr(fetching, "global_twisters", lambda: forks.append(1) or global_twisters())
    state = random.getstate(), numpy.random.get_state()[1].tolist()
    assert len(list(prepared(Drawing(lambda: 0, 40), 1))) == 10
    assert len(forks) == fetching._PROBES
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == state
    list(prepared(Drawing(lambda: 0, 40), 0))
    assert len(forks) == fetching._PROBES
    again = prepared(Drawing(lambda: 0, 40), 1)
    forks.clear()
    for _ in range(3):
        list(again)
    assert len(forks) == fetching._PROBES + 2  # one in each later epoch, in which it may begin to draw


def test_what_is_known_of_a_dataset_is_known_in_the_next_epoch_and_after_a_restart() -> None:
    """The third batch draws: found in a first epoch, it stays apart later, where only first batches are watched."""
    begun = True

    class ThirdDraws(Drawing):
        def __getitem__(self, index: int) -> Any:
            return self.draw() if begun and index // 4 == 2 else 0

    def third(loader: DataLoader[Any]) -> list[Any]:
        seed_all()
        return list(loader)[2]

    main, other = (prepared(ThirdDraws(random.random, 16), index) for index in (0, 1))
    for _ in range(2):
        drawn = third(other)
        assert drawn != third(main)
    restarted, late = (prepared(ThirdDraws(random.random, 16), 1) for _ in range(2))
    restarted.load_state_dict(other.state_dict())
    assert third(restarted) == drawn

    begun = False
    list(late)
    begun = True  # only now, which is missed
    restarted.load_state_dict(late.state_dict())
    assert third(restarted) == third(late) == third(main)


def test_a_dataset_may_seed_draw_much_or_fail() -> None:
    def both_alike() -> tuple[float, float]:
        seed = int(torch.randint(2**31, ()))
        random.seed(seed)
        image = random.random()
        random.seed(seed)
        return image, random.random()

    pairs = [pair for batch in prepared(Drawing(both_alike), 1) for pair in batch]
    assert all(image == mask for image, mask in pairs)
    assert len(set(pairs)) == 4
    much = [x for batch in prepared(Drawing(lambda: torch.randn(50_000).sum().item()), 1) for x in batch]
    assert len(set(much)) == 4

    def fail() -> None:
        random.random()
        raise KeyError("gone")

    seed_all()
    with pytest.raises(KeyError, match="gone"):
        list(prepared(Drawing(fail), 1))
    after = random.random()
    random.seed(5)
    assert [random.random(), random.random()][1] == after  # one draw, as without us


def test_workers_are_seeded_apart() -> None:
    def init(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        told.append((torch.initial_seed(), info.seed, worker))
        numpy.random.seed(42 + worker)

    def drawn(index: int, own: Any = None) -> list[Any]:
        seed_all()
        dataset = Drawing(lambda: (*draw_all(), list(told)))
        return [x for batch in prepared(dataset, index, num_workers=2, worker_init_fn=own) for x in batch]

    told: list[Any] = []
    for own in (None, init):
        both = [drawn(index, own) for index in (0, 1)]
        for kind in range(3):
            assert len({x[kind] for side in both for x in side}) == 8
        assert both[1] == drawn(1, own)
    main, other = ([x[3][0] for x in side] for side in both)
    assert all(initial == seen for initial, seen, _ in main + other)
    assert not {seed for seed, *_ in main} & {seed for seed, *_ in other}
    assert {worker for *_, worker in other} == {0, 1}


def test_a_loader_class_of_its_own_draws_apart_too() -> None:
    class Own(DataLoader[Any]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield [batch]

    place = Topology(1, 1, 2, torch.device("cpu"), "gloo", DistributedType.MULTI_CPU)
    own = Own(Drawing(random.random), batch_size=2)
    seed_all()
    got = list(prepare_loader(own, each_its_own(place), GradientState(), DataLoaderConfiguration()))
    random.seed(5)
    assert random.random() not in [x for (batch,) in got for x in batch.tolist()]
    assert "_get_iterator" not in own.__dict__
