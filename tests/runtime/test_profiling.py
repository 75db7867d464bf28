"""The profiler: what it records, and the files it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import tensorboard_trace_handler

from accelerate_runtime import Accelerator, ProfileKwargs


def multiply(size: int = 8) -> torch.Tensor:
    return torch.ones(size, size) @ torch.ones(size, size)


def events(path: Path) -> list[str]:
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"] if "name" in event]


def test_a_block_is_profiled_and_no_file_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Accelerator().profile() as profiler:
        multiply()
    assert "aten::mm" in [average.key for average in profiler.key_averages()]
    assert not [*tmp_path.iterdir()]


def test_the_trace_is_written_for_this_process(tmp_path: Path) -> None:
    handler = ProfileKwargs(activities=["cpu"], record_shapes=True, output_trace_dir=str(tmp_path / "traces"))
    accelerator = Accelerator(kwargs_handlers=[handler])
    assert accelerator.profile_handler is handler
    with accelerator.profile():
        multiply()
    assert "aten::mm" in events(tmp_path / "traces" / "profile_0.json")


def test_with_a_schedule_the_file_has_the_last_recording_that_ended(tmp_path: Path) -> None:
    heard: list[Any] = []
    handler = ProfileKwargs(
        schedule_option={"wait": 1, "warmup": 1, "active": 2},
        on_trace_ready=heard.append,
        output_trace_dir=str(tmp_path),
    )
    with Accelerator().profile(handler) as profiler:
        for step in range(9):  # recordings end after steps 3 and 7; the ninth step is in a wait
            multiply() if step < 6 else torch.ones(3).cumsum(0)
            profiler.step()
    assert len(heard) == 2
    assert "aten::cumsum" in events(tmp_path / "profile_0.json")
    assert "aten::mm" not in events(tmp_path / "profile_0.json")


def test_a_schedule_that_records_nothing_is_told(tmp_path: Path) -> None:
    handler = ProfileKwargs(schedule_option={"wait": 5, "warmup": 1, "active": 1}, output_trace_dir=str(tmp_path))
    with pytest.warns(UserWarning, match="nothing was recorded"), Accelerator().profile(handler):
        multiply()


def test_a_trace_is_saved_once(tmp_path: Path) -> None:
    saver = tensorboard_trace_handler(str(tmp_path / "own"))
    handler = ProfileKwargs(on_trace_ready=saver, output_trace_dir=str(tmp_path))
    with (
        pytest.raises(RuntimeError, match="pass one of"),
        Accelerator().profile(handler),
    ):
        multiply()


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"'gpu' is not one of cpu, .*cuda"):
        ProfileKwargs(activities=["gpu"]).build()
    with pytest.raises(ValueError, match="'active' is missing; it has wait, warmup, active and perhaps repeat"):
        ProfileKwargs(schedule_option={"wait": 1, "warmup": 1})
    with pytest.raises(ValueError, match="'activ' is unknown"):
        ProfileKwargs(schedule_option={"wait": 1, "warmup": 1, "activ": 1})
    assert ProfileKwargs(with_flops=True).to_kwargs() == {"with_flops": True}
