"""Which names a scope binds, which are global in it, and where a name is looked up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accelerate_migrate.analysis.modules import DEFINITIONS, Scope, Tree

if TYPE_CHECKING:
    from accelerate_migrate.analysis.store import Store

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(slots=True)
class Names:
    """The names of one scope: bound here, declared ``global``, declared ``nonlocal``."""

    bound: set[str] = field(default_factory=set)
    global_: set[str] = field(default_factory=set)
    nonlocal_: set[str] = field(default_factory=set)
    star_import: bool = False


def own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """The nodes that run in this very scope (nested functions and classes appear, their insides do not)."""
    body = [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, _NESTED):
            outside: list[ast.AST] = list(getattr(node, "decorator_list", ()))
            if isinstance(node, ast.ClassDef):
                outside += [*node.bases, *(k.value for k in node.keywords)]
            else:
                outside += [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
            stack.extend(reversed(outside))
        else:
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """Every parameter of a function, in order, ``*args`` and ``**kwargs`` last."""
    spec = function.args
    found = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return found + [a for a in (spec.vararg, spec.kwarg) if a is not None]


def binding_scope(module: Tree, store: Store, node: ast.Name) -> ast.AST:
    """The scope that binds the name at this node."""
    scope = module.scope(node)
    while not isinstance(scope, ast.Module):
        names = store.scope_names(scope)
        if node.id in names.global_:
            return module.root(node)
        if node.id in names.bound and not isinstance(scope, ast.ClassDef):
            return scope
        scope = module.scope(scope)
    return scope


def is_decorated(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, decorator: str) -> bool:
    """Whether a function has a plain decorator of this name, like ``property``."""
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return any(isinstance(d, ast.Name) and d.id == decorator for d in decorators)


def argument_for(call: ast.Call, function: ast.AST, name: str) -> ast.expr | None:
    """The argument of a call that becomes this parameter of the function, or ``None``."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if (function.name == "__init__" or names[:1] == ["self"]) and not passes_self(call):
        names = names[1:]  # the object itself is not among the arguments
    if name in names and not any(isinstance(a, ast.Starred) for a in call.args):
        index = names.index(name)
        if index < len(call.args):
            return call.args[index]
    return None


def default_for(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """The default of this parameter of a function, or ``None``."""
    spec = function.args
    named = [*spec.posonlyargs, *spec.args]
    pairs = [
        *zip(reversed(named), reversed(spec.defaults), strict=False),
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)


def passes_self(call: ast.Call) -> bool:
    """Whether this is ``Base.__init__(self, ...)``."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "__init__"
        and not (isinstance(call.func.value, ast.Call))
    )


def assigned_targets(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    """The targets of an assignment of any kind."""
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def names_of(scope: Scope) -> Names:
    """The names that this scope binds."""
    names = Names()
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        names.bound.update(a.arg for a in parameters(scope))
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.bound.add(node.id)
        elif isinstance(node, DEFINITIONS):
            names.bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    names.star_import = True
                else:
                    names.bound.add(alias.asname or alias.name.split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.bound.add(node.name)
        elif isinstance(node, ast.Global):
            names.global_.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            names.nonlocal_.update(node.names)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            names.bound.add(node.name)
    names.bound -= names.global_ | names.nonlocal_
    return names
