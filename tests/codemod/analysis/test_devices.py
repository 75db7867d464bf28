"""How a script chooses its device, and what of the choice is kept as ``cpu=``."""

from __future__ import annotations

import pytest

from support.facts import check_values, plan_of

TRAINING = """
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(8)).mean().backward()
optimizer.step()
"""


def cpu_of(choice: str) -> str | None:
    """The ``cpu=`` that keeps this choice of a device."""
    plan = plan_of("import torch\nfrom torch import nn\nfrom settings import args\n" + choice + TRAINING)
    return plan.placement.creations[0].cpu


@pytest.mark.parametrize(
    ("choice", "cpu"),
    [
        ('device = "cuda" if torch.cuda.is_available() else "cpu"', None),
        ('device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")', None),
        ('device = "cpu" if not torch.cuda.is_available() else "cuda"', None),
        ('device = "cuda" if torch.cuda.is_available() and args.cuda else "cpu"', "not args.cuda"),
        ('device = "cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu"', "args.no_cuda"),
        ('device = "cuda" if args.gpu >= 0 else "cpu"', "args.gpu < 0"),
        ('device = "cuda" if args.gpu != -1 and torch.cuda.is_available() else "cpu"', "args.gpu == -1"),
        ('device = "cpu" if args.cpu else "cuda"', "args.cpu"),
        ('device = torch.device("cuda")', None),
        ('device = torch.device("cpu")', "True"),
        ("device = torch.device(args.device)", 'args.device == "cpu"'),
    ],
)
def test_a_choice_in_one_line(choice: str, cpu: str | None) -> None:
    assert cpu_of(choice) == cpu


@pytest.mark.parametrize(
    ("test", "cpu"),
    [
        ("torch.cuda.is_available()", None),
        ("args.cuda", "not args.cuda"),
        ("args.cuda and torch.cuda.is_available()", "not args.cuda"),
    ],
)
def test_a_choice_in_branches(test: str, cpu: str | None) -> None:
    assert cpu_of(f'if {test}:\n    device = "cuda"\nelse:\n    device = "cpu"') == cpu


BRANCHES = """
device = "cpu"
if {test}:
    device = "cuda"
    print("using the GPU")
"""


def test_a_choice_in_one_branch_is_made_for_all() -> None:
    assert cpu_of(BRANCHES.format(test="torch.cuda.is_available()")) is None
    assert cpu_of(BRANCHES.format(test="args.cuda")) == "not args.cuda"
    assert cpu_of('if args.slow:\n    device = "cpu"\nelse:\n    device = "cuda"\n    print(device)') == "args.slow"


def test_the_best_of_several_kinds() -> None:
    choice = """
if torch.cuda.is_available():
    device = "cuda"
elif torch.backends.mps.is_available():
    device = "mps"
else:
    device = "cpu"
"""
    assert cpu_of(choice) is None


def test_a_flag_that_guards_moves_is_a_choice() -> None:
    assert cpu_of("w = torch.ones(3)\nif args.cuda:\n    w = w.cuda()") == "not args.cuda"


def definitions_of(lines: str) -> list[list[str]]:
    plan = plan_of("import torch\nfrom torch import nn\n" + lines + TRAINING)
    return [sorted(definition.targets) for definition in plan.definitions]


@pytest.mark.parametrize(
    "line",
    [
        'device = "cpu"',
        'device = "/dev/sda1"',
        'name = "cuda"',
        'kinds = ["cuda", "cpu"]',
    ],
    ids=["the CPU alone", "another device", "a name", "a list"],
)
def test_what_is_no_choice_of_one_statement(line: str) -> None:
    assert definitions_of(line) == []


def test_one_choice_may_bind_several_names() -> None:
    assert definitions_of('device = dev = "cuda" if torch.cuda.is_available() else "cpu"') == [["dev", "device"]]


def test_values_of_devices_and_flags() -> None:
    check_values("""
        import torch
        from settings import args

        reveal(torch.device("cuda:1"))  # -> device cuda
        reveal(torch.device(args.device))  # -> device
        reveal(f"cuda:{args.gpu}")  # -> device string cuda
        use = torch.cuda.is_available() and args.cuda
        reveal(use)  # -> available and args.cuda
        reveal(torch.cuda.is_available() or args.cuda)  # -> available or so
        reveal(True if torch.cuda.is_available() else False)  # -> available
        reveal(args.cuda)  # -> settings.args.cuda
    """)


def test_a_flag_of_the_command_line_that_holds_a_device() -> None:
    check_values("""
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cuda")
        parser.add_argument("--name", default="net")
        args = parser.parse_args()
        reveal(args.device)  # -> device string
        reveal(args.name)  # -> (?).name
    """)


def test_where_a_checkpoint_is_loaded_to_is_no_choice_of_a_device() -> None:
    script = """import torch
from torch import nn
from settings import args
if args.gpu is None:
    state = torch.load("net.pt")
else:
    place = "cuda:{}".format(args.gpu)
    state = torch.load("net.pt", map_location=place)
"""
    assert plan_of(script + TRAINING).placement.creations[0].cpu is None


def test_a_flag_that_only_some_moves_ask_for_is_no_choice_of_the_cpu() -> None:
    some = "if args.gpu:\n    net = net.cuda()\nelse:\n    net = net.cuda()\n"
    script = "import torch\nfrom torch import nn\nfrom settings import args\nnet = nn.Linear(8, 3)\n" + some
    trained = "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nnet(x).mean().backward()\nopt.step()\n"
    assert plan_of(script + trained).placement.creations[0].cpu is None
