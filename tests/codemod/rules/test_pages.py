"""Every rule's page is true: what stands under "Before" becomes what stands under "After"."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from accelerate_migrate.findings import Checkpoints
from accelerate_migrate.rules.base import Rule
from accelerate_migrate.rules.registry import all_rules
from support.migration import ASKING, migrate

every_rule = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)

IMPORTS = """\
import argparse
import os
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image

args = argparse.ArgumentParser().parse_args()
data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
"""
DATA = "loader = DataLoader(data, batch_size=32)\n"
MODEL = "model = nn.Linear(8, 3)\noptimizer = SGD(model.parameters(), lr=0.1)\n"
NET = "net = nn.Linear(8, 3)\n"
NET_OPTIMIZER = "optimizer = SGD(net.parameters(), lr=0.1)\n"
EPOCH = """\
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
NET_EPOCH = EPOCH.replace("model", "net")
TWO_HEADS = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.age = nn.Linear(8, 3), nn.Linear(8, 1)
    def forward(self, x):
        return self.score(x), self.age(x)
criterion = nn.CrossEntropyLoss()
"""
BATCH = "for x, y in loader:\n"
GROUP = """\
import horovod.torch as hvd
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

"""
STARTED = IMPORTS.replace("\nargs", GROUP + "args", 1) + 'dist.init_process_group("nccl")\n'
STEP = "    optimizer.step()\n"


@dataclass(frozen=True)
class Around:
    """What makes the snippet of a page a complete script; ``indent`` is how deep the snippet stands in it.

    ``dots`` takes the place of a line ``...`` in the snippet.
    """

    opening: str = IMPORTS + MODEL + DATA + EPOCH
    closing: str = ""
    indent: int = 0
    dots: str = "pass"
    checkpoints: Checkpoints = Checkpoints.KEEP


PAGES = {
    "accelerator": Around(
        IMPORTS
        + "def train(model, device, loader, optimizer):\n"
        + "".join("    " + line + "\n" for line in EPOCH.splitlines())
        + MODEL
        + DATA
    ),
    "device": Around(IMPORTS, MODEL + DATA + EPOCH),
    "tensor-types": Around(IMPORTS + MODEL + DATA, "    loss.backward()\n" + STEP),
    "default-tensor-type": Around(IMPORTS, MODEL + DATA + EPOCH),
    "moves": Around(IMPORTS + MODEL + DATA, "    loss = model(x).mean()\n    loss.backward()\n" + STEP),
    "host-copies": Around(IMPORTS + MODEL + DATA + EPOCH + "labels = []\n"),
    "unused-parameters": Around(
        IMPORTS + TWO_HEADS, STEP, dots="model = Net()\noptimizer = SGD(model.parameters(), lr=0.1)\n" + DATA
    ),
    "backward": Around(IMPORTS + MODEL + DATA + "criterion = nn.CrossEntropyLoss()\n" + BATCH, STEP, indent=4),
    "prepare": Around(IMPORTS + "def Net():\n    return nn.Linear(8, 3)\n", EPOCH),
    "checkpoint-save": Around(IMPORTS + "epoch = 3\n" + MODEL + DATA + EPOCH),
    "checkpoint-load": Around(IMPORTS + NET, NET_OPTIMIZER + DATA + NET_EPOCH),
    "training-state": Around(
        IMPORTS + MODEL + DATA + "start_epoch = 0\n",
        dots=EPOCH.replace("\n", "\n    ").rstrip(),
        checkpoints=Checkpoints.STATE,
    ),
    "clipping": Around(IMPORTS + MODEL + DATA + BATCH + "    model(x).mean().backward()\n", STEP, indent=4),
    "seeds": Around(IMPORTS + 'args.cuda = torch.cuda.is_available()\n', MODEL + DATA + EPOCH),
    "data-parallel": Around(IMPORTS + NET, NET_OPTIMIZER + DATA + NET_EPOCH),
    "model-methods": Around(IMPORTS + MODEL + DATA + EPOCH + "z = x\n"),
    "scheduler": Around(
        IMPORTS + MODEL + DATA + "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\n",
        dots="model(x).mean().backward()\n    optimizer.step()",
    ),
    "evaluation": Around(
        IMPORTS + MODEL + "train_loader = DataLoader(data, batch_size=32)\n" + DATA
        + EPOCH.replace("in loader", "in train_loader") + "correct = 0\n"
    ),
    "metrics": Around(
        IMPORTS + MODEL + DATA + "total = 0.0\n",
        dots="loss = model(x).mean()\n    loss.backward()\n    optimizer.step()",
    ),
    "printing": Around(IMPORTS + MODEL + DATA + EPOCH + "epoch = 1\n"),
    "files": Around(IMPORTS + MODEL + DATA + EPOCH + 'out, path, grid = "out", "out/x.png", x\n'),
    "settings": Around(IMPORTS, MODEL + DATA + EPOCH),
    "opened-files": Around("import json\n" + IMPORTS + MODEL + DATA + EPOCH + "scores = [1]\n"),
    "trackers": Around(
        "import wandb\nfrom torch.utils.tensorboard import SummaryWriter\n" + IMPORTS + MODEL + DATA + EPOCH
    ),
    "loggers": Around("import logging\n" + IMPORTS, MODEL + DATA + EPOCH),
    "replicas": Around(
        IMPORTS + MODEL + "criterion = nn.CrossEntropyLoss()\nfeatures, adj, labels, train = args.data\n",
        "optimizer.step()\n",
    ),
    "accumulation": Around(IMPORTS + MODEL + DATA + "criterion = nn.CrossEntropyLoss()\n"),
    "cuda-calls": Around(IMPORTS, MODEL + DATA + EPOCH),
    "cuda-demands": Around(IMPORTS, MODEL + DATA + EPOCH),
    "visible-devices": Around(IMPORTS, MODEL + DATA + EPOCH),
    "process-group": Around(
        IMPORTS.replace("\nargs", GROUP + "args", 1), dots=MODEL + DATA + EPOCH.rstrip("\n")
    ),
    "distributed-data-parallel": Around(
        STARTED + "rank = dist.get_rank()\nmodel = nn.Linear(8, 3)\n",
        "optimizer = SGD(model.parameters(), lr=0.1)\n" + DATA + EPOCH,
    ),
    "loose-tensors": Around(
        IMPORTS + "model = nn.Linear(8, 3)\n" + DATA,
        STEP,
        dots=DATA + "for x, y in loader:\n    optimizer.zero_grad()\n    loss = (scale * model(x)).mean()",
    ),
    "gradient-averaging": Around(
        STARTED,
        dots=MODEL
        + DATA
        + EPOCH.replace("    optimizer.step", "    average_gradients(model)\n    optimizer.step").rstrip("\n"),
    ),
    "distributed-sampler": Around(STARTED + "epoch = 1\n", MODEL + EPOCH),
    "world": Around(
        STARTED + MODEL + DATA + "log = []\nloss = torch.zeros(1)\n", dots=EPOCH.rstrip("\n")
    ),
    "rank-guards": Around(STARTED + MODEL + DATA + EPOCH),
    "spawn": Around(
        IMPORTS.replace("\nargs", GROUP + "args", 1)
        + "def worker(rank, world_size, args):\n"
        + '    dist.init_process_group("nccl", rank=rank, world_size=world_size)\n'
        + "".join("    " + line + "\n" for line in (MODEL + DATA + EPOCH).splitlines())
        + "world_size = torch.cuda.device_count()\n"
    ),
    "reductions": Around(STARTED + MODEL + DATA + EPOCH + "total = args.total\n"),
    "horovod": Around(
        IMPORTS.replace("\nargs", GROUP + "args", 1) + "hvd.init()\n" + MODEL + DATA, EPOCH
    ),
    "parallel-leftovers": Around(STARTED + MODEL + DATA + EPOCH),
    "emptied": Around(IMPORTS + MODEL + DATA, EPOCH),
    "leftovers": Around(IMPORTS + MODEL, DATA + EPOCH),
    "autocast": Around(IMPORTS, dots=MODEL + DATA),
    "grad-scaler": Around(IMPORTS, dots=MODEL + DATA),
    "called-scaler": Around(IMPORTS + "from timm.utils import NativeScaler\n", dots=MODEL + DATA),
    "apex": Around(IMPORTS + "from apex import amp\n" + MODEL + DATA, STEP),
}  # fmt: skip


@every_rule
def test_code_is_one_of_a_kind(rule: Rule) -> None:
    assert re.fullmatch(r"AM\d{3}", rule.code)
    assert [other.code for other in all_rules()].count(rule.code) == 1
    assert [other.name for other in all_rules()].count(rule.name) == 1


@every_rule
def test_page_has_its_sections(rule: Rule) -> None:
    page = rule.explain()
    assert page.startswith(f"# {rule.code} {rule.name}\n\n{rule.summary}\n")
    assert re.findall("(?m)^## .*", page) == ["## Why", "## Before", "## After", "## How safe it is"]
    assert rule.summary.endswith(".")
    assert "\n" not in rule.summary
    assert rule.why.strip()
    assert rule.safety.strip()


@every_rule
def test_page_is_true(rule: Rule) -> None:
    around = PAGES[rule.name]
    snippet = "".join(" " * around.indent + line + "\n" for line in rule.before.splitlines())
    script = around.opening + snippet.replace("...", around.dots) + around.closing
    result = migrate(script, checkpoints=around.checkpoints)
    compile(script, rule.name, "exec")
    text = result.text_after()
    before, after = lines(rule.before), lines(rule.after)
    first = script.count("\n", 0, script.index(snippet.splitlines()[0] + "\n")) + 1
    last = first + snippet.replace("...", around.dots).count("\n")
    mine = [f for f in result.findings if f.code == rule.code]
    assert mine, f"the rule says nothing of {script}"
    assert all(f.severity not in ASKING or first <= f.line <= last for f in mine)
    missing = list(after)
    for line in lines(text):
        if missing and line == missing[0]:
            missing.pop(0)
    assert not missing, text
    for line in before:
        if line not in after:
            assert lines(text).count(line) < lines(script).count(line), text


def lines(text: str) -> list[str]:
    """The lines of a text that say something, without their indentation."""
    return [line.strip() for line in text.splitlines() if line.strip() and line.strip() != "..."]
