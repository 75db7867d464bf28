"""What the analysis knows about small scripts, in a notation that a test can spell out.

``reveal(x)  # -> batch rows`` in a script says what ``x`` may be there; alternatives are separated by ``|``:

    model Net, optimizer SGD, loader DataLoader     an object, and what made it
    batch rows, output mean, fresh other            a tensor: where it comes from, what it is of a batch
    number count                                    a Python number made from tensors
    device, device cuda, device string              a device
    available, available and args.x                 whether there is an accelerator (and what else is asked)
    (a, b)  [a, b]  [a...]  {'k': a, ...: b}        containers; the dots stand for every (other) element
    function f, class C, torch.nn.Linear, 'text'    names and constants
    ?                                               nothing is known
    nothing                                         no value ever gets there
"""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from accelerate_migrate.analysis.atoms import (
    Atom,
    Availability,
    Batches,
    Bound,
    ClassRef,
    Const,
    DeviceValue,
    FunctionRef,
    Library,
    Loaded,
    Mapping_,
    ModuleRef,
    Number,
    Object,
    Parameters,
    Sequence_,
    StateDict,
    Tensor,
)
from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.modules import Files, Module, Program
from accelerate_migrate.analysis.plan import Plan, plan_training
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.values import BOTTOM, Value

MARK = "# -> "


def interpreted(source: str, folder: Path | None = None) -> tuple[Module, Interpreter]:
    """A script and the finished interpretation of it; ``folder`` holds the files beside it."""
    data = dedent(source).strip("\n").encode()
    path = "train.py" if folder is None else str(folder / "train.py")
    module = Module(path, ast.parse(data), data)
    store = Interpreter(Program([module]))
    store.run()
    return module, store


def training_of(source: str) -> Training:
    """Who trains what in a script."""
    module, store = interpreted(source)
    return Training(Files(store.program.all(), [module]), store)


def plan_of(source: str) -> Plan:
    """Everything that is decided about a script that trains."""
    plan = plan_training(training_of(source))
    assert plan is not None, "nothing trains here"
    return plan


def check_values(*parts: str, folder: Path | None = None) -> None:
    """Every ``reveal(...)`` of the script is what the comment behind it says."""
    source = "\n".join(dedent(part).strip("\n") for part in parts)
    module, store = interpreted(source, folder)
    lines = source.split("\n")
    found, wanted = [], []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reveal":
            text = lines[node.lineno - 1]
            assert MARK in text, f"what is revealed at line {node.lineno}?"
            found.append((node.lineno, described(store.values.get(node.args[0], BOTTOM))))
            wanted.append((node.lineno, text.split(MARK)[1].strip()))
    assert wanted, "nothing is revealed"
    wrong = [
        f"line {line}: {is_}, not {said}" for (line, is_), (_, said) in zip(found, wanted, strict=True) if is_ != said
    ]
    assert not wrong, "\n".join(wrong)


def described(one: Value) -> str:
    """A value in the notation of this module."""
    return " | ".join(sorted(map(_atom, one.atoms), key=lambda text: (text == "?", text))) or "nothing"


def _atom(atom: Atom) -> str:
    if isinstance(atom, Object):
        return f"{atom.site.role.value} {atom.site.made_by.rsplit('.', 1)[-1]}"
    if isinstance(atom, Tensor):
        return f"{atom.origin.value} {atom.reduction.value}"
    if isinstance(atom, Number):
        return f"number {atom.reduction.value}"
    if isinstance(atom, DeviceValue):
        return " ".join(filter(None, ["device", "string" if atom.is_string else "", atom.kind]))
    if isinstance(atom, Availability):
        return ("available" if atom.exact else "available or so") + (f" and {atom.rest}" if atom.rest else "")
    if isinstance(atom, Batches):
        return "counted batches" if atom.counted else "batches"
    if isinstance(atom, Sequence_):
        inner = [*map(described, atom.items), *([described(atom.rest) + "..."] if atom.rest else [])]
        return f"({', '.join(inner)})" if atom.is_tuple else f"[{', '.join(inner)}]"
    if isinstance(atom, Mapping_):
        entries = [f"{key!r}: {described(held)}" for key, held in atom.items]
        return "{" + ", ".join(entries + ([f"...: {described(atom.rest)}"] if atom.rest else [])) + "}"
    if isinstance(atom, (FunctionRef, ClassRef)):
        kind = "class" if isinstance(atom, ClassRef) else "function"
        return f"{kind} {getattr(atom.node, 'name', 'lambda')}"
    if isinstance(atom, Const):
        return repr(atom.value)
    if isinstance(atom, Library):
        return atom.name
    if isinstance(atom, ModuleRef):
        return "module " + Path(atom.module.path).stem
    if isinstance(atom, Bound):
        return f"({described(atom.owner)}).{atom.name}"
    if isinstance(atom, Parameters):
        return "parameters of " + (" and ".join(sorted(s.made_by for s in atom.models)) or "?")
    if isinstance(atom, StateDict):
        return "state of " + " and ".join(sorted(s.made_by for s in atom.sites))
    return "loaded" if isinstance(atom, Loaded) else "?"
