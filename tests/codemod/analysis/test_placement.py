"""Where the accelerator is made, and which functions it reaches."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.plan import Plan
from support.facts import plan_of

HEAD = """\
import torch
from torch import nn
"""
MAIN = """

def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(8, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def scope_of(plan: Plan) -> str:
    return getattr(plan.placement.creations[0].scope, "name", "module")


def function(plan: Plan, name: str) -> ast.FunctionDef:
    return next(n for n in plan.module.walk() if isinstance(n, ast.FunctionDef) and n.name == name)


def parameters_of(plan: Plan) -> dict[str, str]:
    """The functions that take the accelerator in the place of a device, and the parameter's name."""
    return {getattr(f, "name", "?"): name for f, name in plan.placement.device_parameters.items()}


def test_at_module_level_where_everything_is() -> None:
    plan = plan_of(
        HEAD
        + "net = nn.Linear(8, 3)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nnet(x).mean().backward()\nopt.step()"
    )
    assert scope_of(plan) == "module"


def test_in_main_where_the_objects_are_made() -> None:
    plan = plan_of(HEAD + MAIN + "    net(x).mean().backward()\n    opt.step()\n\n\nmain()\n")
    assert scope_of(plan) == "main"
    assert plan.placement.creations[0].definition is not None


def test_a_device_at_module_level_is_where_it_is_made() -> None:
    plan = plan_of(
        HEAD
        + 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        + MAIN.replace("    device", "    other")
        + "    net(x).mean().backward()\n    opt.step()\n\n\nmain()\n"
    )
    assert scope_of(plan) == "module"


STEP = """

def step(net, opt, device{more}):
    net(torch.ones(8, device=device)).mean().backward()
    opt.step()
"""


def test_a_parameter_that_is_always_the_device_becomes_the_accelerator() -> None:
    plan = plan_of(HEAD + STEP.format(more="") + MAIN + "    step(net, opt, device)\n\n\nmain()\n")
    assert parameters_of(plan) == {"step": "device"}


def test_a_parameter_with_a_default_that_some_call_relies_on_does_not() -> None:
    step = STEP.format(more='="cuda"')
    plan = plan_of(HEAD + step + MAIN + "    step(net, opt, device)\n    step(net, opt)\n\n\nmain()\n")
    assert parameters_of(plan) == {}


def test_a_parameter_that_may_be_something_else_does_not() -> None:
    plan = plan_of(
        HEAD + STEP.format(more="") + MAIN + "    step(net, opt, device)\n    step(net, opt, None)\n\n\nmain()\n"
    )
    assert parameters_of(plan) == {}


def test_functions_reach_it_through_their_callers() -> None:
    plan = plan_of(
        HEAD
        + "\n\ndef inner():\n    pass\n\n\ndef middle():\n    inner()\n\n\ndef passed():\n    pass\n"
        + "\n\ndef unused():\n    pass\n"
        + "\n\n@decorated\ndef wrapped():\n    pass\n\n\nclass Thing:\n    def method(self):\n        pass\n"
        + MAIN
        + "    middle()\n    hooks = [passed]\n    passed()\n    wrapped()\n    Thing().method()\n"
        + "    net(x).mean().backward()\n    opt.step()\n\n\nmain()\n"
    )
    reached = {name for name in ("inner", "middle", "passed", "unused", "wrapped", "method", "main")
               if plan.placement.reaches(function(plan, name))}  # fmt: skip
    assert reached == {"inner", "middle", "main"}


def test_using_it_in_a_function_needs_it_in_those_between() -> None:
    plan = plan_of(
        HEAD
        + "\n\ndef inner():\n    pass\n\n\ndef middle():\n    inner()\n"
        + MAIN
        + "    middle()\n    net(x).mean().backward()\n    opt.step()\n\n\nmain()\n"
    )
    plan.placement.use(function(plan, "inner").body[0])
    assert {getattr(f, "name", "?") for f in plan.placement.needed} == {"inner", "middle"}


def test_it_is_not_there_before_its_arguments_are() -> None:
    script = (
        HEAD
        + """
from settings import parse
print("start")
args = parse()
device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(x).mean().backward()
opt.step()
"""
    )
    plan = plan_of(script)
    calls = {ast.unparse(n): n for n in plan.module.walk() if isinstance(n, ast.Call)}
    assert plan.placement.creations[0].cpu == "not args.cuda"
    assert not plan.placement.available(calls["print('start')"])
    assert not plan.placement.available(calls["parse()"])
    assert plan.placement.available(calls["nn.Linear(8, 3)"])


def test_a_choice_in_one_branch_is_not_where_it_is_made() -> None:
    script = (
        HEAD
        + """
device = "cpu"
if x.sum() > 0:
    device = "cuda"
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(x).mean().backward()
opt.step()
"""
    )
    plan = plan_of(script)
    assert scope_of(plan) == "module"
    assert plan.placement.creations[0].definition is None
