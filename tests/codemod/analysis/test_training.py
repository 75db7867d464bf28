"""Which loops draw from loaders, and which of them train."""

from __future__ import annotations

import pytest

from support.facts import training_of

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader_a, loader_b = DataLoader([]), DataLoader([])
"""
LOOPS = {
    "a loader": ("for x in loader_a:\n    net(x).mean().backward()\n", [(1, True)]),
    "loaders in step": ("for x, y in zip(loader_a, loader_b):\n    net(x).mean().backward()\n", [(2, True)]),
    "counted": ("for i, x in enumerate(loader_a):\n    net(x)\n", [(1, False)]),
    "rows of a batch": (
        'for batch in loader_a:\n    for x, y in zip(batch["a"], batch["b"]):\n        net(x).mean().backward()\n',
        [(1, True)],
    ),
    "parts of a batch": ("for batch in loader_a:\n    for part in batch:\n        net(part)\n", [(1, False)]),
    "numbers": ("for i in range(len(loader_a)):\n    pass\n", []),
}


@pytest.mark.parametrize(("script", "loops"), LOOPS.values(), ids=LOOPS)
def test_loops_over_loaders(script: str, loops: list[tuple[int, bool]]) -> None:
    training = training_of(HEAD + script)
    assert [(len(loop.loaders), loop.trains) for loop in training.loops] == loops


DRAWN = {
    "by a for": "for x in loader_a:\n    net(x).mean().backward()\n",
    "by hand": "batches = iter(loader_a)\nwhile True:\n    x = next(batches)\n    net(x).mean().backward()\n",
    "once": "net(next(iter(loader_a))).mean().backward()\n",
}


@pytest.mark.parametrize("script", DRAWN.values(), ids=DRAWN)
def test_where_the_data_of_a_loss_comes_from(script: str) -> None:
    training = training_of(HEAD + script)
    (call,) = training.backwards
    assert len(training.drawn_for(call)) == 1


def test_a_loss_on_tensors_of_ones_own_is_drawn_from_no_loader() -> None:
    training = training_of(HEAD + "net(torch.ones(8)).mean().backward()\n")
    (call,) = training.backwards
    assert not training.drawn_for(call)
