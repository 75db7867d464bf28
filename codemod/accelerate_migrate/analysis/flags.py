"""An expression of one function as it reads where the accelerator is made: for ``amp``, the ``args.amp`` passed."""

from __future__ import annotations

import ast
import copy

from accelerate_migrate.analysis.devices import availability, negated
from accelerate_migrate.analysis.guards import is_availability
from accelerate_migrate.analysis.scopes import argument_for, default_for, parameters
from accelerate_migrate.analysis.store import BUILTINS
from accelerate_migrate.analysis.training import Training

_MAX_STEPS = 8


def lifted(training: Training, node: ast.expr, scope: ast.AST) -> ast.expr | None:
    """The expression with its names as ``scope`` has them, or ``None`` where it depends on more than that.

    A parameter becomes what every call passes for it, a local variable what it was assigned. Names of the scope
    itself, and those of the module, stay.
    """
    return _Lifting(training, scope).expression(node, _MAX_STEPS)


def is_about_device(training: Training, node: ast.expr) -> bool:
    """Whether a condition holds exactly where the script runs on CUDA: ``device.type == "cuda"`` and the like."""
    if availability(training.value(node)) is not None:
        return is_availability(training, node)
    if isinstance(node, ast.Name):
        made = only_assignment(training, node)
        return made is not None and made is not node and is_about_device(training, made)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.comparators[0], ast.Constant)):
        return False
    wanted = {"cuda": (ast.Eq,), "cpu": (ast.NotEq,)}.get(str(node.comparators[0].value))
    text = ast.unparse(node.left)
    return wanted is not None and isinstance(node.ops[0], wanted) and "device" in text


def only_assignment(training: Training, node: ast.expr) -> ast.expr | None:
    """The one value that a variable ever holds where it is read here; ``None`` for anything but such a variable."""
    if not isinstance(node, ast.Name) or node not in training.module.parents:
        return None
    return _only_assignment(training, node.id, training.module.function(node))


def opposite(node: ast.expr) -> ast.expr:
    """The expression for the opposite of a condition."""
    return ast.parse(negated(ast.unparse(node)), mode="eval").body


class _Lifting:
    def __init__(self, training: Training, scope: ast.AST) -> None:
        self.training = training
        self.module = training.module
        self.scope = scope

    def expression(self, node: ast.expr, steps: int) -> ast.expr | None:
        """The lifted copy of an expression of the module."""
        if steps == 0 or any(isinstance(n, (ast.Lambda, ast.NamedExpr, ast.comprehension)) for n in ast.walk(node)):
            return None
        replaced: dict[str, ast.expr] = {}
        kept = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and self._is_of_self(n)]
        for attribute in kept:
            held = self._attribute(attribute, steps)
            if held is None:
                return None
            replaced[ast.unparse(attribute)] = held
        owners = [attribute.value for attribute in kept]
        for name in [n for n in ast.walk(node) if isinstance(n, ast.Name) and n not in owners]:
            found = self._name(name, steps)
            if found is None:
                return None
            replaced[name.id] = found
        return _Substitution(replaced).visit(copy.deepcopy(node))  # type: ignore[no-any-return]

    def _is_of_self(self, node: ast.Attribute) -> bool:
        """Whether this is ``self.name`` in a method."""
        function = self.module.function(node)
        if isinstance(function, ast.Module) or self.module.class_of(function) is None or not function.args.args:
            return False
        return isinstance(node.value, ast.Name) and node.value.id == function.args.args[0].arg

    def _attribute(self, node: ast.Attribute, steps: int) -> ast.expr | None:
        """What the one assignment of ``self.name`` in the class gave it."""
        owner = self.module.class_of(self.module.function(node))
        assert owner is not None
        made = [
            s
            for s in self.module.walk(owner)
            if isinstance(s, ast.Assign) and any(ast.unparse(t) == ast.unparse(node) for t in s.targets)
        ]
        return self.expression(made[0].value, steps - 1) if len(made) == 1 else None

    def _name(self, name: ast.Name, steps: int) -> ast.expr | None:
        function = self.module.function(name)
        names = self.training.store.scope_names
        while function is not self.scope and not isinstance(function, ast.Module):
            if name.id in names(function).bound:
                if name.id in [a.arg for a in parameters(function)]:
                    return self._parameter(function, name.id, steps)
                made = _only_assignment(self.training, name.id, function)
                return self.expression(made, steps - 1) if made is not None else None
            function = self.module.function(function)
        if isinstance(function, ast.Module) and function is not self.scope:
            within = self.scope in self.module.ancestors(name)
            local = isinstance(self.scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and not within
            if local and name.id in names(self.scope).bound:  # type: ignore[arg-type]
                return None  # the scope has something else under this name
        root = self.module.root(name)
        if name.id not in BUILTINS and root is not self.module.root(self.scope):
            return None  # a name of another file
        known = name.id in names(root).bound or name.id in BUILTINS or function is self.scope
        return ast.Name(name.id, ast.Load()) if known else None

    def _parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, steps: int) -> ast.expr | None:
        found: dict[str, ast.expr] = {}
        calls = self.training.store.callers.get(function, set())
        for call in calls:
            given = argument_for(call, function, name) or default_for(function, name)
            one = self.expression(given, steps - 1) if given is not None else None
            if one is None:
                return None
            found[ast.unparse(one)] = one
        return next(iter(found.values())) if len(found) == 1 else None


class _Substitution(ast.NodeTransformer):
    def __init__(self, replaced: dict[str, ast.expr]) -> None:
        self.replaced = replaced

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replaced.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.replaced.get(ast.unparse(node)) or self.generic_visit(node)


def _only_assignment(training: Training, name: str, function: ast.AST) -> ast.expr | None:
    """The one value that a variable of this scope (or of the module) is ever assigned, where there is just one."""
    module = training.module
    stores = [
        n
        for n in module.walk(function)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) and module.function(n) is function
    ]
    if len(stores) == 1:
        statement = module.parents[stores[0]]
        if isinstance(statement, ast.Assign) and statement.targets == [stores[0]]:
            return statement.value
    if not stores and not isinstance(function, ast.Module):
        if name not in [a.arg for a in parameters(function)]:  # type: ignore[arg-type]
            return _only_assignment(training, name, module.root(function))
    return None
