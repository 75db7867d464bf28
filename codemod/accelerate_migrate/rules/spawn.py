"""AM460: the launcher starts the processes, each of which calls what was spawned."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import FunctionRef
from accelerate_migrate.analysis.library import SPAWNERS
from accelerate_migrate.analysis.placement import escapes
from accelerate_migrate.analysis.processes import NUMBERS
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import RemoveArgument, RemoveParameter
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, own_statement


def apply(context: Context) -> None:
    """Call what was spawned, without the number of the process; drop ranks that are passed where none is known."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for call, name in parallel.calls.items():
        if name in SPAWNERS:
            if context.is_gone(call):
                context.migrated(call, f"{short(call)}: the launcher starts the processes")
            else:
                _spawn(context, call)
    for function in context.plan.module.walk():
        if isinstance(function, ast.FunctionDef) and not context.is_gone(function):
            for parameter in _passed_in_vain(context, function):
                _drop(context, function, parameter)


@dataclass(frozen=True)
class _Spawned:
    """The function that a call spawns, and the arguments behind the number of the process."""

    function: ast.FunctionDef
    name: ast.expr
    arguments: list[ast.expr]


def _read(context: Context, call: ast.Call) -> _Spawned:
    named = keyword(call, "fn")
    worker = named.value if named is not None else call.args[0] if call.args else None
    given = keyword(call, "args")
    passed = given.value if given is not None else call.args[1] if len(call.args) > 1 else None
    found = context.plan.value(worker).of(FunctionRef) if worker is not None else []
    function = found[0].node if len(found) == 1 else None
    if not isinstance(function, ast.FunctionDef) or not context.plan.module.is_active(function):
        raise Unclear("what is spawned here is no function of this file", call)
    arguments: list[ast.expr] = []
    if isinstance(passed, (ast.Tuple, ast.List)):
        arguments = list(passed.elts)
    if (passed is not None and not isinstance(passed, (ast.Tuple, ast.List))) or any(
        isinstance(a, ast.Starred) for a in arguments
    ):
        raise Unclear("what is passed to the spawned function is not written out here", call)
    assert worker is not None
    return _Spawned(function, worker, arguments)


def _spawn(context: Context, call: ast.Call) -> None:
    if own_statement(context.plan, call) is None:
        raise Unclear("the spawned processes are joined by hand", call)
    spawned = _read(context, call)
    function = spawned.function
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if context.plan.store.callers.get(function) or not parameters:
        raise Unclear("the spawned function is called in other ways as well", call)
    context.edit(RemoveParameter(function, parameters[0]))
    kept = []
    for parameter, argument in zip(parameters[1:], spawned.arguments, strict=False):
        if _speaks_of_processes(context, function, parameter):
            context.edit(RemoveParameter(function, parameter))
        else:
            kept.append(argument)
    holes = ", ".join(f"{{{i}}}" for i in range(len(kept)))
    context.replace(call, f"{ast.unparse(spawned.name)}({holes})", *kept)
    context.migrated(call, f"the launcher starts the processes; each calls `{ast.unparse(spawned.name)}`")


def _speaks_of_processes(context: Context, function: ast.FunctionDef, parameter: str) -> bool:
    """Whether a parameter only ever is a rank or a number of processes, for which the accelerator is asked instead."""
    parallel = context.plan.parallel
    loads = [n for n in context.plan.module.walk(function) if isinstance(n, ast.Name) and n.id == parameter]
    return bool(loads) and all(parallel.share(n) in NUMBERS for n in loads)


def _passed_in_vain(context: Context, function: ast.FunctionDef) -> list[str]:
    """The parameters for a rank or world size that are passed from where the accelerator is not."""
    calls = context.plan.store.callers.get(function, set())
    if not calls or isinstance(context.plan.module.parents[function], ast.ClassDef):
        return []
    spawning = {n for call, name in context.plan.parallel.calls.items() if name in SPAWNERS for n in ast.walk(call)}
    if escapes(context.plan.training, function, besides=spawning):
        return []
    if all(context.has_accelerator(call) for call in calls) or not context.has_accelerator(function.body[0]):
        return []
    named = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return [
        name
        for index, name in enumerate(named)
        if all(_is_written_out(call, index, name) for call in calls) and _speaks_of_processes(context, function, name)
    ]


def _is_written_out(call: ast.Call, index: int, name: str) -> bool:
    """Whether a call names what a parameter gets, by its place or its name, or leaves it out."""
    if any(isinstance(argument, ast.Starred) for argument in call.args[: index + 1]):
        return False
    return index < len(call.args) or keyword(call, name) is not None or all(k.arg for k in call.keywords)


def _drop(context: Context, function: ast.FunctionDef, parameter: str) -> None:
    """Remove a parameter and its arguments."""
    index = [a.arg for a in (*function.args.posonlyargs, *function.args.args)].index(parameter)
    context.edit(RemoveParameter(function, parameter))
    for call in context.plan.store.callers[function]:
        named = keyword(call, parameter)
        if named is not None:
            context.edit(RemoveArgument(call, named))
            context.gone.add(named)
        elif index < len(call.args):
            context.edit(RemoveArgument(call, call.args[index]))
            context.gone.add(call.args[index])
    context.migrated(function, f"`{parameter}` is asked of the accelerator")


RULE = Rule(
    code="AM460",
    name="spawn",
    summary="`mp.spawn(worker, …)` becomes a plain call: the launcher starts the processes.",
    why="Under a launcher every process runs the whole script. The number of the process, which spawn passed in front, "
    "is asked of the accelerator.",
    before="mp.spawn(worker, nprocs=world_size, args=(world_size, args))",
    after="worker(args)",
    safety="Exact on one process. Where the script has a plain call for one device as well, that one stays.",
    apply=apply,
    order=13,
    essential=True,
)
