"""Batch sizes that fit, and memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, find_executable_batch_size
from accelerate_runtime.memory import convert_file_size_to_int, get_max_memory, should_reduce_batch_size
from accelerate_runtime.utils import release_memory


def test_the_batch_shrinks_until_it_fits() -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=18)
    def train(batch_size: int, name: str) -> tuple[int, str]:
        tried.append(batch_size)
        if batch_size > 14:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return batch_size, name

    assert train("run") == (14, "run")
    assert tried == [18, 16, 14]
    assert train(name="again") == (14, "again")
    assert tried[3:] == [14]  # the next call starts where it fits


def test_how_it_shrinks_may_be_chosen() -> None:
    sizes = iter([32, 8])

    @find_executable_batch_size(starting_batch_size=100, reduce_batch_size_fn=lambda: next(sizes))
    def train(batch_size: int) -> int:
        if batch_size > 8:
            raise torch.OutOfMemoryError
        return batch_size

    assert train() == 8


def test_what_a_failed_try_held_is_freed_before_the_next() -> None:
    class Held:
        pass

    alive: list[weakref.ref[Held]] = []

    @find_executable_batch_size(starting_batch_size=4)
    def train(batch_size: int) -> None:
        gc.disable()
        assert not [one for one in alive if one() is not None]
        held = Held()
        alive.append(weakref.ref(held))
        if batch_size > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    try:
        train()
    finally:
        gc.enable()
    assert len(alive) == 3


def test_other_errors_and_zero_end_it() -> None:
    @find_executable_batch_size(starting_batch_size=8)
    def broken(batch_size: int) -> None:
        raise ValueError("not memory")

    @find_executable_batch_size(starting_batch_size=2)
    def huge(batch_size: int) -> None:
        raise RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)")

    with pytest.raises(ValueError, match="not memory"):
        broken()
    with pytest.raises(RuntimeError, match="No executable batch size found"):
        huge()


def test_passing_the_batch_size_is_an_error_that_shows_the_call() -> None:
    @find_executable_batch_size
    def train(batch_size: int, model: str) -> None: ...

    with pytest.raises(TypeError, match=r"Call `train\(model='net'\)`"):
        train(64, "net")


def test_what_counts_as_out_of_memory() -> None:
    assert should_reduce_batch_size(RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."))
    assert not should_reduce_batch_size(RuntimeError("size mismatch"))
    assert not should_reduce_batch_size(ValueError("out of memory"))


def test_objects_are_let_go() -> None:
    accelerator, model = Accelerator(), nn.Linear(2, 2)
    seen = weakref.ref(model)
    model = accelerator.prepare(model)
    (model,) = accelerator.free_memory(model)
    assert model is None
    gc.collect()
    assert seen() is None
    assert release_memory(1, 2) == [None, None]


def test_sizes_with_units() -> None:
    sizes = ("10", "1KB", "1 KiB", "1.5GB", "2MiB", 7)
    assert [convert_file_size_to_int(size) for size in sizes] == [10, 1000, 1024, 1_500_000_000, 2 * 1024**2, 7]
    for wrong in ("", "GB", "-1GB", "ten", True, -3):
        with pytest.raises(ValueError, match="is not a size"):
            convert_file_size_to_int(wrong)


def test_free_memory_of_the_machine() -> None:
    assert get_max_memory()["cpu"] > 2**20
    assert get_max_memory({0: "1GB", "cpu": 5}) == {0: 10**9, "cpu": 5}
