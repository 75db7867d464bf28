"""Which loops measure a model, and what of them is gathered."""

from __future__ import annotations

import pytest

from support.facts import plan_of

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader, test_loader = DataLoader([]), DataLoader([])
for x, y in loader:
    net(x).mean().backward()
    opt.step()
total = seen = 0
"""


def gathered(loop: str) -> tuple[str, ...] | str:
    """The names that a loop gathers, or why its loader stays whole."""
    plan = plan_of(HEAD + loop)
    if plan.evaluations.gathers:
        (gather,) = plan.evaluations.gathers
        return gather.names
    (reason,) = plan.evaluations.whole.values()
    return reason


GATHERED = {
    "out and y": "for x, y in test_loader:\n    out = net(x)\n    total += (out.argmax(1) == y).sum().item()\n",
    "in no_grad": "with torch.no_grad():\n    for x, y in test_loader:\n        out = net(x)\n"
    "        total += F.cross_entropy(out, y, reduction='sum').item()\n",
    "by name": "for x, y in test_loader:\n    out = net(x).argmax(1)\n    total += (out == y).sum().item()\n",
    "as lists": "outs = []\nfor x, y in test_loader:\n    out = net(x)\n    outs.append((out, y))\n",
}


@pytest.mark.parametrize("loop", GATHERED.values(), ids=GATHERED)
def test_rows_that_are_added_up_are_gathered(loop: str) -> None:
    assert gathered(loop) == ("out", "y")


def test_a_batch_that_only_tells_its_size_is_not_gathered() -> None:
    loop = "for x, y in test_loader:\n    out = net(x)\n    total += out.sum().item()\n    seen += len(y)\n"
    assert gathered(loop) == ("out",)


def test_a_model_call_inside_of_a_sum_is_lifted_out() -> None:
    loop = "for x, y in test_loader:\n    total += F.cross_entropy(net(x), y, reduction='sum').item()\n"
    assert gathered(loop) == ("output", "y")
    loop = "for x, y in test_loader:\n    output = F.cross_entropy(net(x), y, reduction='sum')\n    total += output\n"
    assert gathered(loop) == ("outputs", "y")


def test_a_setting_may_end_a_loop_early() -> None:
    loop = (
        "for x, y in test_loader:\n    out = net(x)\n    total += out.sum().item()\n    if args.quick:\n        break\n"
    )
    assert gathered(loop) == ("out",)


def test_a_confusion_matrix_adds_up() -> None:
    loop = (
        "import numpy as np\nfrom sklearn.metrics import confusion_matrix\n"
        "def counts(a, b):\n    return np.bincount(3 * a.astype(int) + b, minlength=9).reshape(3, 3)\n"
        "for x, y in test_loader:\n    out = net(x)\n    best, y = out.argmax(1).cpu().numpy(), y.cpu().numpy()\n"
        "    total += confusion_matrix(y, best)\n    seen += counts(y, best)\nprint(total, seen)\n"
    )
    assert gathered(loop) == ("out", "y")


def test_a_function_that_the_loop_calls_is_looked_into() -> None:
    loop = (
        "def correct(out, y):\n    return (out.argmax(1) == y).sum().item()\n"
        "for x, y in test_loader:\n    out = net(x)\n    total += correct(out, y)\n"
    )
    assert gathered(loop) == ("out", "y")


WHOLE = {
    "a mean over batches": (
        (
            "for x, y in test_loader:\n    out = net(x)\n    total += F.cross_entropy(out, y).item()\n"
            "total /= len(test_loader)\n"
        ),
        "averages over batches",
    ),
    "a mean over samples": (
        (
            "for x, y in test_loader:\n    out = net(x)\n    total += F.cross_entropy(out, y).item()\n"
            "total /= len(test_loader.dataset)\n"
        ),
        "adds up means of batches",
    ),
    "an early end": (
        "for i, (x, y) in enumerate(test_loader):\n    if i > 9:\n        break\n    total += net(x).sum().item()\n",
        "leaves batches out",
    ),
    "a batch left out": (
        "for x, y in test_loader:\n    if len(x) < 8:\n        continue\n    total += net(x).sum().item()\n",
        "leaves batches out",
    ),
    "no model": ("for x, y in test_loader:\n    total += x.sum().item()\n", "it calls no model that is known"),
    "nothing computed": ("for x, y in test_loader:\n    out = net(x)\n", "nothing is computed from its outputs"),
    "one statement": (
        "for x, y in test_loader:\n    total += (net(x) - net(-x)).sum().item()\n",
        "its last model call is not a plain assignment",
    ),
    "files": ("for x, y in test_loader:\n    out = net(x)\n    torch.save(out, 'o')\n", "writes or shows something"),
    "positions": ("t = {}\nfor x, y in test_loader:\n    out = net(x)\n    t[total] = out\n", "positions of its own"),
    "a batch size": (
        "for x, y in test_loader:\n    out = net(x)\n    total += out.view(batch_size, -1).sum().item()\n",
        "reshapes its outputs to a batch size",
    ),
    "used behind": (
        "for x, y in test_loader:\n    out = net(x)\n    total += out.sum().item()\nprint(out)\n",
        "`out` of its last batch is used again",
    ),
    "a loss of one number": (
        (
            "def measure(x):\n    return net(x).mean()\n"
            "for x, y in test_loader:\n    out = measure(x)\n    total += out.item()\n"
        ),
        "not clear that `out` has one row a sample",
    ),
    "deletion": ("for x, y in test_loader:\n    out = net(x)\n    del out\n", "more than add results up"),
}


@pytest.mark.parametrize(("loop", "words"), WHOLE.values(), ids=WHOLE)
def test_what_cannot_be_gathered_keeps_its_loader_whole(loop: str, words: str) -> None:
    reason = gathered(loop)
    assert isinstance(reason, str)
    assert words in reason


def test_a_loop_that_trains_is_no_evaluation() -> None:
    plan = plan_of(HEAD)
    assert (plan.evaluations.gathers, plan.evaluations.whole, plan.evaluations.doubtful) == ([], {}, [])


def test_a_loader_that_is_trained_on_is_never_whole() -> None:
    plan = plan_of(HEAD + "for x, y in loader:\n    out = net(x)\n    torch.save(out, 'o')\n")
    assert plan.evaluations.whole == {}
    assert len(plan.evaluations.doubtful) == 1
