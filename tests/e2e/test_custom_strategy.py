"""A strategy that somebody else made: installed as a package of its own, chosen by name, and trained with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, Strategy, register_strategy

PACKAGE = Path(__file__).parents[2] / "examples" / "signsgd_strategy"

SCRIPT = """
import json, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelerate_runtime import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
data = TensorDataset(torch.randn(32, 3), torch.randn(32, 1))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
weight = accelerator.get_state_dict(model)["weight"]
all_of_them = accelerator.gather(weight)
if accelerator.is_main_process:
    strategy = type(accelerator.state.strategy).__module__
    json.dump([strategy, all_of_them.tolist()], open(sys.argv[1], "w"))
"""


def by_hand(processes: int) -> list[float]:
    """The weight after the same steps of signSGD with majority vote, as its paper has it."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 3), torch.randn(32, 1)
    model = nn.Linear(3, 1)
    batches = list(zip(x.split(4), y.split(4), strict=True))
    for start in range(0, 8, 2 * processes):
        votes = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for rank in range(processes):
            mine = batches[start + rank], batches[start + rank + processes]
            loss = sum(nn.functional.mse_loss(model(x), y) for x, y in mine)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            votes = [vote + gradient.sign() for vote, gradient in zip(votes, gradients, strict=True)]
        with torch.no_grad():
            for parameter, vote in zip(model.parameters(), votes, strict=True):
                parameter -= 0.25 * vote.sign()
    return model.weight.flatten().tolist()


@pytest.mark.e2e
def test_an_installed_strategy_trains(tmp_path: Path) -> None:
    site, script = tmp_path / "site", tmp_path / "train.py"
    source = shutil.copytree(PACKAGE, tmp_path / "source")  # building leaves files there
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)]
    subprocess.run(pip, check=True, timeout=240)
    script.write_text(SCRIPT, encoding="utf-8")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ACCELERATE_STRATEGY": "signsgd"}
    for processes in (1, 2):
        launch = ["-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", str(processes)]
        result = tmp_path / f"{processes}.json"
        command = [sys.executable, *launch, str(script), str(result)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-4000:]
        strategy, weights = json.loads(result.read_text())
        assert strategy == "signsgd_strategy"
        assert len(weights) == processes
        for weight in weights:
            assert weight == pytest.approx(by_hand(processes), abs=1e-6)


def test_a_strategy_is_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate_runtime.strategies._registered", {})

    class Doubled(Strategy):
        def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
            return model

        def run_backward(self, loss: torch.Tensor) -> None:
            (2 * loss).backward()

    register_strategy("doubled", Doubled)
    weight = nn.Linear(1, 1, bias=False)
    accelerator = Accelerator(cpu=True, strategy="doubled")
    model = accelerator.prepare(weight)
    accelerator.backward(model(torch.ones(1, 1)).sum())
    assert weight.weight.grad.item() == 2
    with pytest.raises(TypeError, match="pass a subclass of"):
        register_strategy("other", object)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the name is taken"):
        register_strategy("ddp", Doubled)
