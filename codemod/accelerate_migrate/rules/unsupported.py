"""AM900: what this version does not migrate is refused, with the place and the reason."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.homes import Unclear
from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.library import foreign
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.values import BOTTOM, Library
from accelerate_migrate.rules.base import Context, Rule

_ASKS_ONLY = frozenset({"torch.distributed.is_available", "torch.distributed.is_initialized"})


def check(module: Module, store: Interpreter) -> None:
    """Raise ``Unclear`` where a module uses machinery that the migration would have to take apart."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        for atom in store.values.get(node.func, BOTTOM):
            if isinstance(atom, Library) and atom.name not in _ASKS_ONLY:
                what = foreign(atom.name)
                if what is not None:
                    raise Unclear(f"this script uses {what}, which this version does not migrate", node)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval"):
            if node.func.id == "exec":
                raise Unclear("this script runs code from elsewhere by exec, which can change any name", node)


def apply(context: Context) -> None:
    """The refusals are made before any rule runs."""


RULE = Rule(
    code="AM900",
    name="unsupported",
    summary="A script that this version cannot migrate safely is left whole, with the reason.",
    why="A migration that trains differently without a word is worse than none. Distributed code made by hand, mixed precision, "
    "trainers whose parts live in objects or other files, and scripts of other frameworks are refused.",
    before="scaler = torch.cuda.amp.GradScaler()",
    after="scaler = torch.cuda.amp.GradScaler()",
    safety="Nothing is changed.",
    apply=apply,
    order=1,
)
