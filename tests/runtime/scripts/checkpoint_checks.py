"""Training states of two processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.checkpointing.layout import CheckpointError
from accelerate_runtime.utils import set_seed


def built() -> tuple[Accelerator, Iterator[float]]:
    """A training whose processes draw and accumulate apart."""
    set_seed(3, device_specific=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.arange(80.0).reshape(20, 4) / 80
    loader = DataLoader(TensorDataset(data), batch_size=2, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def steps() -> Iterator[float]:
        for (x,) in loader:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            yield loss.item()

    return accelerator, steps()


def check_a_state_saved_in_an_open_window_resumes_bit_for_bit() -> None:
    accelerator, steps = built()
    for _ in range(2):
        next(steps)
    folder = FOLDER / "window"
    accelerator.save_state(folder, async_save=True)
    rest = list(steps)
    accelerator.wait_for_everyone()
    other, fresh = built()
    accelerator.load_state(folder)  # waits for the background
    other.load_state(folder)
    assert list(fresh) == rest
    files = json.loads((folder / "manifest.json").read_text())["files"]
    for rank in (0, 1):
        assert {f"gradients_{rank}.safetensors", f"random_states_{rank}.pkl", f"position_{rank}.bin"} <= files.keys()


class Broken:
    def state_dict(self) -> dict[str, Any]:
        raise ValueError("no state today")

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def check_what_fails_on_the_main_process_is_raised_on_both() -> None:
    for in_background in (False, True):
        accelerator, _ = built()
        accelerator.register_for_checkpointing(Broken())
        with pytest.raises((ValueError, CheckpointError), match="no state today") as error:
            accelerator.save_state(FOLDER / "broken", async_save=in_background)
        assert ("process 0" in str(error.value)) == (me == 1)
        assert everyone((FOLDER / "broken").exists()) == [False, False]


def check_damage_is_raised_on_both() -> None:
    accelerator, _ = built()
    folder = FOLDER / "damaged"
    accelerator.save_state(folder)
    if me == 0:
        (folder / "random_states_1.pkl").write_bytes(b"")
    accelerator.wait_for_everyone()
    with pytest.raises(CheckpointError, match=r"random_states_1\.pkl"):
        accelerator.load_state(folder)
