"""PartialState, AcceleratorState and GradientState: what scripts read of a running training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, DistributedType, GradientAccumulationPlugin, PartialState
from accelerate_runtime.state import AcceleratorState, GradientState


def test_every_partial_state_is_the_same() -> None:
    state = PartialState()
    assert (state.num_processes, state.process_index, state.local_process_index) == (1, 0, 0)
    assert state.is_main_process
    assert state.is_last_process
    assert state.distributed_type == DistributedType.NO
    assert state.default_device == torch.accelerator.current_accelerator() or state.default_device.type == "cpu"
    state.note = "mine"  # type: ignore[attr-defined]
    assert PartialState().note == "mine"  # type: ignore[attr-defined]


def test_a_reset_state_says_so() -> None:
    state = PartialState()
    PartialState._reset_state()
    assert not state.initialized
    with pytest.raises(AttributeError, match=r"no attribute `num_processes` any more.*`PartialState._reset_state\(\)`"):
        _ = state.num_processes
    with pytest.raises(AttributeError, match="'PartialState' object has no attribute 'nonsense'"):
        _ = state.nonsense
    assert PartialState().num_processes == 1
    assert state.num_processes == 1


def test_accelerator_state_shows_the_latest_accelerator() -> None:
    with pytest.raises(ValueError, match=r"create `Accelerator\(\)` first"):
        AcceleratorState()
    first = Accelerator()
    assert AcceleratorState().mixed_precision == "no"
    second = Accelerator(mixed_precision="bf16")
    assert AcceleratorState().mixed_precision == "bf16"
    assert (first.state.mixed_precision, second.state.mixed_precision) == ("no", "bf16")
    assert AcceleratorState("bf16").device == second.device
    with pytest.raises(ValueError, match="mixed_precision='fp16', but the Accelerator's is 'bf16'"):
        AcceleratorState("fp16")
    assert getattr(AcceleratorState(), "fsdp_plugin", None) is None
    with AcceleratorState().split_between_processes([1, 2]) as part:
        assert part == [1, 2]


def test_an_accelerator_whose_state_was_reset_prepares_nothing() -> None:
    accelerator = Accelerator()
    AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.raises(AttributeError, match=r"happens if `AcceleratorState._reset_state\(\)` was called"):
        accelerator.prepare(nn.Linear(1, 1))
    assert Accelerator().prepare(nn.Linear(1, 1)) is not None


def test_gradient_state_shows_the_latest_accelerator() -> None:
    early = GradientState()
    accelerator = Accelerator(gradient_accumulation_steps=2)
    shown = GradientState()
    assert (early.num_steps, shown.num_steps) == (2, 2)
    accelerator.gradient_accumulation_steps = 4
    assert (early.num_steps, shown.num_steps) == (4, 4)
    with accelerator.accumulate():
        assert not shown.sync_gradients
    accelerator.sync_gradients = True
    assert shown.sync_gradients
    shown.sync_gradients = False
    assert not accelerator.sync_gradients


def test_each_accelerator_keeps_its_own_gradient_state() -> None:
    one, two = Accelerator(gradient_accumulation_steps=2), Accelerator(gradient_accumulation_steps=3)
    assert (one.gradient_state.num_steps, two.gradient_state.num_steps) == (2, 3)
    assert GradientState().num_steps == 3
    assert GradientState().plugin_kwargs == {"num_steps": 3}
    GradientState._reset_state()
    assert GradientState().num_steps == 1
    assert two.gradient_state.num_steps == 3


def test_copies_do_not_touch_the_latest() -> None:
    accelerator = Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=5))
    kept = pickle.loads(pickle.dumps(accelerator.gradient_state))
    Accelerator(gradient_accumulation_steps=7)
    again = copy.deepcopy(kept)
    assert (kept.num_steps, again.num_steps, GradientState().num_steps) == (5, 5, 7)


def test_the_device_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu:3")
    assert str(Accelerator().state.device) == "cpu:3"


@pytest.mark.parametrize(
    ("launcher", "names"),
    [
        ("Open MPI", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")),
        ("Intel MPI", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")),
    ],
)
def test_mpi_tells_of_one_process_too(
    monkeypatch: pytest.MonkeyPatch, launcher: str, names: tuple[str, str, str]
) -> None:
    for name, value in zip(names, ("1", "2", "1"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="WORLD_SIZE=2 asks for several processes, but MASTER_ADDR, MASTER_PORT"):
        PartialState()


def test_what_has_a_length_is_split() -> None:
    """A `datasets.Dataset` too, by selecting; it gives a dict where it is sliced."""
    from accelerate_runtime.state import split

    class Dataset(list[int]):
        def select(self, rows: list[int]) -> Dataset:
            return Dataset(self[row] for row in rows)

    data = Dataset([10, 11, 12])
    assert [split(data, 2, index) for index in (0, 1)] == [[10, 11], [12]]
    assert split(data, 2, 1, pad=True) == [12, 12]
    tensors = {"x": torch.arange(3), "y": [4, 5, 6]}
    assert [part.tolist() for part in (split(tensors, 2, index)["x"] for index in (0, 1))] == [[0, 1], [2]]
    assert split(tensors, 2, 1, pad=True)["x"].tolist() == [2, 2]


def test_what_this_version_does_not_spread() -> None:
    accelerator = Accelerator()
    assert not accelerator.multi_device
    assert not accelerator.is_fsdp2
    assert accelerator.deepspeed_plugin is None
    assert accelerator.torch_device_mesh is None
    assert accelerator.parallelism_config is None
    assert accelerator.should_save_model
    assert accelerator.save_iteration == 0
    assert accelerator.ddp_handler is None
    with accelerator.maybe_context_parallel(buffers=[torch.zeros(2)], buffer_seq_dims=[0]):
        pass
    with pytest.raises(RuntimeError, match="parallelism_config"):
        _ = accelerator.tensor_parallel_rank
    with pytest.raises(RuntimeError, match="parallelism_config"):
        _ = accelerator.pipeline_parallel_rank


def test_a_model_spread_by_its_library_is_left_where_it_is() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    model.hf_device_map = {"0": "cpu", "1": "meta"}  # type: ignore[assignment]
    accelerator = Accelerator()
    assert accelerator.verify_device_map(model)
    assert accelerator.prepare(model)[1].weight.device.type == "meta"
    assert not accelerator.verify_device_map(nn.Linear(1, 1))
