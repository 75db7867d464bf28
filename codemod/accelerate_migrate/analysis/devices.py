"""How a script chooses its device: the statements that define it, and what is left of the choice as `cpu=...`."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import Availability, ClassRef, Const, DeviceValue, Role, Tensor
from accelerate_migrate.analysis.scopes import argument_for, assigned_targets, binding_scope, parameters
from accelerate_migrate.analysis.settings import overridden
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import Value, is_device

_PAIRS: list[tuple[type[ast.cmpop], type[ast.cmpop]]] = [
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Lt, ast.GtE),
    (ast.Gt, ast.LtE),
]
_OPPOSITES = dict(_PAIRS) | {opposite: operator for operator, opposite in _PAIRS}


@dataclass(frozen=True, eq=False)
class DeviceDefinition:
    """A statement that does nothing but choose a device: an assignment, or an ``if`` of assignments.

    ``targets`` are the texts of what it binds (``device``, ``args.device``); ``cpu`` is the source of the argument
    ``cpu=`` that keeps the script's own choice, or ``None`` where availability alone decides.
    """

    statement: ast.stmt
    targets: frozenset[str]
    cpu: str | None
    scope: ast.AST


def negated(text: str) -> str:
    """The source of the opposite of a condition."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPPOSITES:
        return ast.unparse(ast.Compare(node.left, [_OPPOSITES[type(node.ops[0])]()], node.comparators))
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return f"not {text}"
    return f"not ({text})"


def condition_as_cpu(training: Training, test: ast.expr) -> str | None:
    """What ``cpu=`` must be so that a branch on this test is kept: ``None`` where the test is availability alone."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = availability(training.value(test.operand))
        return None if inner is not None and inner.exact and not inner.rest else ast.unparse(test.operand)
    known = availability(training.value(test))
    if known is None or not known.exact or Const(False) in training.value(test).atoms:  # set to False by some branch
        return negated(ast.unparse(test))
    if not known.rest:
        return None
    names = {n.id for n in ast.walk(ast.parse(known.rest)) if isinstance(n, ast.Name)}
    if isinstance(test, (ast.Name, ast.Attribute)) and not names <= _visible(training, test):
        return negated(ast.unparse(test))
    return negated(known.rest)


def _visible(training: Training, node: ast.expr) -> set[str]:
    """The names that the functions around a node and the module bind."""
    module = training.module
    around = [a for a in module.ancestors(node) if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return set().union(*(training.store.scope_names(scope).bound for scope in (module.root(node), *around)))


def availability(one: Value) -> Availability | None:
    """The availability condition that a value is, or ``None``."""
    found = one.of(Availability)
    others = [a for a in one if not isinstance(a, (Availability, Const))]
    return found[0] if len(found) == 1 and not others else None


def is_flag(training: Training, test: ast.expr) -> bool:
    """Whether a test asks if an accelerator is available (and wanted)."""
    return availability(training.value(test)) is not None


def is_device_flag(training: Training, test: ast.expr) -> bool:
    """Whether a test decides between devices: it asks for availability, or is a CUDA flag that guards moves somewhere.

    A flag such as ``args.cuda`` has an unknown value: it counts where its name says CUDA or GPU *and* some ``if`` on it
    does nothing but move.
    """
    return is_flag(training, test) or ast.unparse(test) in _cuda_flags(training)


def _cuda_flags(training: Training) -> frozenset[str]:
    known = training.cache.get("cuda flags")
    if known is None:
        known = frozenset(
            ast.unparse(node.test)
            for node in training.module.walk()
            if isinstance(node, ast.If)
            and isinstance(node.test, (ast.Name, ast.Attribute))
            and re.search("cuda|gpu", ast.unparse(node.test), re.IGNORECASE)
            and all(is_pure_move(statement) for statement in node.body)
        )
        training.cache["cuda flags"] = known
    return known


def is_pure_move(statement: ast.stmt) -> bool:
    """``x.cuda()``, ``x = x.cuda()`` or ``x, y = x.cuda(), y.cuda()``: nothing but moves of things that have a name."""
    if not isinstance(statement, (ast.Expr, ast.Assign)):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return all(
        isinstance(v, ast.Call)
        and isinstance(v.func, ast.Attribute)
        and v.func.attr in ("cuda", "to", "xpu")
        and isinstance(v.func.value, (ast.Name, ast.Attribute, ast.Subscript))
        for v in values
    )


def find_definitions(training: Training, gone: Container[ast.stmt] = ()) -> list[DeviceDefinition]:
    """The statements of the module that define its device, in order; those in ``gone`` do not count."""
    module = training.module
    found: list[DeviceDefinition] = []
    covered: set[ast.stmt] = set()
    for node in module.walk():
        if isinstance(node, ast.If) and node not in covered:
            definition = _of_branches(training, node, gone)
            if definition is not None:
                found.append(definition)
                covered.update(n for n in ast.walk(node) if isinstance(n, ast.stmt))
    for node in module.walk():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node not in covered and _defines(training, node):
            assert node.value is not None
            cpu = choice_as_cpu(training, node.value)
            found.append(DeviceDefinition(node, frozenset(_targets(node)), cpu, module.function(node)))
    moves = any(isinstance(node, ast.Attribute) and node.attr == "cuda" for node in module.walk())
    chosen = [d for d in found if not (_is_only_cpu(training, d) and (moves or _has_other_target(d, found)))]
    chosen += [d for d in _defaults(training, chosen) if d.statement not in covered]
    return sorted(chosen, key=lambda d: d.statement.lineno)


def _defaults(training: Training, chosen: list[DeviceDefinition]) -> Iterator[DeviceDefinition]:
    """``device = "cpu"`` in front of an ``if`` that chooses a better one where there is one: part of the choice."""
    module = training.module
    for node in module.walk():
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == "cpu"):
            continue
        same = [d for d in chosen if d.targets == set(_targets(node)) and d.scope is module.function(node)]
        block = module.block(node)
        behind = block[block.index(node) + 1 :]
        follows = any(d.statement in behind or not set(module.ancestors(d.statement)).isdisjoint(behind) for d in same)
        if follows and all(d.statement is not node and branch_choice(training, d)[0] is None for d in same):
            yield DeviceDefinition(node, frozenset(_targets(node)), None, module.function(node))


def _is_only_cpu(training: Training, definition: DeviceDefinition) -> bool:
    """``host = torch.device("cpu")``: where the script has another device too, this one only brings things back."""
    value = getattr(definition.statement, "value", None)
    return value is not None and spelled_kinds(training.value(value)) == {"cpu"}


def says_where_to_load(training: Training, definition: DeviceDefinition) -> bool:
    """Whether a device is only ever the ``map_location`` of a load: then it is no choice of where to train."""
    module = training.module
    reads = [
        node
        for node in module.walk(definition.scope)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in definition.targets
    ]
    parents = [module.parents[node] for node in reads]
    return bool(reads) and all(isinstance(p, ast.keyword) and p.arg == "map_location" for p in parents)


def _has_other_target(definition: DeviceDefinition, found: list[DeviceDefinition]) -> bool:
    return any(other.targets != definition.targets for other in found)


def guarded_choice(training: Training, scope: ast.AST) -> tuple[str | None, int]:
    """The ``cpu=`` of a script without a device variable, that moves under ``if use_cuda:``, and the test's line.

    What the test reads must have its meaning in ``scope`` as well.
    """
    nodes = [n for n in training.module.walk(training.module.root(scope)) if _means_the_same(training, n, scope)]
    for node in nodes:
        if isinstance(node, (ast.If, ast.IfExp)) and is_device_flag(training, node.test):
            body = node.body if isinstance(node.body, list) else [node.body]
            if any(isinstance(n, ast.Attribute) and n.attr in ("cuda", "to") for part in body for n in ast.walk(part)):
                if is_flag(training, node.test) or _guards_models(training, node):
                    return condition_as_cpu(training, node.test), node.lineno
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Name)) and is_device_argument(training, node):
            text = all(not isinstance(a, DeviceValue) or a.is_string for a in training.value(node))
            return f'{ast.unparse(node)}{"" if text or isinstance(node, ast.Name) else ".type"} == "cpu"', node.lineno
    return None, 0


def _guards_models(training: Training, node: ast.If | ast.IfExp) -> bool:
    """Whether no model goes to CUDA but where a flag says so: without the flag, the script trains on the CPU."""
    module = training.module
    flag = ast.unparse(node.test)
    for call in module.walk(module.root(node)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
            inside = [call, *module.ancestors(call)]
            guarded = any(
                isinstance(around, (ast.If, ast.IfExp))
                and flag in ast.unparse(around.test)
                and any(n in inside for n in (around.body if isinstance(around.body, list) else [around.body]))
                for around in inside
            )
            if training.value(call.func.value).sites(Role.MODEL) and not guarded:
                return False
    return True


def _means_the_same(training: Training, node: ast.AST, scope: ast.AST) -> bool:
    """Whether what a test (or a device argument) reads is there in ``scope``, under the same names."""
    if isinstance(node, (ast.If, ast.IfExp)):
        node = node.test
    elif not isinstance(node, (ast.Attribute, ast.Name)):
        return False
    module = training.module
    for name in ast.walk(node):
        if not isinstance(name, ast.Name):
            continue
        if name.id == "self":
            owner = module.class_of(scope)
            if owner is None or module.class_of(module.function(name)) is not owner:
                return False
        elif not _is_seen_in(training, name, scope, set()):
            return False
    return True


def _is_seen_in(training: Training, name: ast.Name, scope: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether a name is bound in ``scope`` or its file, or is a parameter that is only given a name like that."""
    bound = binding_scope(training.module, training.store, name)
    if bound in (scope, training.module.root(scope)):
        return True
    if not isinstance(bound, (ast.FunctionDef, ast.AsyncFunctionDef)) or bound in seen:
        return False
    seen.add(bound)
    if name.id not in {parameter.arg for parameter in parameters(bound)}:
        return False
    given = [argument_for(call, bound, name.id) for call in training.store.callers.get(bound, ())]
    return bool(given) and all(
        isinstance(argument, ast.Name) and argument.id == name.id and _is_seen_in(training, argument, scope, seen)
        for argument in given
    )


def is_device_argument(training: Training, node: ast.Attribute | ast.Name) -> bool:
    """Whether ``args.device``, known to be a device, is where a move or an allocation asks for one.

    A variable counts where it is a setting that code from elsewhere may change: it has no other definition.
    """
    if not isinstance(node.ctx, ast.Load) or not is_device(training.value(node)):
        return False
    if isinstance(node, ast.Name) and node.id not in overridden(training.module.root(node)):
        return False
    parent = training.module.parents[node]
    call = training.module.parents[parent] if isinstance(parent, ast.keyword) else parent
    if isinstance(call, ast.Call) and training.store.calls.get(call):  # handed on to a function of the program
        return True
    if isinstance(parent, ast.keyword):
        return parent.arg in ("device", "map_location")
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "to"


def branch_choice(training: Training, definition: DeviceDefinition) -> tuple[str | None, int]:
    """The ``cpu=`` of a script that chooses another device than the CPU in one branch, and the line of the test.

    Where the other branch chooses one too, the test says nothing about the CPU: ``if distributed: … else: …``.
    """
    branch = training.module.parents[definition.statement]
    if not isinstance(branch, ast.If):
        return definition.cpu, definition.statement.lineno
    if any(isinstance(n, ast.expr) and ast.unparse(n) in definition.targets for n in ast.walk(branch.test)):
        raise Unclear("a device is chosen here only where none is set already", branch)
    others = list(branch.body if definition.statement in branch.orelse else branch.orelse)
    around: ast.AST = branch
    while isinstance(above := training.module.parents[around], ast.If) and above.orelse == [around]:  # an `elif`
        others += above.body
        around = above
    for node in (n for statement in others for n in ast.walk(statement)):
        if _chooses(training, node, definition.targets) or (isinstance(node, ast.Attribute) and node.attr == "cuda"):
            return None, branch.lineno  # whichever way it goes, it is a GPU
    cpu = condition_as_cpu(training, branch.test)
    if cpu is not None and definition.statement in branch.orelse:
        cpu = negated(cpu)
    return cpu, branch.lineno


def _chooses(training: Training, node: ast.AST, targets: frozenset[str]) -> bool:
    """Whether a node binds one of these targets to another device than the CPU."""
    if not isinstance(node, ast.Assign) or targets.isdisjoint(_targets(node)):
        return False
    return spelled_kinds(training.value(node.value)) != {"cpu"}


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    return [ast.unparse(target) for target in assigned_targets(node)]


def _defines(training: Training, node: ast.stmt) -> bool:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    targets = assigned_targets(node)
    if not all(isinstance(t, (ast.Name, ast.Attribute)) for t in targets):
        return False
    if any(is_of_self(ast.unparse(target)) for target in targets) and not _is_of_trainer(training, node):
        return False
    one = training.value(node.value)
    if not is_device(one) or isinstance(node.value, ast.Name) or is_type_choice(training, node.value):
        return False
    if isinstance(node.value, ast.Attribute) and training.value(node.value.value).of(Tensor):
        return False  # `device = x.device` is where a tensor is
    if not overridden(training.module.root(node)).isdisjoint(_targets(node)):
        return False
    if isinstance(node.value, ast.Constant):
        return node.value.value != "cpu" and any("dev" in t.lower() for t in _targets(node))
    return True


def is_of_self(target: str) -> bool:
    """Whether the text of a target is an attribute that an object gives itself."""
    return target.startswith("self.")


def _is_of_trainer(training: Training, node: ast.stmt) -> bool:
    """Whether a method's statement is one of a class that is no model."""
    module = training.module
    owner = module.class_of(module.function(node))
    file = module.module_of(owner) if owner is not None else None
    return owner is not None and file is not None and training.store.class_role(ClassRef(owner, file)) is None


def is_type_choice(training: Training, node: ast.expr) -> bool:
    """``"cuda" if "cuda" in device else "cpu"``: the type of a device that was chosen before."""
    if not (isinstance(node, ast.IfExp) and all(isinstance(n, ast.Constant) for n in (node.body, node.orelse))):
        return False
    return any(isinstance(n, (ast.Name, ast.Attribute)) and is_device(training.value(n)) for n in ast.walk(node.test))


def _of_branches(training: Training, node: ast.If, gone: Container[ast.stmt]) -> DeviceDefinition | None:
    """An ``if`` chain in which every branch only assigns the device."""
    branches = [(test, [s for s in body if s not in gone]) for test, body in _branches(node)]
    if not all(body for _, body in branches):
        return None
    if len(branches) < 2 or branches[-1][0] is not None:
        return None
    targets: set[str] = set()
    for _, body in branches:
        for statement in body:
            if not isinstance(statement, ast.Assign) or not is_device(training.value(statement.value)):
                return None
            targets.update(_targets(statement))
    if len(targets) != 1:
        return None
    conditions = {condition_as_cpu(training, test) for test, _ in branches if test is not None}
    first_is_cpu = _is_cpu(training, branches[0][1])
    if len(conditions) == 1:
        cpu = conditions.pop()
        if first_is_cpu and cpu is not None:
            cpu = negated(cpu)
    else:
        cpu = None
    return DeviceDefinition(node, frozenset(targets), cpu, training.module.function(node))


def _branches(node: ast.If) -> Iterator[tuple[ast.expr | None, list[ast.stmt]]]:
    while True:
        yield node.test, node.body
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            node = node.orelse[0]
            continue
        if node.orelse:
            yield None, node.orelse
        return


def _is_cpu(training: Training, body: list[ast.stmt]) -> bool:
    statement = body[-1]
    assert isinstance(statement, ast.Assign)
    return spelled_kinds(training.value(statement.value)) == {"cpu"}


def spelled_kinds(one: Value) -> set[str]:
    """The kinds of device (``cuda``, ``cpu``; empty where it depends) among the alternatives of a device."""
    return {str(a.value).split(":")[0] if isinstance(a, Const) else getattr(a, "kind", "") for a in one}


def choice_as_cpu(training: Training, node: ast.expr) -> str | None:
    """The ``cpu=`` that keeps the choice of a device expression."""
    while isinstance(node, ast.Call) and node.args and is_device(training.value(node)):
        inner = node.args[0]
        if isinstance(inner, (ast.IfExp, ast.Constant, ast.Call)):
            node = inner
            continue
        kinds = spelled_kinds(training.value(node))
        if isinstance(inner, (ast.Name, ast.Attribute)):
            asked = training.value(inner)
            if asked.may_be_unknown() or not all(isinstance(a, Const) for a in asked):
                return f'{ast.unparse(inner)} == "cpu"' if kinds != {"cuda"} else None
            chosen = spelled_kinds(asked)
            return None if "cuda" in chosen else "True" if chosen == {"cpu"} else None
        return None
    if isinstance(node, ast.IfExp):
        cpu = condition_as_cpu(training, node.test)
        if cpu is not None and spelled_kinds(training.value(node.body)) == {"cpu"}:
            return negated(cpu)
        return cpu
    if spelled_kinds(training.value(node)) == {"cpu"}:
        return "True"
    if isinstance(node, ast.Attribute) and any(isinstance(a, DeviceValue) and not a.kind for a in training.value(node)):
        return f'{ast.unparse(node)} == "cpu"'
    return None
