"""Saving and loading a training state: training goes on as if it had never stopped."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, ProjectConfiguration
from accelerate_runtime.checkpointing.layout import CheckpointError
from accelerate_runtime.utils import set_seed


class Run:
    """A training with dropout, momentum, a schedule, accumulation and loss scaling."""

    def __init__(self, folder: Path, *, every: int = 1, precision: str = "no", **arguments: Any) -> None:
        set_seed(0)
        project = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True, **arguments)
        self.accelerator = Accelerator(
            cpu=True, project_config=project, gradient_accumulation_steps=every, mixed_precision=precision
        )
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
        data = TensorDataset(torch.randn(22, 4), torch.randn(22, 1))
        loader = DataLoader(data, batch_size=4, shuffle=True)
        prepared = self.accelerator.prepare(model, optimizer, schedule, loader)
        self.model, self.optimizer, self.schedule, self.loader = prepared

    def steps(self, epochs: int) -> Iterator[float]:
        for _ in range(epochs):
            for x, y in self.loader:
                with self.accelerator.accumulate(self.model):
                    loss = (self.model(x) - y).square().mean()
                    self.accelerator.backward(loss)
                    self.optimizer.step()
                    self.schedule.step()
                    self.optimizer.zero_grad()
                yield loss.item()

    def after(self, count: int) -> Iterator[float]:
        """The steps of three epochs, of which `count` are done."""
        steps = self.steps(3)
        for _ in range(count):
            next(steps)
        return steps


def losses(run: Iterator[float]) -> list[float]:
    return list(run)


@pytest.mark.parametrize("stop", [1, 4, 5, 6, 7, 12, 15])
@pytest.mark.parametrize(("every", "precision"), [(1, "no"), (4, "no"), (4, "fp16")])
def test_a_resumed_training_gives_the_losses_of_one_that_never_stopped(
    tmp_path: Path, stop: int, every: int, precision: str
) -> None:
    whole = losses(Run(tmp_path / "whole", every=every, precision=precision).steps(3))

    first = Run(tmp_path, every=every, precision=precision)
    remaining = first.after(stop)
    first.accelerator.save_state()
    del remaining

    second = Run(tmp_path, every=every, precision=precision)
    torch.rand(17)  # a fresh process may have drawn anything
    second.accelerator.load_state()
    epochs = 3 - (stop - 1) // 6
    assert losses(second.steps(epochs)) == whole[stop:]


def test_saving_changes_nothing(tmp_path: Path) -> None:
    whole = losses(Run(tmp_path / "whole").steps(3))
    run = Run(tmp_path)
    seen = []
    for loss in run.steps(3):
        seen.append(loss)
        run.accelerator.save_state()
    assert seen == whole


def test_the_layout_is_that_of_accelerate(tmp_path: Path) -> None:
    run = Run(tmp_path, precision="fp16")
    folder = Path(run.accelerator.save_state())
    assert folder == tmp_path / "checkpoints" / "checkpoint_0"
    theirs = {"model.safetensors", "optimizer.bin", "scheduler.bin", "scaler.pt", "random_states_0.pkl"}
    assert {path.name for path in folder.iterdir()} == theirs | {"position_0.bin", "manifest.json"}


def test_a_state_that_accelerate_wrote_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerate = pytest.importorskip("accelerate")
    theirs = accelerate.Accelerator(cpu=True)
    ours = Run(tmp_path)
    objects = [nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))]
    objects.append(torch.optim.Adam(objects[0].parameters(), lr=0.01))
    objects.append(torch.optim.lr_scheduler.StepLR(objects[1], step_size=3, gamma=0.5))
    model, optimizer, schedule = theirs.prepare(*objects)
    for _ in range(5):
        theirs.backward(model(torch.randn(4, 4)).sum())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    theirs.save_state(str(tmp_path / "theirs"))
    drawn = torch.rand(1)

    with caplog.at_level(logging.WARNING):
        ours.accelerator.load_state(tmp_path / "theirs")
    assert "skip_first_batches" in caplog.text
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ours.model.parameters(), strict=True))
    assert ours.optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert str(ours.optimizer.state_dict()) == str(optimizer.state_dict())


def test_accelerate_loads_a_state_that_we_wrote(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    ours = Run(tmp_path)
    ours.after(9)
    folder = ours.accelerator.save_state()
    drawn = torch.rand(1)

    theirs = accelerate.Accelerator(cpu=True)
    objects = [nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))]
    objects.append(torch.optim.Adam(objects[0].parameters()))
    objects.append(torch.optim.lr_scheduler.StepLR(objects[1], step_size=3, gamma=0.5))
    model, optimizer, schedule = theirs.prepare(*objects)
    theirs.load_state(folder)
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ours.model.parameters(), strict=True))
    assert str(ours.optimizer.state_dict()) == str(optimizer.state_dict())
    assert schedule.state_dict() == ours.schedule.state_dict()


def test_a_state_of_other_processes_loads_where_an_epoch_ended(tmp_path: Path) -> None:
    """What two processes saved (written here by one that says so) is loaded by one."""
    run = Run(tmp_path)
    losses(run.steps(1))
    folder = Path(run.accelerator.save_state())
    as_if_of_two(folder)
    fresh = Run(tmp_path)
    fresh.accelerator.load_state(folder)
    assert torch.equal(fresh.model[0].weight, run.model[0].weight)

    interrupted = run.after(2)
    folder = Path(run.accelerator.save_state())
    del interrupted
    as_if_of_two(folder)  # with loaders whose order nobody knows
    with pytest.raises(ValueError, match="with 2 processes, but here are 1"):
        fresh.accelerator.load_state(folder)


def as_if_of_two(folder: Path) -> None:
    position = torch.load(folder / "position_0.bin")
    for loader in position["loaders"]:
        loader["processes"], loader["round"] = 2, None
    torch.save(position, folder / "position_0.bin")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["num_processes"] = 2
    content = (folder / "position_0.bin").read_bytes()
    manifest["files"]["position_0.bin"] = {"size": len(content), "checksum": xxhash.xxh3_128(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


# Folders


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, total_limit=2)
    for _ in range(4):
        run.accelerator.save_state()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint_2", "checkpoint_3"]


def test_after_loading_the_count_goes_on(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.accelerator.save_state()
    first.accelerator.save_state()
    second = Run(tmp_path)
    with pytest.raises(CheckpointError, match="checkpoint_1 exists already"):
        second.accelerator.save_state()
    second.accelerator.load_state()
    assert second.accelerator.save_state().endswith("checkpoint_2")


def test_a_folder_of_its_own_name_may_be_saved_to_again_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.accelerator.project_configuration.automatic_checkpoint_naming = False
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "notes.txt").write_text("mine")
    for _ in run.steps(1):
        run.accelerator.save_state(tmp_path / "state")
    assert (tmp_path / "state" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "state" / ".saving").exists()
    expected = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    losses(run.steps(1))
    run.accelerator.load_state(tmp_path / "state")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in run.model.state_dict().items())


class Stop(BaseException):
    """Stands in for the power cut."""


@pytest.mark.parametrize("again", [False, True], ids=["new folder", "folder with an older state"])
def test_a_save_that_is_interrupted_anywhere_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes the file system is made the last one, in turn."""
    changes = ["mkdir", "rename", "replace", "unlink", "rmdir"]
    done = False
    for limit in range(200):
        folder = tmp_path / str(limit)
        run = Run(folder)
        run.accelerator.project_configuration.automatic_checkpoint_naming = False
        steps = run.steps(3)
        old = new = None
        if again:
            next(steps)
            run.accelerator.save_state(folder / "state")
            old = run.model.state_dict()["0.weight"].clone()
        next(steps)
        new = run.model.state_dict()["0.weight"].clone()
        with monkeypatch.context() as patch:
            left = limit

            def counted(function: Callable[..., Any]) -> Callable[..., Any]:
                def call(*args: Any, **kwargs: Any) -> Any:
                    nonlocal left
                    if function.__name__ != "open" or "w" in str((*args[1:2], kwargs.get("mode", ""))):
                        left -= 1
                        if left < 0:
                            raise Stop
                    return function(*args, **kwargs)

                return call

            for name in changes:
                patch.setattr(os, name, counted(getattr(os, name)))
            patch.setattr(Path, "open", counted(Path.open))
            try:
                run.accelerator.save_state(folder / "state")
                done = True
            except Stop:
                pass
        fresh = Run(folder)
        try:
            fresh.accelerator.load_state(folder / "state")
        except CheckpointError:
            assert not again
            assert not done
            continue
        found = fresh.model.state_dict()["0.weight"]
        assert torch.equal(found, new) or (old is not None and torch.equal(found, old))
        if done:
            assert torch.equal(found, new)
            return
    pytest.fail("the save never ended")


@pytest.mark.parametrize("damage", ["missing", "shorter", "bit"])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl", "position_0.bin"]
)
def test_damage_is_named_and_the_newest_whole_state_is_offered(tmp_path: Path, name: str, damage: str) -> None:
    run = Run(tmp_path)
    losses(run.steps(1))
    run.accelerator.save_state()
    good = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    losses(run.steps(1))
    latest = Path(run.accelerator.save_state())
    path = latest / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(content[:-7])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    fresh = Run(tmp_path)
    with pytest.raises(CheckpointError, match=name) as error:
        fresh.accelerator.load_state()
    if damage != "bit":  # the size tells before anything is read
        assert "checkpoint_0: load_state(" in str(error.value)
        fresh.accelerator.load_state("latest")
        assert all(torch.equal(tensor, good[name]) for name, tensor in fresh.model.state_dict().items())


def test_a_state_without_its_manifest_is_not_taken_for_one_of_accelerate(tmp_path: Path) -> None:
    run = Run(tmp_path)
    folder = Path(run.accelerator.save_state())
    (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing"):
        run.accelerator.load_state(folder)


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder"])
def test_what_is_no_state_is_said_so(tmp_path: Path, what: str) -> None:
    run = Run(tmp_path)
    path = tmp_path / "state"
    if what == "a file":
        path.write_text("")
    elif what == "an empty folder":
        path.mkdir()
    with pytest.raises(CheckpointError, match=r"no folder|holds no checkpoint"):
        run.accelerator.load_state(path)


def test_other_objects_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.accelerator.save_state()
    other = Accelerator(cpu=True)
    model = other.prepare(nn.Linear(4, 8))
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match="saved with 1 optimizers, but there are 0 now"):
        other.load_state(tmp_path / "checkpoints" / "checkpoint_0")
    assert torch.equal(model.weight, before)


# Registered objects and hooks


class Counter:
    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def test_registered_objects_are_saved_too(tmp_path: Path) -> None:
    run, counter = Run(tmp_path), Counter(3)
    run.accelerator.register_for_checkpointing(counter)
    run.accelerator.save_state()
    counter.value = 4
    run.accelerator.load_state()
    assert counter.value == 3


def test_what_cannot_be_registered_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Item at index 1, Tensor"):
        Run(tmp_path).accelerator.register_for_checkpointing(Counter(), torch.ones(1))


def test_code_in_a_file_is_not_run_unless_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, counter = Run(tmp_path), Counter(Path("/"))
    run.accelerator.register_for_checkpointing(counter)
    with caplog.at_level(logging.WARNING):
        folder = run.accelerator.save_state()
    assert "custom_checkpoint_0.pkl holds objects of pathlib" in caplog.text
    counter.value = None
    with pytest.raises(CheckpointError, match=r"custom_checkpoint_0\.pkl holds objects of pathlib.*weights_only"):
        run.accelerator.load_state(folder)
    run.accelerator.load_state(folder, load_kwargs={"weights_only": False})
    assert counter.value == Path("/")


def test_hooks_write_beside_the_state_and_choose_what_is_saved(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def save(models: list[nn.Module], weights: list[dict[str, Any]], output_dir: str) -> None:
        Path(output_dir, "config.json").write_text(json.dumps({"models": len(models)}))
        weights.clear()

    def load(models: list[nn.Module], input_dir: str) -> None:
        assert json.loads(Path(input_dir, "config.json").read_text()) == {"models": 1}
        models.clear()

    hooks = [run.accelerator.register_save_state_pre_hook(save), run.accelerator.register_load_state_pre_hook(load)]
    folder = Path(run.accelerator.save_state())
    assert "config.json" in json.loads((folder / "manifest.json").read_text())["files"]
    assert not (folder / "model.safetensors").exists()
    run.accelerator.load_state(folder)
    for hook in hooks:
        hook.remove()
    assert (Path(run.accelerator.save_state()) / "model.safetensors").exists()


# In the background


def test_a_state_saved_in_the_background_is_that_of_the_moment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    next(run.steps(1))
    expected = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.accelerator.save_state(async_save=True)
    losses(run.steps(1))
    run.accelerator.load_state()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in run.model.state_dict().items())


def test_what_stops_a_background_save_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    with monkeypatch.context() as patch:

        def full(*_: Any) -> str:
            raise OSError(28, "No space left on device")

        patch.setattr("accelerate_runtime.checkpointing.saving.save_plain", full)
        run.accelerator.save_state(async_save=True)
        with pytest.raises(OSError, match="No space left"):
            run.accelerator.save_state()
    assert os.listdir(tmp_path / "checkpoints") == []
    run.accelerator.save_state()


@pytest.mark.parametrize("safe", [True, False])
def test_tied_weights_are_saved_once_and_stay_tied(tmp_path: Path, safe: bool) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)
            self.out.weight = self.embed.weight

    def prepared() -> tuple[Accelerator, nn.Module]:
        accelerator = Accelerator(cpu=True)
        return accelerator, accelerator.prepare(Tied())

    accelerator, model = prepared()
    folder = Path(accelerator.save_state(tmp_path / "state", safe_serialization=safe))
    size = (folder / ("model.safetensors" if safe else "pytorch_model.bin")).stat().st_size
    assert size < 1.5 * model.embed.weight.nbytes
    other, fresh = prepared()
    other.load_state(folder)
    assert torch.equal(fresh.embed.weight, model.embed.weight)
    assert fresh.embed.weight is fresh.out.weight


# Odd programs


def one_layer() -> tuple[Accelerator, nn.Module, Any]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return accelerator, model, optimizer


@pytest.mark.parametrize("in_background", [False, True])
def test_containers_of_other_kinds_keep_their_kind_and_the_moment(tmp_path: Path, in_background: bool) -> None:
    accelerator, _, optimizer = one_layer()
    schedule = accelerator.prepare(torch.optim.lr_scheduler.MultiStepLR(optimizer.optimizer, [2, 4]))
    record = Counter(np.zeros(3))
    accelerator.register_for_checkpointing(record)
    accelerator.save_state(tmp_path / "state", async_save=in_background)
    record.value[:] = 7
    accelerator.load_state(tmp_path / "state")
    assert schedule.milestones == {2: 1, 4: 1}
    assert record.value.tolist() == [0, 0, 0]


def test_numbers_of_numpy_are_plain_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerator, _, optimizer = one_layer()
    optimizer.param_groups[0]["lr"] = np.float64(0.5)
    accelerator.save_state(tmp_path / "state")
    accelerator.load_state(tmp_path / "state")
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert caplog.text == ""


@pytest.mark.parametrize("safe", [True, False])
def test_a_model_whose_state_dict_is_a_copy_is_loaded_too(tmp_path: Path, safe: bool) -> None:
    class Copying(nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return {name: tensor.clone() for name, tensor in super().state_dict(*args, **kwargs).items()}

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Copying(2, 1))
    accelerator.save_state(tmp_path / "state", safe_serialization=safe)
    other = Accelerator(cpu=True)
    fresh = other.prepare(Copying(2, 1))
    other.load_state(tmp_path / "state")
    assert torch.equal(fresh.weight, model.weight)


def test_a_new_run_does_not_save_below_the_states_of_an_old_one(tmp_path: Path) -> None:
    old = Run(tmp_path, total_limit=2)
    for _ in range(4):
        old.accelerator.save_state()
    with pytest.raises(CheckpointError, match="checkpoint_3 exists already"):
        Run(tmp_path, total_limit=2).accelerator.save_state()


@pytest.mark.parametrize("clear", ["optimizer", "model", "by hand"])
def test_gradients_of_an_open_window_are_saved_however_the_script_clears_them(tmp_path: Path, clear: str) -> None:
    def micro_batches(accelerator: Accelerator, model: nn.Module, optimizer: Any, numbers: range) -> None:
        for number in numbers:
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.tensor([[1.0, number]])).sum())
                optimizer.step()
                if clear == "optimizer":
                    optimizer.zero_grad()
                elif accelerator.sync_gradients and clear == "model":
                    model.zero_grad()
                elif accelerator.sync_gradients:
                    for parameter in model.parameters():
                        parameter.grad = None

    whole = one_layer()
    micro_batches(*whole, range(6))
    first = one_layer()
    micro_batches(*first, range(3))
    first[0].save_state(tmp_path / "state")
    second = one_layer()
    second[0].load_state(tmp_path / "state")
    micro_batches(*second, range(3, 6))
    assert torch.equal(second[1].weight, whole[1].weight)


def test_a_parameter_in_two_optimizers_and_one_in_none(tmp_path: Path) -> None:
    def built() -> tuple[Accelerator, nn.Module, Any, Any]:
        accelerator = Accelerator(cpu=True)
        model = nn.Linear(2, 1)
        optimizers = [torch.optim.SGD([model.weight], lr=0.1) for _ in range(2)]
        return accelerator, *accelerator.prepare(model, *optimizers)

    accelerator, model, first, second = built()
    for optimizer in (first, second):
        optimizer.zero_grad()
    accelerator.backward(model(torch.ones(1, 2)).sum())
    second.step()
    accelerator.save_state(tmp_path / "state")
    other, fresh, *_ = built()
    other.load_state(tmp_path / "state")
    assert torch.equal(fresh.weight.grad, model.weight.grad)
    assert torch.equal(fresh.bias.grad, model.bias.grad)


def test_sparse_gradients_of_an_open_window_are_refused(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Embedding(4, 2, sparse=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SparseAdam(model.parameters()))
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.tensor([1])).sum())
        optimizer.step()
    with pytest.raises(CheckpointError, match=r"sparse gradients.*where a window ends"):
        accelerator.save_state(tmp_path / "state")
    assert os.listdir(tmp_path) == []


def test_files_of_others_in_the_folder_are_not_taken_for_ours(tmp_path: Path) -> None:
    accelerator, model, _ = one_layer()
    accelerator.save_state(tmp_path / "state", safe_serialization=False)
    accelerator.save_model(nn.Linear(2, 1), tmp_path / "state")
    before = model.weight.clone()
    accelerator.load_state(tmp_path / "state")
    assert torch.equal(model.weight, before)


def test_a_relative_folder_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    accelerator, *_ = one_layer()
    accelerator.save_state("state", async_save=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    accelerator.load_state(tmp_path / "state")


def test_a_link_to_nowhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    accelerator, *_ = one_layer()
    accelerator.save_state(tmp_path / "link")
    assert (tmp_path / "real" / "manifest.json").exists()
    accelerator.load_state(tmp_path / "link")


def test_float32_masters_of_low_precision_parameters_stay_float32(tmp_path: Path) -> None:
    def built() -> tuple[Accelerator, Any, nn.Parameter]:
        parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.state[parameter]["master"] = torch.full((3,), 1 / 3)
        accelerator = Accelerator(cpu=True)
        return accelerator, accelerator.prepare(optimizer), parameter

    accelerator, _, _ = built()
    accelerator.save_state(tmp_path / "state")
    other, optimizer, parameter = built()
    other.load_state(tmp_path / "state")
    assert torch.equal(optimizer.state[parameter]["master"], torch.full((3,), 1 / 3))


def test_other_parameter_groups_name_the_file(tmp_path: Path) -> None:
    accelerator, _, optimizer = one_layer()
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    accelerator.save_state(tmp_path / "state")
    other, *_ = one_layer()
    with pytest.raises(CheckpointError, match=r"optimizer\.bin does not fit the optimizer"):
        other.load_state(tmp_path / "state")
