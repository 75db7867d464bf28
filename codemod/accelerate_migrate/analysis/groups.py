"""The ``prepare`` calls: which objects go together, and the statement behind which all of them exist."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain

from accelerate_migrate.analysis.atoms import Batches, Object, Role, Site
from accelerate_migrate.analysis.homes import Home
from accelerate_migrate.analysis.modules import DEFINITIONS, LOOPS, Files
from accelerate_migrate.analysis.peeks import is_peek
from accelerate_migrate.analysis.scopes import argument_for, assigned_targets, parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import flatten

_SET_UP = (Role.SCHEDULER, Role.LOADER)


@dataclass(frozen=True, eq=False)
class Group:
    """Homes that one ``prepare`` call serves, to be put after ``anchor``."""

    homes: tuple[Home, ...]
    anchor: ast.stmt
    scope: ast.AST

    @property
    def made(self) -> ast.Call | None:
        """The call that makes the one loader, where it goes through ``prepare`` on the spot."""
        return self.homes[0].made

    @property
    def end(self) -> int:
        """The line behind which its objects are prepared."""
        return (self.made or self.anchor).end_lineno or 0

    @property
    def sites(self) -> frozenset[Site]:
        """The objects that it prepares."""
        return frozenset(site for home in self.homes for site in home.sites)


def group_homes(training: Training, homes: list[Home]) -> list[Group]:
    """The ``prepare`` calls to make: one for all homes of a scope, apart where some are made anew in a loop.

    Each stands behind what still belongs to setting up: schedulers made from the bare optimizer, loaded states.
    """
    module = training.module
    apart: dict[tuple[ast.AST, ast.AST | None, ast.AST | None, int], list[Home]] = defaultdict(list)
    for home in homes:
        if home.made is not None:
            continue
        apart[home.scope, _loop_around(module, home), _branch_around(module, home, homes), home.phase].append(home)
    groups = [Group((home,), home.bindings[0], home.scope) for home in homes if home.made is not None]
    for (scope, *_), members in apart.items():
        anchor = _anchor(module, members)
        if _trains(training, anchor, members):
            anchor = _last_binding(members)
        anchor = _where_certain(module, members, anchor)
        anchor = _behind_setup(training, members, anchor)
        _check_unused(training, scope, members, anchor)
        groups.append(Group(tuple(members), anchor, scope))
    return groups


def _branch_around(module: Files, home: Home, homes: list[Home]) -> ast.If | None:
    """The ``if`` without which a script has no optimizer (it then steps by hand): the optimizer is prepared there."""
    if home.role is not Role.OPTIMIZER or len(home.bindings) != 1:
        return None
    around = module.parents[home.bindings[0]]
    others = [statement for other in homes if other is not home for statement in other.bindings]
    if not isinstance(around, ast.If) or any(around in module.ancestors(statement) for statement in others):
        return None  # the whole script may stand under ``if __name__ == "__main__":``
    return around if not _binds(around, home.name) else None


def _last_binding(homes: list[Home]) -> ast.stmt:
    """The last statement that binds one of the homes, in its own block."""
    return max((s for home in homes for s in home.bindings), key=lambda s: s.lineno)


def _where_certain(module: Files, homes: list[Home], anchor: ast.stmt) -> ast.stmt:
    """An anchor behind which every object exists: maybe in the branch that makes the rest, ``if not inference: …``.

    Without the rest, such as the optimizer, nothing can train. Raises ``Unclear`` where there is no such place.
    """
    try:
        _check_certain(module, homes, anchor)
    except Unclear as unclear:
        inner = anchor
        while isinstance(inner, ast.If):
            inside = set(module.walk(inner))
            bound = [s for home in homes for s in home.bindings if s in inside]
            outside = [s for home in homes for s in home.bindings if s not in inside]
            in_body = [s for s in inner.body if any(b is s or s in module.ancestors(b) for b in bound)]
            if not in_body or any(s.lineno > inner.lineno for s in outside):
                raise unclear
            inner = in_body[-1]
            try:
                _check_certain(module, homes, inner)
            except Unclear:
                continue
            return inner
        raise
    return anchor


def _check_certain(module: Files, homes: list[Home], anchor: ast.stmt) -> None:
    """Raise ``Unclear`` where an object may not exist behind ``anchor``: it is made under a condition only."""
    before: list[ast.stmt] = []
    current: ast.AST = anchor
    while isinstance(current, ast.stmt):
        block = module.block(current)
        before += block[: block.index(current) + (current is anchor)]
        parent = module.parents[current]
        if isinstance(parent, DEFINITIONS):
            break
        current = parent
    for home in homes:
        if not any(_binds(statement, home.name) or _needs(statement, home.name) for statement in before):
            told = f"`{home.name}` is made under a condition only, so it cannot be prepared for sure"
            raise Unclear(told, home.bindings[0], about=home.sites)


def _needs(statement: ast.stmt, name: str) -> bool:
    """Whether a statement calls a method of what a place holds, so that the script fails where it holds nothing."""
    called = statement.value if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) else None
    return (
        isinstance(called, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and ast.unparse(called.func.value) == name
    )


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds a place on every path through it."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        bound = {ast.unparse(n) for t in assigned_targets(statement) for n in ast.walk(t) if isinstance(n, ast.expr)}
        return name in bound or name.partition("[")[0] in bound
    if isinstance(statement, ast.If):
        return _block_binds(statement.body, name) and _block_binds(statement.orelse, name)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return _block_binds(statement.body, name)
    if isinstance(statement, ast.Try):
        return _block_binds([*statement.body, *statement.orelse], name) or _block_binds(statement.finalbody, name)
    return False


def _block_binds(block: list[ast.stmt], name: str) -> bool:
    leaves = bool(block) and isinstance(block[-1], (ast.Raise, ast.Return, ast.Continue, ast.Break))
    exits = bool(block) and isinstance(block[-1], ast.Expr) and "exit" in ast.unparse(block[-1].value)
    return leaves or exits or any(_binds(statement, name) for statement in block)


def _trains(training: Training, statement: ast.stmt, homes: list[Home]) -> bool:
    """Whether running a statement trains, or draws from one of the loaders."""
    sites = {site for home in homes for site in home.sites}
    for node in training.reached([statement]):
        if isinstance(node, ast.Call) and node in training.backwards:
            return True
        if isinstance(node, (ast.For, ast.AsyncFor)) and training.loaders_of(training.value(node.iter)) & sites:
            return True
    return False


def _check_unused(training: Training, scope: ast.AST, homes: list[Home], anchor: ast.stmt) -> None:
    """Raise ``Unclear`` where training starts before everything is made."""
    around = {anchor, *training.module.ancestors(anchor)}
    first = min(binding.lineno for home in homes for binding in home.bindings)
    for statement in getattr(scope, "body", []):
        if statement.lineno >= anchor.lineno:
            break
        if (statement.end_lineno or 0) < first or isinstance(statement, DEFINITIONS):
            continue  # it runs before any of them is made
        if statement in around or is_peek(training, statement):
            continue
        if _trains(training, statement, homes):
            raise Unclear("training or evaluation starts here, before all objects to prepare are made", statement)


def _behind_setup(training: Training, homes: list[Home], anchor: ast.stmt) -> ast.stmt:
    """The last statement, from ``anchor`` on and before any use in training, that still sets these objects up."""
    block = training.module.block(anchor)
    names = {home.name for home in homes}
    last = anchor
    for statement in block[block.index(anchor) + 1 :]:
        if isinstance(statement, (*LOOPS, *DEFINITIONS, ast.Return)):
            if not isinstance(statement, DEFINITIONS):
                break
            continue
        if _uses_objects(training, statement, names):
            break
        if _sets_up(training, statement, names):
            last = statement
    return last


def _uses_objects(training: Training, statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement may train or evaluate with the objects."""
    for node in training.reached([statement]):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            if training.loaders_of(training.value(node.iter)):
                return True
        if isinstance(node, ast.Call) and (node in training.backwards or training.forwards(node)):
            return True
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and any(ast.unparse(a) in names for a in node.args)
        for node in ast.walk(statement)
    )


def _sets_up(training: Training, statement: ast.stmt, names: set[str]) -> bool:
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        if training.value(node).sites(*_SET_UP):  # made here, or in a function that is called here
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
            root = node.func.value
            while isinstance(root, ast.Attribute) and ast.unparse(root) not in names:
                root = root.value
            if ast.unparse(root) in names:
                return True
    return False


def _loop_around(module: Files, home: Home) -> ast.AST | None:
    loops = {module.loop_around(statement, within=home.scope) for statement in home.bindings}
    if len(loops) > 1:
        raise Unclear(f"`{home.name}` is made both inside and outside a loop", home.bindings[0], about=home.sites)
    return loops.pop()


def _anchor(module: Files, homes: list[Home]) -> ast.stmt:
    """The last statement that binds one of the homes, in the innermost block that holds all the bindings."""
    chains = []
    for home in homes:
        for statement in home.bindings:
            outwards: list[ast.stmt] = [statement]
            outwards += [a for a in module.ancestors(statement) if isinstance(a, ast.stmt)]
            chains.append(outwards)
    first = chains[0]
    for own in first:
        block = module.block(own)
        inside = [next((s for s in outwards if s in block), None) for outwards in chains]
        if all(s is not None for s in inside):
            return max((s for s in inside if s is not None), key=block.index)
    raise Unclear("the objects to prepare are made in places that have no block in common", first[0])


# ---- other names of what is prepared


def check_aliases(training: Training, groups: list[Group], known: frozenset[str] = frozenset()) -> None:
    """Raise ``Unclear`` where another name keeps an object as it was before ``prepare``, and goes on using it.

    ``known`` are names that a rule replaces, or that mean the object as it is.
    """
    for node in chain(training.module.walk(), training.module.beside()):
        if not (isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)):
            continue
        one = training.value(node)
        inside = {a.site for a in flatten(one) if isinstance(a, Object)}
        drawn = {site for batches in one.of(Batches) for site in batches.loaders}
        if not inside and not drawn:
            continue
        text = ast.unparse(node)
        for group in groups if text not in known else ():
            if group.made is not None:
                continue  # nothing has it as it was before
            if not (inside | drawn) & group.sites or _is_home(training, group, node, text):
                continue
            if _is_iterated_outside(training, group, node, inside):
                told = f"`{text}` is used besides where it is prepared, at line {group.anchor.lineno}"
                raise Unclear(told, node, about=inside & group.sites)
            before = [s for s in training.leading_to(node, group.scope) if s.lineno <= (group.anchor.end_lineno or 0)]
            if not before or not _is_read_later(training, group, node, text):
                continue
            sites = (inside | drawn) & group.sites
            if not drawn and all(s.role is Role.MODEL for s in sites) and not _is_called(training, group, node, text):
                continue
            done = (
                "draws from a loader"
                if drawn
                else "is another name of what is trained, bound"
                if one.sites() & sites
                else "keeps what is trained in a container"
            )
            raise Unclear(f"`{text}` {done} before it is prepared", node, about=sites)


def _is_iterated_outside(training: Training, group: Group, node: ast.expr, inside: set[Site]) -> bool:
    """Whether a function that leads to the ``prepare`` goes on using its own name of a loader or optimizer."""
    module = training.module
    scope = module.function(node)
    if not isinstance(node, ast.Name) or scope is group.scope or all(s.role is Role.MODEL for s in inside):
        return False
    leading = training.leading_to(group.anchor, scope)
    if not leading:
        return False
    first = min(s.lineno for s in leading)
    around = {n for statement in leading for n in module.walk(statement)}
    return any(
        isinstance(n, ast.Name)
        and n.id == node.id
        and isinstance(n.ctx, ast.Load)
        and n.lineno > first
        and n not in around
        and not isinstance(module.parents[n], ast.Attribute)
        for n in module.walk(scope)
    )


def _is_home(training: Training, group: Group, node: ast.expr, text: str) -> bool:
    scope = training.module.function(node)
    return any(text in (home.name, home.name.partition("[")[0]) and scope is home.scope for home in group.homes)


def _is_read_later(training: Training, group: Group, node: ast.expr, text: str) -> bool:
    """Whether the name, bound before ``prepare``, can be read behind it."""
    module = training.module
    scope = module.function(node)
    if isinstance(node, ast.Attribute):
        owner = module.class_of(scope)
        if (
            owner is None
            or not module.is_active(node)
            or not (isinstance(node.value, ast.Name) and node.value.id == "self")
        ):
            return True
        reads = [n for n in module.walk() if isinstance(n, ast.Attribute) and n.attr == node.attr]
        return any(isinstance(n.ctx, ast.Load) and module.function(n) is not scope for n in reads)
    if scope is not group.scope:
        return False  # a local of a function that has returned
    end = group.anchor.end_lineno or 0
    return any(
        isinstance(n, ast.Name) and n.id == text and isinstance(n.ctx, ast.Load) and n.lineno > end
        for n in module.walk(scope)
    )


def _is_called(training: Training, group: Group, node: ast.expr, text: str) -> bool:
    """Whether something behind the ``prepare`` calls the model by this name, or hands it on to what may."""
    module = training.module
    name = node.attr if isinstance(node, ast.Attribute) else text
    for call in module.walk(module.class_of(module.function(node)) or module.function(node)):
        if isinstance(call, ast.Attribute) and call.attr in ("forward", "__call__"):
            if ast.unparse(call.value).rsplit(".", 1)[-1] == name:
                return True
        if not isinstance(call, ast.Call) or (module.function(call) is group.scope and call.lineno <= group.end):
            continue
        for used in (call.func, *call.args, *(k.value for k in call.keywords)):
            whole = used
            while isinstance(whole, ast.Subscript):
                whole = whole.value
            if getattr(whole, "attr", getattr(whole, "id", None)) == name:
                if used is call.func or not _is_only_asked(training, call, used):
                    return True
    return False


def _is_only_asked(training: Training, call: ast.Call, argument: ast.expr) -> bool:
    """Whether functions of the program only ask an argument for its attributes: ``model.state_dict()``."""
    module = training.module
    callees = training.store.calls.get(call, set())
    for callee in callees:
        if not isinstance(callee, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        named = [p.arg for p in parameters(callee) if argument_for(call, callee, p.arg) is argument]
        reads = [n for n in module.walk(callee) if isinstance(n, ast.Name) and n.id in named]
        asked = (module.parents[n] for n in reads)
        if not named or not all(isinstance(a, ast.Attribute) and a.attr not in ("forward", "__call__") for a in asked):
            return False
    return bool(callees)
