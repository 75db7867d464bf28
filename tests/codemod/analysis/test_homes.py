"""Where the prepared objects live, and the point where all of them exist."""

from __future__ import annotations

import pytest

from accelerate_migrate.analysis.unclear import Unclear
from support.facts import plan_of

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
"""


def groups_of(script: str) -> list[tuple[str, list[str]]]:
    """For each ``prepare``: the last line in front of it, and the names it prepares."""
    plan = plan_of(HEAD + script)
    lines = (HEAD + script).split("\n")
    return [
        (lines[(group.anchor.end_lineno or 0) - 1].strip(), [home.name for home in group.homes])
        for group in plan.groups
    ]


def test_model_then_optimizer_then_loaders_then_schedulers() -> None:
    found = groups_of("""
loader = DataLoader([])
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
for x, y in loader:
    net(x).mean().backward()
    opt.step()
    schedule.step()
""")
    assert found == [("schedule = torch.optim.lr_scheduler.StepLR(opt, 1)", ["net", "opt", "loader", "schedule"])]


def test_bindings_in_branches_are_one_home() -> None:
    found = groups_of("""
if deep:
    net = nn.Sequential()
else:
    net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(x).mean().backward()
opt.step()
""")
    assert found == [("opt = torch.optim.SGD(net.parameters(), lr=0.1)", ["net", "opt"])]


def test_what_a_factory_makes_lives_where_it_is_called() -> None:
    found = groups_of("""
def build():
    inner = nn.Linear(8, 3)
    return inner, torch.optim.SGD(inner.parameters(), lr=0.1)


net, opt = build()
net(x).mean().backward()
opt.step()
""")
    assert found == [("net, opt = build()", ["net", "opt"])]


def test_states_are_loaded_in_front_of_it() -> None:
    found = groups_of("""
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
if resume:
    net.load_state_dict(torch.load("net.pt"))
print("start")
net(x).mean().backward()
opt.step()
""")
    assert found == [('net.load_state_dict(torch.load("net.pt"))', ["net", "opt"])]


def test_it_stands_in_front_of_the_first_use() -> None:
    found = groups_of("""
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(x).mean().backward()
opt.step()
net.load_state_dict(torch.load("net.pt"))
""")
    assert found == [("opt = torch.optim.SGD(net.parameters(), lr=0.1)", ["net", "opt"])]


def test_objects_of_a_loop_have_a_prepare_of_their_own() -> None:
    found = groups_of("""
net = nn.Linear(8, 3)
for rate in (0.1, 0.01):
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    net(x).mean().backward()
    opt.step()
""")
    assert found == [
        ("net = nn.Linear(8, 3)", ["net"]),
        ("opt = torch.optim.SGD(net.parameters(), lr=rate)", ["opt"]),
    ]


REFUSED = {
    "several names": (
        (
            "net = nn.Linear(8, 3)\nalias = net\nopt = torch.optim.SGD(alias.parameters(), lr=0.1)\n"
            "(net(x).mean() + alias(x).mean()).backward()\nopt.step()\n"
        ),
        "several names",
    ),
    "a container": (
        (
            "nets = [nn.Linear(8, 3) for i in range(3)]\nopt = torch.optim.SGD(nets[0].parameters(), lr=0.1)\n"
            "nets[0](x).mean().backward()\nopt.step()\n"
        ),
        "not held by a plain variable",
    ),
    "something else": (
        (
            "net = nn.Linear(8, 3) if deep else 3\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "net(x).mean().backward()\nopt.step()\n"
        ),
        "may hold something other",
    ),
    "inside and outside a loop": (
        (
            "net = nn.Linear(8, 3)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor i in range(3):\n"
            "    net(x).mean().backward()\n    opt.step()\n    opt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        ),
        "both inside and outside a loop",
    ),
    "no optimizer": ("net = nn.Linear(8, 3)\nnet(x).mean().backward()\n", "no optimizer that is known"),
    "no model": (
        (
            "from elsewhere import weights\nopt = torch.optim.SGD(weights, lr=0.1)\n"
            "weights[0].sum().backward()\nopt.step()\n"
        ),
        "the model whose parameters the optimizer owns",
    ),
}


@pytest.mark.parametrize(("script", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_one_home_is_unclear(script: str, words: str) -> None:
    with pytest.raises(Unclear, match=words):
        plan_of(HEAD + script)


def test_an_optimizer_may_own_several_models_by_lists_added_up() -> None:
    found = groups_of("""
encoder, decoder, loader = nn.Linear(8, 3), nn.Linear(3, 8), DataLoader([])
opt = torch.optim.SGD(list(encoder.parameters()) + list(decoder.parameters()), lr=0.1)
for x in loader:
    decoder(encoder(x)).mean().backward()
    opt.step()
""")
    assert [names for _, names in found] == [["encoder", "decoder", "opt", "loader"]]
