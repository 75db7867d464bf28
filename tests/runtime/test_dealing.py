"""How batches and streams are dealt: arithmetic on lists, so any number of processes fits in one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

from accelerate_runtime.accumulation import GradientState
from accelerate_runtime.data import BatchSamplerShard, DataLoaderShard, IterableDatasetShard, prepare_loader
from accelerate_runtime.data.parcels import Tagged
from accelerate_runtime.data.samplers import deal
from accelerate_runtime.data_loader import prepare_data_loader
from accelerate_runtime.division import each_its_own
from accelerate_runtime.plugins import DataLoaderConfiguration
from accelerate_runtime.topology import DistributedType, Topology


def batches(count: int, size: int, drop_last: bool = False) -> BatchSampler:
    return BatchSampler(SequentialSampler(range(count)), size, drop_last)


def all_shards(source: Any, count: int, **options: Any) -> list[list[list[int]]]:
    return [list(BatchSamplerShard(source, count, index, **options)) for index in range(count)]


def test_dealing_completes_a_batch_from_the_start() -> None:
    parts, share = deal([8, 9, 10, 11], [0, 1, 2], 3, even=True)
    assert parts == [[8, 9], [10, 11], [0, 1]]
    assert share.sizes == (2, 2, 2)
    assert share.real == (2, 2, 0)
    assert share.padded


def test_dealing_unevenly_adds_nothing() -> None:
    parts, share = deal([8, 9, 10, 11], [0], 3, even=False)
    assert parts == [[8, 9], [10, 11], []]
    assert not share.padded
    assert share.uneven


@pytest.mark.parametrize("total", range(1, 30))
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("split", [True, False])
def test_every_process_gets_as_much_and_every_sample_comes(total: int, count: int, split: bool) -> None:
    shards = all_shards(batches(total, 6), count, split=split)
    shapes = [[len(batch) for batch in shard] for shard in shards]
    assert all(shape == shapes[0] for shape in shapes)
    seen = [sample for shard in shards for batch in shard for sample in batch]
    assert set(seen) == set(range(total))
    padding = len(seen) - total
    if split:
        assert padding < count * len(shapes[0])
    elif total % 6:
        assert padding < count  # the last round is dealt again
    else:
        assert padding == -total // 6 % count * 6  # whole batches
        assert {size for shape in shapes for size in shape} == {6}
    for index in range(count):
        shard = BatchSamplerShard(batches(total, 6), count, index, split=split)
        assert len(shard) == len(shapes[0])


@pytest.mark.parametrize("total", range(1, 30))
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_uneven_shards_partition_and_know_their_length(total: int, split: bool, drop_last: bool) -> None:
    seen = []
    for index in range(3):
        shard = BatchSamplerShard(batches(total, 3, drop_last), 3, index, split=split, even=False)
        mine = list(shard)
        assert len(shard) == len(mine)
        seen += [sample for batch in mine for sample in batch]
    assert len(seen) == len(set(seen))
    if not drop_last:
        assert set(seen) == set(range(total))


def test_split_batches_must_divide() -> None:
    with pytest.raises(ValueError, match="batch size is 5: choose a multiple of 2"):
        BatchSamplerShard(batches(10, 5), 2, 0, split=True)


def test_batches_of_ones_own_size_are_kept_whole() -> None:
    source = [[0], [1, 2, 3], [4, 5]]
    assert all_shards(source, 2) == [[[0], [4, 5]], [[1, 2, 3], [0]]]


def test_full_batches_stay_full() -> None:
    assert all_shards(batches(6, 2), 2) == [[[0, 1], [4, 5]], [[2, 3], [0, 1]]]
    assert all_shards(batches(2, 2), 4) == [[[0, 1]]] * 4
    assert all_shards(batches(6, 2, drop_last=True), 2) == [[[0, 1]], [[2, 3]]]
    assert all_shards(batches(6, 2), 2, even=False) == [[[0, 1], [4, 5]], [[2, 3]]]
    shard = BatchSamplerShard(batches(10, 2), 3, 2)
    assert list(shard) == [[4, 5], [0, 1]]
    share = shard.share(1)
    assert share is not None
    assert (share.sizes, share.real) == ((2, 2, 2), (2, 2, 0))
    assert len(shard) == 2


def test_the_epoch_reaches_the_samplers() -> None:
    sampler = DistributedSampler(range(4), num_replicas=1, rank=0)
    BatchSamplerShard(BatchSampler(sampler, 2, False), 2, 0).set_epoch(3)
    assert sampler.epoch == 3


def test_a_stream_is_dealt_by_global_batches() -> None:
    def shard(index: int, **options: Any) -> list[Any]:
        items = IterableDatasetShard(range(11), 2, index, size=4, **options)
        return [item.value if isinstance(item, Tagged) else item for item in items]

    assert [shard(0), shard(1)] == [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10, 0]]

    def of_twelve(index: int) -> list[Any]:
        return [getattr(item, "value", item) for item in IterableDatasetShard(range(12), 2, index, size=4)]

    assert [of_twelve(0)[-4:], of_twelve(1)[-4:]] == [[8, 9, 10, 11], [0, 1, 2, 3]]  # full batches stay full
    assert [shard(0, drop_last=True), shard(1, drop_last=True)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [shard(0, even=False), shard(1, even=False)] == [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10]]


def place(index: int, count: int = 2) -> Topology:
    return Topology(index, index, count, torch.device("cpu"), "gloo", DistributedType.MULTI_CPU)


def prepared(loader: DataLoader[Any], index: int = 0, **options: Any) -> DataLoaderShard:
    return prepare_loader(loader, each_its_own(place(index)), GradientState(), DataLoaderConfiguration(**options))


def test_a_prepared_loader_looks_like_the_scripts_own() -> None:
    data = TensorDataset(torch.arange(10.0))
    loader = DataLoader(data, batch_size=3)
    ours = prepared(loader, index=1)
    assert isinstance(ours, DataLoader)
    assert len(ours) == 2
    assert ours.dataset is data
    assert len(ours.dataset) == ours.total_dataset_length == 10
    assert ours.batch_size == 3
    assert ours.total_batch_size == 6
    assert ours.sampler is loader.sampler
    assert [x.tolist() for (x,) in ours] == [[3, 4, 5], [8, 9]]
    assert len(loader) == 4  # the script's own is as it was


def test_a_loader_of_a_class_of_its_own_stays_one() -> None:
    class Doubling(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            for (x,) in super().__iter__():
                yield x * 2

    ours = prepared(Doubling(TensorDataset(torch.arange(4.0)), batch_size=1), index=1)
    assert [x.item() for x in ours] == [2, 6]


def test_setting_an_attribute_reaches_what_is_iterated() -> None:
    ours = prepared(DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2))
    ours.collate_fn = len
    assert list(ours) == [2]


def test_the_last_batch_and_its_real_samples_are_known() -> None:
    ours = prepared(DataLoader(TensorDataset(torch.arange(7.0)), batch_size=2))
    assert [(ours.end_of_dataloader, ours.remainder) for _ in ours] == [(False, -1), (True, 3)]
    assert not ours.end_of_dataloader
    ours = prepared(DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2))
    assert [(ours.end_of_dataloader, ours.remainder) for _ in ours] == [(False, -1), (True, 2)]


def test_a_streams_shard_travels_to_workers() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(3)

    shard = IterableDatasetShard(list(range(3)), 2, 1, size=1)
    assert [getattr(x, "value", x) for x in pickle.loads(pickle.dumps(shard))] == [1, 0]
    with pytest.raises(ValueError, match="multiple of 2"):
        prepared(DataLoader(Stream(), batch_size=3), split_batches=True)


def test_a_loader_may_be_prepared_without_an_accelerator() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2)
    alone = prepare_data_loader(loader, put_on_device=True)
    assert isinstance(alone, DataLoaderShard)
    assert alone.source is loader
    second = prepare_data_loader(loader, "cpu", num_processes=2, process_index=1)
    assert [x.tolist() for (x,) in second] == [[2, 3], [6, 7]]
    assert GradientState().active_dataloader is None
    with pytest.raises(NotImplementedError, match=r"prepare_data_loader\(torch_device_mesh=1\)"):
        prepare_data_loader(loader, torch_device_mesh=1)
