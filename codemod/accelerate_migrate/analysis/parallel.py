"""Finds the code with which a script already trains in parallel, and settles what of it goes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelerate_migrate.analysis import parallel_library as table, processes
from accelerate_migrate.analysis.atoms import Library, Share
from accelerate_migrate.analysis.devices import is_device_flag, is_pure_move
from accelerate_migrate.analysis.library import DISTRIBUTED_DATA_PARALLEL, SPAWNERS
from accelerate_migrate.analysis.parallel_statements import Parallel, is_idle
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear

_FLAG_NAME = re.compile("dist|ddp|parallel|multi|world|spawn|horovod|hvd|mpi|launch|num_proc", re.IGNORECASE)


def find_parallel(training: Training) -> Parallel:
    """The parallel code of a module. Raises ``Unclear`` for kinds that ``prepare`` cannot take over."""
    found = Parallel(training)
    module = training.module
    unsupported: dict[ast.Call, str] = {}
    for node in module.walk():
        if not isinstance(node, ast.Call):
            continue
        _check_by_hand(training, node)
        for atom in training.value(node.func):
            if not isinstance(atom, Library):
                continue
            why = table.unsupported(atom.name)
            if why is not None:
                unsupported.setdefault(node, why)
            if table.is_parallel(atom.name) or atom.name in table.PINNING:
                found.calls[node] = atom.name
    for call, why in unsupported.items():
        if not found.is_by_hand(call) and not found.is_unused(call):
            raise Unclear(f"this script {why}", call)
    if not found.active:
        return found
    found.flags = frozenset(_flags(found))
    found.overrides = {
        ast.unparse(n.value)
        for n in module.walk()
        if (isinstance(n, ast.Assign) and ast.unparse(n.targets[0]).endswith("builtins__.print"))
        or (isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) in ("builtins.print", "__builtin__.print"))
    }
    blocks = [block for block in _blocks(training) if not found.is_unused(block[0])]
    before = -1
    while len(found.gone) + len(found.kept) != before:
        before = len(found.gone) + len(found.kept)
        for block in blocks:
            _settle(found, block)
    return found


def _check_by_hand(training: Training, call: ast.Call) -> None:
    """Raise ``Unclear`` for ways to train in parallel that have no counterpart and no library of their own."""
    last = ast.unparse(call.func).rsplit(".", 1)[-1]
    if last in ("DataParallelCriterion", "DataParallelModel"):
        raise Unclear(f"this script computes its loss on each GPU by itself ({last}): take that out first", call)
    if last == "share_memory" and isinstance(call.func, ast.Attribute):
        names = {ast.unparse(n.func).rsplit(".", 1)[-1] for n in training.module.walk() if isinstance(n, ast.Call)}
        if "Process" in names:
            raise Unclear("processes of this script train one model in shared memory, which has no counterpart", call)


def _flags(parallel: Parallel) -> Iterator[str]:
    """The tests, plain names, of the ``if``s under which a process group is started or used."""
    evidence = table.STARTING | processes.SAMPLERS | DISTRIBUTED_DATA_PARALLEL | SPAWNERS | table.WAITING
    for node in parallel.training.module.walk():
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        test = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = test.operand
        if not isinstance(test, (ast.Name, ast.Attribute)) or not _FLAG_NAME.search(ast.unparse(test)):
            continue
        if is_device_flag(parallel.training, test):
            continue
        if any(parallel.calls.get(part, "") in evidence for part in ast.walk(node) if isinstance(part, ast.Call)):
            yield ast.unparse(test)


def _blocks(training: Training) -> Iterator[list[ast.stmt]]:
    for node in training.module.walk():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _settle(found: Parallel, block: list[ast.stmt]) -> None:
    for statement in block:
        if statement in found.gone or found.is_gone(statement):
            continue
        if found.goes(statement):
            found.gone.add(statement)
            whole = isinstance(statement, ast.For)  # what averages gradients
            inside = [n for n in found.training.module.walk(statement) if isinstance(n, ast.Assign) and not whole]
            lifted = {ast.unparse(one): one for one in reversed(inside) if found.is_lifted(one)}
            if lifted:
                found.lifted[statement] = list(reversed(lifted.values()))
        elif isinstance(statement, ast.If) and statement not in found.kept:
            _choose(found, statement)
        elif isinstance(statement, ast.FunctionDef) and _is_left_unused(found, statement):
            found.gone.add(statement)


def _choose(found: Parallel, node: ast.If) -> None:
    """Keep one branch of an ``if`` on the way to train, where the other has nothing left."""
    for way, other in (("body", "orelse"), ("orelse", "body")):
        if found.is_pure(node.test) and found.only_spawns(getattr(node, way), getattr(node, other)):
            found.kept[node] = other
            return
    share = found.share(node.test)
    if share not in (Share.SPREAD, Share.ALONE):
        return
    spread, alone = ("body", "orelse") if share is Share.SPREAD else ("orelse", "body")
    way, other = getattr(node, spread), getattr(node, alone)
    lifts = any(found.is_lifted(s) for s in ast.walk(node) if isinstance(s, ast.Assign))
    if way and all(found.goes_inside(s, True) for s in way) and not lifts:
        if other:
            found.kept[node] = alone
    elif other and _raises(found, other):
        found.kept[node] = spread


def _is_left_unused(found: Parallel, function: ast.FunctionDef) -> bool:
    """Whether a function or method with parallel code in it was used, and every use of it goes."""
    module = found.training.module
    if not any(node in found.calls for node in module.walk(function)) or function.decorator_list:
        return False
    if isinstance(module.parents[function], ast.ClassDef):
        uses: list[ast.AST] = [n for n in module.walk() if isinstance(n, ast.Attribute) and n.attr == function.name]
    else:
        uses = [n for n in module.walk() if isinstance(n, ast.Name) and n.id == function.name]
    uses = [n for n in uses if function not in module.ancestors(n)]
    return bool(uses) and all(found.is_gone(n) for n in uses)


def _raises(found: Parallel, block: list[ast.stmt]) -> bool:
    """Whether a block only sets up and then raises, on every way through it."""
    *before, last = block
    if not all(is_pure_move(s) or is_idle(s) or found.goes(s) for s in before):
        return False
    if isinstance(last, ast.If):
        return bool(last.orelse) and _raises(found, last.body) and _raises(found, last.orelse)
    return isinstance(last, ast.Raise)
