"""Accelerators of every kind: which one is taken, and that one file alone knows their names.

None of them is here. A device that torch is made to know stands in for one; its tensors lie on the CPU.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accelerate_runtime
from accelerate_runtime import Accelerator, availability, devices, topology
from accelerate_runtime.launch.basic import spread_over_devices
from accelerate_runtime.utils import DistributedType, get_max_memory

RUNTIME = Path(accelerate_runtime.__file__).parent
TRAINING = Path(__file__).parent / "scripts" / "train_on_fake_device.py"


def pretend(monkeypatch: pytest.MonkeyPatch, kind: str, count: int = 1) -> list[torch.device]:
    """Have torch find `count` devices of a kind; returns the list of those that are then made current."""
    used: list[torch.device] = []
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(devices, "accelerator", lambda: torch.device(kind))
    monkeypatch.setattr("accelerate_runtime.launch.basic.accelerator", devices.accelerator)
    monkeypatch.setattr(devices, "count", lambda: count)
    monkeypatch.setattr(devices, "use", used.append)
    return used


# One file


def names_in(path: Path) -> set[str]:
    """The kinds and collectives that a file names, as words of their own or as `torch.kind`, but for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    known = {kind.name for kind in devices.KINDS.values()} | {kind.backend for kind in devices.KINDS.values()}
    known -= {"cpu", None}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in told and node.value in known:
            found.add(node.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            found |= {node.attr} & known
    return found


def test_no_device_is_named_outside_one_file() -> None:
    # a backend of torch.compile, and a strategy
    words = {"vocabulary.py": {"neuron"}, "strategies/__init__.py": {"xla"}}
    named = {path.relative_to(RUNTIME).as_posix(): names_in(path) for path in RUNTIME.rglob("*.py")}
    assert named.pop("devices.py") > {"cuda", "mps", "npu"}
    assert {path: names for path, names in named.items() if names} == words


def test_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text('"""cuda"""\nimport torch\nif x.type == "mps":\n    torch.xpu.synchronize()\n')
    assert names_in(tmp_path / "x.py") == {"mps", "xpu"}


def test_the_page_of_devices_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "library" / "devices.md").read_text(encoding="utf-8")
    rows = {row.split(" | ")[1].strip("`"): row for row in page.splitlines() if row.startswith("| ") and "`" in row}
    assert {name for name in rows if name in devices.KINDS} == set(devices.KINDS)
    for kind in devices.KINDS.values():
        told = (
            f"`{kind.visible}`" if kind.visible else "",
            f"`{kind.spread}`" if kind.shared else "",
            *kind.packages[:1],
        )
        assert all(word in rows[kind.name] for word in told), kind.name


# Which one


@pytest.mark.parametrize("kind", [kind for kind in devices.KINDS.values() if kind.visible], ids=lambda kind: kind.name)
def test_every_kind_has_its_distributed_type_and_variable(kind: devices.Kind) -> None:
    assert topology.spread_over(SimpleNamespace(type=kind.name)) == DistributedType(kind.spread)  # type: ignore[arg-type]
    assert devices.VISIBLE_DEVICES[kind.spread] == kind.visible


def test_each_process_takes_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    used = pretend(monkeypatch, "xpu", count=2)
    assert topology.default_device() == torch.device("xpu")
    assert topology._pick_device(False, local_rank=1, world=2) == torch.device("xpu", 1)
    assert used == [torch.device("xpu", 1)]
    assert topology._pick_device(True, local_rank=1, world=2) == torch.device("cpu")
    with pytest.raises(RuntimeError, match=r"process 2 of this machine has no device: 2 xpu device\(s\) found"):
        topology._pick_device(False, local_rank=2, world=4)
    assert spread_over_devices() == "MULTI_XPU"


def test_an_apple_gpu_is_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    used = pretend(monkeypatch, "mps")
    assert topology._pick_device(False, local_rank=0, world=1) == torch.device("mps")
    with pytest.raises(RuntimeError, match="2 processes cannot share one Apple GPU: start one process, or pass --cpu"):
        topology._pick_device(False, local_rank=0, world=2)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "mps:0")
    assert topology._pick_device(False, local_rank=0, world=1) == torch.device("mps:0")
    assert used == []
    assert list(get_max_memory()) == ["mps"]  # it is the machine's


def test_what_a_device_cannot_do_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "mps")
    assert Accelerator().device == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: False)
    with pytest.raises(ValueError, match="mixed_precision='bf16': this Apple GPU has no bfloat16; use 'fp16' or 'no'"):
        Accelerator(mixed_precision="bf16")
    with pytest.raises(ValueError, match="mixed_precision='fp16': torch cannot scale gradients on mps"):
        Accelerator(mixed_precision="fp16")


def test_a_kind_that_nobody_knows_is_as_torch_says() -> None:
    kind = devices.kind_of("chip")
    assert (kind.label, kind.spread, kind.shared, kind.float64) == ("CHIP", "MULTI_GPU", True, True)
    with pytest.raises(ValueError, match="torch names no collectives for devices of the kind 'chip'"):
        devices.collectives_of(SimpleNamespace(type="chip"))  # type: ignore[arg-type]


def test_collectives_are_torchs_choice_and_else_the_vendors() -> None:
    told = {name: devices.collectives_of(SimpleNamespace(type=name)) for name in ("cpu", "cuda", "mps", "npu", "mlu")}  # type: ignore[arg-type]
    assert told == {"cpu": "gloo", "cuda": "nccl", "mps": "gloo", "npu": "hccl", "mlu": "cncl"}


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Modules that are imported stay so no longer than the test."""
    before = set(sys.modules)
    yield
    for name in {name for name in sys.modules if name.startswith("torch_m")} - before:
        del sys.modules[name]


@pytest.mark.usefixtures("forgotten")
def test_a_package_made_for_other_drivers_brings_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not availability.is_musa_available()
    (tmp_path / "torch_musa.py").write_text("raise OSError('libmusa.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    assert not availability.is_musa_available()
    (tmp_path / "torch_mlu.py").write_text(
        "import torch\nclass mlu:\n    is_available = lambda: True\n    device_count = lambda: 0\ntorch.mlu = mlu\n"
    )
    monkeypatch.setattr(torch, "mlu", None, raising=False)  # taken back after the test
    assert availability.is_mlu_available()
    assert not availability.is_mlu_available(check_device=True)


# A whole training


def run(folder: Path, precision: str, processes: int) -> list[float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("ACCELERATE_USE_CPU", None)
    launcher = ["-m", "accelerate_runtime", "launch", "--num_processes", str(processes)]
    command = [sys.executable, *launcher, str(TRAINING), str(folder), precision]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    losses: list[float] = ast.literal_eval((folder / f"losses.{processes}.{precision}").read_text())
    return losses


def on_the_cpu() -> list[float]:
    """The same training in plain torch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x in torch.randn(32, 4).split(8):
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.e2e
@pytest.mark.parametrize(("precision", "processes"), [("no", 2), ("bf16", 1)])
def test_it_trains_on_a_device_that_torch_was_made_to_know(tmp_path: Path, precision: str, processes: int) -> None:
    exact = precision == "no"
    assert run(tmp_path, precision, processes) == pytest.approx(on_the_cpu(), rel=1e-5 if exact else 2e-2)
