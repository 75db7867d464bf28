"""Checkpoints that may become folders, and what a program does with them as files: asks for them, copies, removes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from accelerate_migrate.analysis.groups import Group
from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.scopes import argument_for, parameters

_COPIES = frozenset({"shutil.copyfile", "shutil.copy", "shutil.copy2"})
_FILES_ONLY = frozenset({"os.remove", "os.unlink", "os.rename", "os.replace", "shutil.move", "os.symlink", "os.link"})
_METHODS = frozenset({"unlink", "rename", "is_file", "symlink_to"})


class Kept(Exception):
    """Why checkpoints stay files."""

    def __init__(self, message: str, node: ast.AST | None = None) -> None:
        line = getattr(node, "lineno", None)
        super().__init__(message + (f" (line {line})" if line else ""))


@dataclass(eq=False)
class SavedState:
    """A ``torch.save`` of a dict that training resumes from, and every display that fills this dict."""

    call: ast.Call
    statement: ast.Expr
    displays: list[ast.Dict] = field(default_factory=list)
    later: list[ast.Assign] = field(default_factory=list)  # state["scaler"] = scaler.state_dict()
    copies: list[ast.Call] = field(default_factory=list)  # shutil.copyfile(path, best)

    @property
    def path(self) -> ast.expr:
        """Where it is saved to."""
        return self.call.args[1]


@dataclass(eq=False)
class ResumedState:
    """Code that reads such a dict back, by one or several ``torch.load`` of one path into one variable."""

    calls: list[ast.Call]
    reads: list[ast.Assign]  # the statements of these calls
    variable: str
    loads: list[ast.Expr]  # optimizer.load_state_dict(checkpoint["optimizer"]), in order
    extras: bool  # whether it reads anything else
    group: Group | None = None  # the `prepare` behind which the state is to be loaded; None: it runs before these reads
    tests: list[ast.expr] = field(default_factory=list)  # under which, in the scope of this group

    @property
    def path(self) -> ast.expr:
        """Where it is read from."""
        return self.calls[0].args[0]


def check_files(plan: Plan, saves: Sequence[SavedState], resumes: Sequence[ResumedState]) -> list[ast.Call]:
    """The calls of ``os.path.isfile`` that ask for a state; notes in ``saves`` the copies that are made of one.

    Raises ``Kept`` where something is done to files that may be these, and that cannot be done to folders.
    """
    read = {place for resume in resumes for place in _places(plan, resume.path)}
    tests: list[ast.Call] = []
    for node in plan.module.walk():
        if not isinstance(node, ast.Call):
            continue
        names = plan.training.library_names(node.func)
        where = plan.module.function(node)
        if names == {"os.path.isfile"}:
            if len(node.args) == 1 and (where, ast.unparse(node.args[0])) in read:
                tests.append(node)
            elif not _is_of_data(plan, where):
                raise Kept("`os.path.isfile` may ask for it, which is a folder then", node)
        elif names and names <= _COPIES:
            _copied(plan, node, saves)
        elif names & _FILES_ONLY or (
            not names and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and node not in tests
        ):
            raise Kept(f"`{ast.unparse(node.func)}` may be called on it, which is a folder then", node)
    return tests


def _copied(plan: Plan, call: ast.Call, saves: Sequence[SavedState]) -> None:
    where = plan.module.function(call)
    for save in saves:
        mine = where is plan.module.function(save.call) and call.lineno > save.call.lineno
        if mine and len(call.args) == 2 and ast.unparse(call.args[0]) == ast.unparse(save.path):
            if not isinstance(call.func, ast.Attribute) or call.keywords:
                raise Kept("it is copied by a function that takes files only", call)
            save.copies.append(call)
            return
    named = {n.id for save in saves for n in ast.walk(save.path) if isinstance(n, ast.Name)}
    if any(isinstance(n, ast.Name) and n.id in named for argument in call.args for n in ast.walk(argument)):
        raise Kept("it may be copied as a file", call)


def _places(plan: Plan, path: ast.expr) -> set[tuple[ast.AST, str]]:
    """A path's source in each function that says it: where it is used, and where it was handed on from."""
    found: set[tuple[ast.AST, str]] = set()
    queue = [path]
    while queue:
        one = queue.pop()
        function = plan.module.function(one)
        if (function, ast.unparse(one)) in found:
            continue
        found.add((function, ast.unparse(one)))
        if isinstance(one, ast.Name) and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(parameter.arg == one.id for parameter in parameters(function)):
                given = (argument_for(call, function, one.id) for call in plan.store.callers.get(function, ()))
                queue += [argument for argument in given if argument is not None]
    return found


def _is_of_data(plan: Plan, function: ast.AST) -> bool:
    """Whether a function is a method of something that holds data, and knows no checkpoints."""
    owner = plan.module.parents.get(function)
    bases = owner.bases if isinstance(owner, ast.ClassDef) else []
    return any("Dataset" in ast.unparse(base) for base in bases)
