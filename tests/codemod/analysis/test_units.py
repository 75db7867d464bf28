"""Which files train together."""

from __future__ import annotations

import ast
import os

from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.modules import Files, Module, Program
from accelerate_migrate.analysis.units import Unit, find_units, unit_of

STEP = "def step(loss):\n    loss.backward()\n"
RUN = "from engine import step\nimport torch\nstep(torch.ones(1, requires_grad=True))\n"


def units(sources: dict[str, str]) -> tuple[list[Unit], dict[str, Module]]:
    """The units of these files, and the files by name."""
    modules = {name: Module(name, ast.parse(text), text.encode()) for name, text in sources.items()}
    store = Interpreter(Program(modules.values()))
    store.run()
    return find_units(Files(store.program.all(), list(modules.values())), store), modules


def names(unit: Unit) -> tuple[list[str], list[str]]:
    """The files that train and the helpers of a unit."""
    listed = ([os.path.basename(m.path) for m in group] for group in (unit.modules, unit.helpers))
    trained, helping = (sorted(each) for each in listed)
    return trained, helping


def test_scripts_that_share_an_engine_are_one_unit() -> None:
    found, _ = units({"engine.py": STEP, "train.py": RUN, "tune.py": RUN})
    assert [names(unit) for unit in found] == [(["engine.py", "train.py", "tune.py"], [])]


def test_scripts_apart_are_units_apart() -> None:
    alone = "import torch\ntorch.ones(1, requires_grad=True).backward()\n"
    found, _ = units({"one.py": alone, "two.py": alone})
    assert [names(unit) for unit in found] == [(["one.py"], []), (["two.py"], [])]


def test_helpers_are_called_and_do_not_train() -> None:
    told = "from helper import tell\nimport torch\ntorch.ones(1, requires_grad=True).backward()\ntell(1)\n"
    found, modules = units({"helper.py": "def tell(x):\n    print(x)\n", "train.py": told, "other.py": told})
    assert [names(unit) for unit in found] == [(["train.py"], ["helper.py"]), (["other.py"], ["helper.py"])]
    assert unit_of(found, modules["train.py"]) == found[:1]
    assert unit_of(found, modules["helper.py"]) == found
    assert unit_of(found, None) == found
