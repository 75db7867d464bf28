"""Each test starts on one CPU process that nothing was set up in, whatever the environment says."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from accelerate_runtime.state import AcceleratorState, GradientState

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def one_fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")] + list(PLACE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    forget()
    torch.manual_seed(0)
    yield
    forget()


def forget() -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
