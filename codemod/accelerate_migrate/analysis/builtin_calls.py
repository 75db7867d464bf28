"""Calls of Python's builtins."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelerate_migrate.analysis import processes, tensors
from accelerate_migrate.analysis.atoms import (
    Atom,
    BaseOf,
    Batches,
    ClassRef,
    DeviceValue,
    FunctionRef,
    Library,
    Mapping_,
    ModuleRef,
    Number,
    Object,
    Reduction,
    Role,
    Sequence_,
    Tensor,
)
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.values import (
    ANY,
    BOTTOM,
    MAX_ALTERNATIVES,
    Value,
    element,
    join,
    sequence,
    value,
)

if TYPE_CHECKING:
    from accelerate_migrate.analysis.calls import Calls


def call_builtin(calls: Calls, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
    """What a call of a builtin may return."""
    first = given.positional[0] if given.positional else BOTTOM
    if name == "len":
        counted = [a for a in first if isinstance(a, Tensor) and a.reduction is Reduction.ROWS]
        return value(Number(Reduction.COUNT, counted[0].loaders)) if counted else value(Number())
    if name == "enumerate":
        return join(_enumerated(atom) for atom in iterated(first))
    if name == "zip":
        drawn = [a.loaders for v in given.positional for a in iterated(v) if isinstance(a, Batches) and not a.counted]
        if drawn:  # each item is a tuple of batches, which a batch of unknown make stands for
            return value(Batches(frozenset().union(*drawn)))
        return value(Sequence_((), sequence(element(v) for v in given.positional)))
    if name == "next":
        return element(first)
    if name == "super":
        return _super(frame)
    if name == "filter":
        return given.positional[1] if len(given.positional) > 1 else ANY
    if name == "map":
        return value(Sequence_((), _mapped(calls, given)))
    if name in ("float", "int", "bool", "str") and processes.share(first) is not None:
        return first
    if name in ("float", "int"):
        numbers = [a for a in first if isinstance(a, (Tensor, Number))]
        return value(*(Number(a.reduction, a.loaders, a.models) for a in numbers)) if numbers else value(Number())
    if name == "sum":
        return tensors.arithmetic(element(first), element(first), "+")
    if name == "getattr" and len(node.args) > 1:
        named = given.positional[1].const()
        if isinstance(named, str):
            return calls.attribute(first, named, None, frame)
        return join(_any_of(calls, atom) for atom in first)
    if name == "dict":
        pairs = [a for a in first if isinstance(a, Sequence_)]
        if pairs and len(first.atoms) == 1 and not given.keywords:
            return value(Mapping_((), element(element(first), 1)))
        return value(Mapping_(tuple(given.keywords.items()), ANY if given.positional or given.unknown else None))
    if name in ("range", "round", "abs", "max", "min"):
        return value(Number()) if name != "range" else value(Sequence_((), value(Number())))
    if name == "str":
        device = [a for a in first if isinstance(a, DeviceValue)]
        return value(DeviceValue(is_string=True)) if device else ANY
    return ANY


def _any_of(calls: Calls, atom: Atom) -> Value:
    """``getattr(atom, name)`` for a name that is not known: of a file, any of the functions and classes there."""
    if isinstance(atom, Library):
        return value(Library(atom.name + ".?"))
    if not isinstance(atom, ModuleRef):
        return ANY
    tree = atom.module.tree
    named = [calls.stored(tree, name) or BOTTOM for name in sorted(calls.scope_names(tree).bound)]
    found = [a for one in named for a in one if isinstance(a, (FunctionRef, ClassRef))]
    own = [a for a in found if a.module is atom.module] or found
    return value(*own) if 0 < len(own) <= MAX_ALTERNATIVES else ANY


def _super(frame: Frame) -> Value:
    """``super()`` (or ``super(Class, self)``) in a method."""
    scope = frame.scope
    parent = frame.module.parents.get(scope)
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(parent, ast.ClassDef):
        return ANY
    first = scope.args.args[0].arg if scope.args.args else ""
    return value(BaseOf(frame.env.get(first, ANY), ClassRef(parent, frame.module)))


def _mapped(calls: Calls, given: Arguments) -> Value:
    if len(given.positional) < 2:
        return ANY
    results = [
        calls.call_function(atom, Arguments([element(v) for v in given.positional[1:]]))
        for atom in given.positional[0].of(FunctionRef)
    ]
    return join(results) if results else ANY


def iterated(one: Value) -> Value:
    """A value as an iterator goes through it: of a loader, its batches."""
    return join(
        value(Batches(frozenset([a.site]))) if isinstance(a, Object) and a.site.role is Role.LOADER else value(a)
        for a in one
    )


def _enumerated(atom: Atom) -> Value:
    if isinstance(atom, Batches):
        return value(Batches(atom.loaders, counted=True))
    return value(Sequence_((), sequence([value(Number()), element(value(atom))])))
