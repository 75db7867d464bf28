"""Where the prepared objects live: the name and scope that hold each, and the point where all of them exist."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import Batches, Const, Object, Role, Site, flatten

_ORDER = {Role.MODEL: 0, Role.OPTIMIZER: 1, Role.LOADER: 2, Role.SCHEDULER: 3}
_SET_UP = (Role.SCHEDULER, Role.LOADER)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, eq=False)
class Home:
    """A variable that holds an object to prepare; ``bindings`` are the statements that bind it, in order."""

    name: str
    role: Role
    sites: frozenset[Site]
    scope: ast.AST
    bindings: tuple[ast.stmt, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Homes that one ``prepare`` call serves, to be put after ``anchor``."""

    homes: tuple[Home, ...]
    anchor: ast.stmt
    scope: ast.AST


def find_homes(training: Training, wanted: frozenset[Site]) -> list[Home]:
    """The variable that holds each wanted object. Raises ``Unclear`` where an object has none or several."""
    module = training.module
    bindings: dict[tuple[ast.AST, str], list[ast.stmt]] = defaultdict(list)
    sites: dict[tuple[ast.AST, str], set[Site]] = defaultdict(set)
    for node in module.walk():
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            continue
        one = training.value(node)
        held = one.sites() & wanted
        if not held:
            continue
        statement = module.statement(node)
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        others = [a for a in one if not isinstance(a, Object) and not (isinstance(a, Const) and a.value is None)]
        if others or one.sites() - wanted:
            raise Unclear(f"`{node.id}` may hold something other than what is trained", node)
        key = (module.function(node), node.id)
        bindings[key].append(statement)
        sites[key] |= held
    _drop_passing_names(module, sites)
    homes = []
    for (scope, name), members in sites.items():
        roles = {s.role for s in members}
        if len(roles) > 1:
            raise Unclear(f"`{name}` holds objects of different roles", bindings[scope, name][0])
        homes.append(Home(name, roles.pop(), frozenset(members), scope, tuple(bindings[scope, name])))
    _check_complete(training, wanted, homes)
    return sorted(homes, key=lambda h: (_ORDER.get(h.role, 9), min(s.lineno for s in h.bindings)))


def _drop_passing_names(module: Module, sites: dict[tuple[ast.AST, str], set[Site]]) -> None:
    """A factory's local name is not a home when the caller binds the object as well."""
    for key in list(sites):
        scope, name = key
        returned = any(
            isinstance(node, ast.Return)
            and node.value is not None
            and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.value))
            for node in module.walk(scope)
        )
        elsewhere = set().union(*(held for other, held in sites.items() if other[0] is not scope), set())
        if returned and sites[key] <= elsewhere:
            del sites[key]


def _check_complete(training: Training, wanted: frozenset[Site], homes: list[Home]) -> None:
    for site in sorted(wanted, key=lambda s: (s.line, s.column)):
        held_by = [home for home in homes if site in home.sites]
        if not held_by:
            raise Unclear(f"the {site.role.value} made here is not held by a plain variable", line=site.line)
        if len(held_by) > 1:
            used = [h for h in held_by if _is_used_to_train(training, h)]
            if len(used) != 1:
                names = " and ".join(f"`{h.name}`" for h in held_by)
                raise Unclear(f"the {site.role.value} made here goes by several names: {names}", line=site.line)
            for home in held_by:
                if home is not used[0]:
                    homes.remove(home)


def check_aliases(training: Training, groups: list[Group]) -> None:
    """Raise ``Unclear`` where an object is kept elsewhere before it is prepared: that copy would stay unprepared."""
    prepared = {site for group in groups for home in group.homes for site in home.sites}
    for owner, details in training.store.details.items():
        if owner in prepared or owner.role is Role.MODEL:
            continue
        for name, held in details.fields.items():
            for site in held.sites() & prepared:
                raise Unclear(
                    f"the {site.role.value} made at line {site.line} is kept as an attribute, `.{name}`", line=site.line
                )
    for node in training.module.walk():
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            continue
        one = training.value(node)
        inside = {a.site for a in flatten(one) if isinstance(a, Object)} - one.sites()
        drawn = {site for batches in one.of(Batches) for site in batches.loaders}
        for group in groups:
            sites = {site for home in group.homes for site in home.sites}
            if (
                (inside | drawn) & sites
                and node.lineno <= (group.anchor.end_lineno or 0)
                and training.module.function(node) is group.scope
            ):
                done = "draws from a loader" if drawn & sites else "keeps what is trained in a container"
                raise Unclear(f"`{node.id}` {done} before it is prepared", node)


def _is_used_to_train(training: Training, home: Home) -> bool:
    for node in training.module.walk(home.scope):
        if isinstance(node, ast.Call):
            named = [node.func, *node.args, *(k.value for k in node.keywords)]
            if any(isinstance(n, ast.Name) and n.id == home.name for n in named):
                return True
    return False


def group_homes(training: Training, homes: list[Home]) -> list[Group]:
    """The ``prepare`` calls to make: one for all homes of a scope, apart where some are made anew in a loop.

    Each stands behind what still belongs to setting up: schedulers made from the bare optimizer, loaded states.
    """
    module = training.module
    by_loop: dict[tuple[ast.AST, ast.AST | None], list[Home]] = defaultdict(list)
    for home in homes:
        by_loop[home.scope, _loop_around(module, home)].append(home)
    groups = []
    for (scope, _loop), members in by_loop.items():
        anchor = _anchor(module, members)
        if _trains(training, anchor, members):
            anchor = _last_binding(members)
        _check_certain(module, members, anchor)
        anchor = _behind_setup(training, members, anchor)
        _check_unused(training, scope, members, anchor)
        groups.append(Group(tuple(members), anchor, scope))
    return groups


def _last_binding(homes: list[Home]) -> ast.stmt:
    """The last statement that binds one of the homes, in its own block."""
    return max((s for home in homes for s in home.bindings), key=lambda s: s.lineno)


def _check_certain(module: Module, homes: list[Home], anchor: ast.stmt) -> None:
    """Raise ``Unclear`` where an object may not exist behind ``anchor``: it is made under a condition only."""
    before: list[ast.stmt] = []
    current: ast.AST = anchor
    while isinstance(current, ast.stmt):
        block = module.block(current)
        before += block[: block.index(current) + (current is anchor)]
        parent = module.parents[current]
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        current = parent
    for home in homes:
        if not any(_binds(statement, home.name) for statement in before):
            raise Unclear(
                f"`{home.name}` is made under a condition only, so it cannot be prepared for sure", home.bindings[0]
            )


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name on every path through it."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return any(isinstance(n, ast.Name) and n.id == name for t in assigned_targets(statement) for n in ast.walk(t))
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
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    around = {anchor, *training.module.ancestors(anchor)}
    for statement in getattr(scope, "body", []):
        if statement.lineno >= anchor.lineno:
            break
        if isinstance(statement, definitions) or statement in around:
            continue
        if _trains(training, statement, homes):
            raise Unclear("training or evaluation starts here, before all objects to prepare are made", statement)


def _behind_setup(training: Training, homes: list[Home], anchor: ast.stmt) -> ast.stmt:
    """The last statement, from ``anchor`` on and before any use in training, that still sets these objects up."""
    block = training.module.block(anchor)
    names = {home.name for home in homes}
    last = anchor
    for statement in block[block.index(anchor) + 1 :]:
        if isinstance(statement, (*_LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return)):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
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
        and any(isinstance(a, ast.Name) and a.id in names for a in node.args)
        for node in ast.walk(statement)
    )


def _sets_up(training: Training, statement: ast.stmt, names: set[str]) -> bool:
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        if any((s.line, s.column) == (node.lineno, node.col_offset) for s in training.value(node).sites(*_SET_UP)):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
            root = node.func.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                return True
    return False


def _loop_around(module: Module, home: Home) -> ast.AST | None:
    loops = []
    for statement in home.bindings:
        found = None
        for around in module.ancestors(statement):
            if around is home.scope:
                break
            if isinstance(around, _LOOPS):
                found = around
                break
        loops.append(found)
    if len(set(loops)) > 1:
        raise Unclear(f"`{home.name}` is made both inside and outside a loop", home.bindings[0])
    return loops[0]


def _anchor(module: Module, homes: list[Home]) -> ast.stmt:
    """The last statement that binds one of the homes, in the innermost block that holds all the bindings."""
    chains = []
    for home in homes:
        for statement in home.bindings:
            chain: list[ast.stmt] = [statement]
            chain += [a for a in module.ancestors(statement) if isinstance(a, ast.stmt)]
            chains.append(chain)
    first = chains[0]
    for own in first:
        block = module.block(own)
        inside = [next((s for s in chain if s in block), None) for chain in chains]
        if all(s is not None for s in inside):
            return max((s for s in inside if s is not None), key=block.index)
    raise Unclear("the objects to prepare are made in places that have no block in common", first[0])
