"""Training by XLA: refused with the reason where torch_xla is not installed, and real where it is (`make test-xla`)."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, load_checkpoint_in_model, topology, xla
from accelerate_runtime.launch.config import ConfigError, LaunchConfig, merge
from accelerate_runtime.launch.options import parse
from accelerate_runtime.launch.plan import LaunchPlan, resolve

SCRIPT = Path(__file__).parent / "scripts" / "xla_training.py"
INSTALLED = importlib.util.find_spec("torch_xla") is not None

needs_xla = pytest.mark.skipif(not INSTALLED, reason="torch_xla is not installed: make test-xla")


# Asking for it


def test_it_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in (lambda: Accelerator(strategy="xla"), Accelerator):
        with pytest.raises(RuntimeError, match=r"but this process trains on cpu: install it \(pip install 'torch==2.9"):
            ask()
        monkeypatch.setenv("ACCELERATE_STRATEGY", "xla")


@pytest.mark.skipif(INSTALLED, reason="torch_xla is installed")
def test_a_device_for_a_package_that_is_missing_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    with caplog.at_level(logging.WARNING):
        assert Accelerator().device.type != "xla"
    assert "PJRT_DEVICE=TPU is set, but torch_xla is not installed" in caplog.text


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.setattr(xla, "is_asked_for", lambda: True)
    monkeypatch.setattr(xla, "device", lambda: torch.device("xla", 0))
    assert topology._pick_device(False, local_rank=0, world=1) == torch.device("xla", 0)
    assert topology._pick_device(True, local_rank=0, world=1) == torch.device("cpu")
    with pytest.raises(RuntimeError, match="but 2 processes were started: start one, which drives all devices"):
        topology._pick_device(False, local_rank=0, world=2)


# Launching


def planned(flags: LaunchConfig, file: LaunchConfig | None = None) -> LaunchPlan:
    return resolve(merge(flags, file, "a.yaml"), lambda: pytest.fail("devices were counted"))


def test_one_process_is_started_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    got = planned(parse(["--tpu", "x.py"]).flags)
    assert (got.processes, got.watched) == (1, False)
    assert got.environment == {"ACCELERATE_STRATEGY": "xla", "PJRT_DEVICE": "TPU"}
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    got = planned(
        LaunchConfig(), LaunchConfig(distributed_type="XLA", num_processes=8)
    )  # as Accelerate's files have it
    assert (got.processes, got.environment) == (1, {"ACCELERATE_STRATEGY": "xla"})
    assert "num_processes is 8: with XLA one process is started" in got.warnings[0]


def test_what_does_not_go_with_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    with pytest.raises(ConfigError, match="--cpu and --tpu cannot go together"):
        parse(["--tpu", "--cpu", "x.py"])
    machines = LaunchConfig(
        distributed_type="XLA", num_machines=2, num_processes=2, main_process_ip="a", main_process_port=1
    )
    with pytest.raises(ConfigError, match="num_machines is 2: training by XLA is supported on one machine only"):
        planned(machines)


# Training


@needs_xla
@pytest.mark.e2e
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_it_trains_as_plain_torch_does(tmp_path: Path, devices: int) -> None:
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
    environment.pop("ACCELERATE_USE_CPU", None)
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--tpu", str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    checks = ["check_selection", "check_training", "check_division", "check_bf16", "check_states"]
    assert done.stdout.splitlines() == [f"{check}: ok" for check in checks]
    goes_on_without_xla(tmp_path)


def goes_on_without_xla(folder: Path) -> None:
    """The files of a training by XLA are those of one on the CPU."""
    body = nn.Sequential(nn.Embedding(20, 16), nn.Flatten(), nn.Linear(64, 32))
    net = nn.ModuleDict({"body": body, "head": nn.Linear(32, 6)})
    weights = torch.load(folder / "weights.pt")
    load_checkpoint_in_model(net, folder / "exported", strict=True)
    assert list(weights) == list(net.state_dict())
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    state = torch.load(folder / "state" / "optimizer.bin")
    optimizer = torch.optim.AdamW(net.parameters())
    optimizer.load_state_dict(state)
    last = len(state["state"]) - 2
    assert torch.equal(optimizer.state[net["head"].weight]["exp_avg"], state["state"][last]["exp_avg"])
