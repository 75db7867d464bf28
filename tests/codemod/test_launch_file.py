"""The launch config: valid for either launcher, and each value says where it comes from."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accelerate_migrate.findings import Target
from accelerate_migrate.launch_config import DEFAULTS, Inferred, render
from support.migration import migrate_files


def test_without_any_fact_it_runs_anywhere() -> None:
    config = yaml.safe_load(render("src/train.py", {}))
    assert config == {key: fact.value for key, fact in DEFAULTS.items()}
    assert (config["distributed_type"], config["num_processes"], config["use_cpu"]) == ("NO", 1, False)


def test_each_value_says_where_it_comes_from() -> None:
    text = render("train.py", {"mixed_precision": Inferred("fp16", 12, "GradScaler() scales the loss")})
    lines = text.splitlines()
    assert next(line for line in lines if line.startswith("mixed_precision")).split("  # ") == [
        "mixed_precision: fp16".ljust(len("compute_environment: LOCAL_MACHINE")),
        "line 12: GradScaler() scales the loss",
    ]
    for line in lines:
        assert line.startswith("#") or "  # default" in line or "  # line 12: " in line


def test_the_header_says_how_to_launch() -> None:
    assert "#   accelerate-runtime launch --config_file train.launch.yaml train.py\n" in render("a/train.py", {})
    text = render("my train.py", {}, Target.ACCELERATE)
    assert "#   accelerate launch --config_file 'my train.launch.yaml' 'my train.py'\n" in text
    assert "accelerate-runtime" not in text


@pytest.mark.parametrize(
    "value", ["no", "NO", "all", "0,1", "10.0.0.1", "it's", "a: b # c", "true", "", 0, -1, False, None]
)
def test_a_value_is_read_back_as_it_was(value: str | int | bool | None) -> None:
    text = render("train.py", {"gpu_ids": Inferred(value, 1, "x")})
    assert yaml.safe_load(text)["gpu_ids"] == value
    assert type(yaml.safe_load(text)["gpu_ids"]) is type(value)


def test_a_comment_stays_on_its_line() -> None:
    text = render("train.py", {"num_processes": Inferred(2, 3, "world_size\n  = 2")})
    assert yaml.safe_load(text)["num_processes"] == 2
    assert "# line 3: world_size = 2\n" in text


def test_a_key_that_no_launcher_knows_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="num_procs"):
        render("train.py", {"num_procs": Inferred(2, 3, "x")})


@pytest.mark.e2e
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs Accelerate, which is not installed")
def test_the_launcher_of_accelerate_takes_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from accelerate import Accelerator\nprint('precision', Accelerator().mixed_precision)\n")
    facts = {"mixed_precision": Inferred("bf16", 1, "autocast(dtype=torch.bfloat16)")}
    (tmp_path / "train.launch.yaml").write_text(render("train.py", facts, Target.ACCELERATE))
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "train.launch.yaml", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "precision bf16" in done.stdout


def test_it_stands_beside_the_script_that_is_started() -> None:
    results = migrate_files(
        {
            "run.py": """\
import torch
from torch import nn
from engine import Trainer

model = nn.Linear(2, 1)
loader = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), loader).fit()
""",
            "engine.py": """\
import torch

class Trainer:
    def __init__(self, model, optimizer, loader):
        self.device = torch.device("cuda")
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.loader = loader

    def fit(self):
        for x in self.loader:
            self.optimizer.zero_grad()
            self.model(x.to(self.device)).sum().backward()
            self.optimizer.step()
        torch.save(self.model.state_dict(), "final.pt")
""",
        }
    )
    started = next(result for path, result in results.items() if path.endswith("run.py"))
    held = next(result for path, result in results.items() if path.endswith("engine.py"))
    assert held.after is not None
    assert b"self.accelerator.save(self.accelerator.get_state_dict(self.model)" in held.after
    assert (started.after, held.launch_config) == (None, None)
    assert started.launch_config is not None
    assert "--config_file run.launch.yaml run.py" in started.launch_config
