"""skip_first_batches: the same order from a later batch on, and no batch skipped twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

import accelerate_runtime
from accelerate_runtime import Accelerator
from accelerate_runtime.data import DataLoaderShard


class Counted(Dataset[Any]):
    """Ten numbers; knows which were fetched."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        self.fetched.append(index)
        return index


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        yield from range(10)


def prepared(dataset: Any = None, **options: Any) -> tuple[Accelerator, DataLoaderShard]:
    accelerator = Accelerator()
    options = {"batch_size": 2, "shuffle": not isinstance(dataset, IterableDataset)} | options
    return accelerator, accelerator.prepare(DataLoader(Counted() if dataset is None else dataset, **options))


def epoch(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_the_order_is_the_same_and_nothing_is_fetched() -> None:
    accelerator, loader = prepared()
    torch.manual_seed(3)
    whole, second = epoch(loader), epoch(loader)
    loader.dataset.fetched.clear()
    torch.manual_seed(3)
    skipping = accelerator.skip_first_batches(loader, 3)
    assert isinstance(skipping, DataLoaderShard)
    assert len(skipping) == 2
    assert epoch(skipping) == whole[3:]
    assert sorted(loader.dataset.fetched) == sorted(whole[3] + whole[4])
    assert epoch(loader) == second  # the original has whole passes
    assert len(loader) == 5


def test_each_pass_of_it_skips() -> None:
    accelerator, loader = prepared(shuffle=False)
    skipping = accelerator.skip_first_batches(loader, 3)
    assert epoch(skipping) == epoch(skipping) == [[6, 7], [8, 9]]
    assert epoch(accelerator.skip_first_batches(skipping, 1)) == [[8, 9]]
    assert epoch(accelerator.skip_first_batches(loader)) == epoch(loader)
    assert epoch(accelerator.skip_first_batches(loader, 9)) == []
    assert len(accelerator.skip_first_batches(loader, 9)) == 0


def test_the_end_of_the_pass_is_known() -> None:
    accelerator, loader = prepared()
    skipping = accelerator.skip_first_batches(loader, 3)
    assert [skipping.end_of_dataloader for _ in skipping] == [False, True]


def test_its_pass_counts_as_the_originals() -> None:
    accelerator, loader = prepared()
    loader.set_epoch(4)
    skipping = accelerator.skip_first_batches(loader, 3)
    assert skipping.iteration == 4
    for _ in skipping:
        assert loader.state_dict()["pass"]["given"] in (4, 5)  # what save_state sees
    assert loader.iteration == skipping.iteration == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_read_on(workers: int) -> None:
    accelerator, loader = prepared(Stream(), num_workers=workers)
    batches = epoch(loader)
    assert epoch(accelerator.skip_first_batches(loader, 3)) == batches[3:]


def test_with_workers() -> None:
    accelerator, loader = prepared(num_workers=2, persistent_workers=True)
    torch.manual_seed(3)
    whole, second, third = epoch(loader), epoch(loader), epoch(loader)
    accelerator, loader = prepared(num_workers=2, persistent_workers=True)
    torch.manual_seed(3)
    skipping = accelerator.skip_first_batches(loader, 3)
    assert [epoch(skipping), epoch(skipping), epoch(loader)] == [whole[3:], second[3:], third]


@pytest.mark.parametrize("given", [1, 3])
@pytest.mark.parametrize("number", [0, 2, 3, 5])
def test_after_a_load_the_scripts_number_counts(given: int, number: int) -> None:
    """A script that loads and skips by itself skips once, in the order of the pass that was saved."""
    _, loader = prepared()
    torch.manual_seed(3)
    whole, second = epoch(loader), epoch(loader)
    torch.manual_seed(3)
    for done, _ in enumerate(loader, 1):
        if done == given:
            saved, random = loader.state_dict(), torch.get_rng_state()
            break
    accelerator, loader = prepared()
    loader.load_state_dict(saved)
    torch.set_rng_state(random)
    assert epoch(accelerator.skip_first_batches(loader, number)) == whole[number:]
    assert epoch(loader) == second


def test_at_the_end_of_an_epoch_the_script_has_gone_on() -> None:
    """Saved at the last batch of a loop; a script that counts steps starts the next epoch, and skips none."""
    _, loader = prepared()
    torch.manual_seed(3)
    first, second = epoch(loader), epoch(loader)
    torch.manual_seed(3)
    for _ in loader:
        saved, random = loader.state_dict(), torch.get_rng_state()
    for skips, rest in ((0, second), (2, second[2:]), (5, [])):
        accelerator, loader = prepared()
        loader.load_state_dict(saved)
        torch.set_rng_state(random)
        assert epoch(accelerator.skip_first_batches(loader, skips)) == rest
        assert loader.iteration == (3 if skips == 5 else 4)
    assert first != second


def test_a_loader_that_is_not_prepared() -> None:
    loader = DataLoader(Counted(), batch_size=2)
    skipping = accelerate_runtime.skip_first_batches(loader, 3)
    assert type(skipping) is DataLoader
    assert epoch(skipping) == epoch(skipping) == [[6, 7], [8, 9]]
    assert sorted(loader.dataset.fetched) == [6, 6, 7, 7, 8, 8, 9, 9]  # type: ignore[attr-defined]
    assert len(skipping) == 2
    assert epoch(Accelerator().prepare(skipping)) == [[6, 7], [8, 9]]
    assert len(epoch(loader)) == 5
    items = DataLoader(Counted(), batch_size=None, sampler=RandomSampler(range(10)))
    assert len(list(accelerate_runtime.skip_first_batches(items, 7))) == 3
    for workers in (0, 2):
        stream = DataLoader(Stream(), batch_size=2, num_workers=workers)
        assert sorted(epoch(accelerate_runtime.skip_first_batches(stream, 3))) == sorted(epoch(stream)[3:])


def test_what_cannot_be_skipped_is_said() -> None:
    with pytest.raises(TypeError, match="dataloader is a list"):
        accelerate_runtime.skip_first_batches([1], 1)  # type: ignore[type-var]
    for number in (-1, 1.5):
        with pytest.raises(ValueError, match=f"num_batches={number}"):
            accelerate_runtime.skip_first_batches(DataLoader(range(3)), number)  # type: ignore[arg-type]
