"""The device of code that need not know the accelerator: that of a tensor it is given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from accelerate_migrate.analysis.atoms import (
    Array,
    ClassRef,
    Const,
    FunctionRef,
    Library,
    Mapping_,
    Object,
    Origin,
    Sequence_,
    Tensor,
)
from accelerate_migrate.analysis.library import is_layer
from accelerate_migrate.analysis.modules import Tree
from accelerate_migrate.analysis.scopes import is_decorated, parameters
from accelerate_migrate.analysis.values import Value

_ONLY_OF_TENSORS = frozenset(
    {
        "unsqueeze",
        "permute",
        "contiguous",
        "detach",
        "is_cuda",
        "type_as",
        "requires_grad",
        "masked_fill",
        "scatter_",
        "long",
        "half",
        "cuda",
        "expand",
        "expand_as",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_tensor",
        "log_softmax",
        "numel",
    }
)
_ON_DEVICE = (Origin.BATCH, Origin.OUTPUT, Origin.PARAMETER)
Evaluate: TypeAlias = Callable[[ast.AST], Value]
# Asking this of something says that it is a tensor of torch.
_OF_TENSORS = _ONLY_OF_TENSORS | {
    "bmm",
    "chunk",
    "data",
    "device",
    "dim",
    "double",
    "float",
    "gather",
    "matmul",
    "mm",
    "nelement",
    "new",
    "new_empty",
    "requires_grad_",
    "size",
    "softmax",
    "view",
}


def device_at_hand(module: Tree, value: Evaluate, node: ast.AST, *, trusting: bool = False) -> str | None:
    """The source of the device of a tensor at hand here, ``x.device``, in a function that is given tensors.

    Such a tensor is known to come from a loader or a model; inside a module of layers, or where the caller has nothing
    better (``trusting``), being used as a tensor is enough. ``None`` where there is none.
    """
    function = module.function(node)
    if isinstance(function, ast.Module):
        return None
    in_layers = layers_around(module, value, node) is not None
    moved = _moved_by(module, function)
    itself = _whole(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None

    def may_be(name: ast.Name) -> bool:
        return _may_be_on_device(value, name, trusting=(trusting or in_layers) and name.id not in moved)

    for name in _measured(node):
        if not in_layers and not _is_on_device(value(name)) and not _has_torch_size(module, function, name.id):
            continue
        if may_be(name) and _is_local(module, function, name.id):
            return f"{name.id}.device"
    for parameter in parameters(function):
        if isinstance(itself, ast.Name) and parameter.arg == itself.id:
            continue  # that it is moved says that it may be elsewhere
        reads = [n for n in module.walk(function) if isinstance(n, ast.Name) and n.id == parameter.arg]
        if not reads or parameter in (function.args.vararg, function.args.kwarg):
            continue
        asked = any(_is_asked_of_tensors(module, n, only=not in_layers) for n in reads)
        if all(_is_on_device(value(n)) or (asked and may_be(n)) for n in reads):
            return f"{parameter.arg}.device"
    return None


def layers_around(module: Tree, value: Evaluate, node: ast.AST) -> ast.ClassDef | None:
    """The class deriving from ``nn.Module`` of which this node is in a method, or ``None``."""
    for around in module.ancestors(node):
        if isinstance(around, ast.ClassDef):
            return around if any(map(partial(_is_of_modules, value), around.bases)) else None
    return None


def device_of_parameters(module: Tree, value: Evaluate, node: ast.AST) -> str | None:
    """``next(self.parameters()).device`` in a method, not ``__init__``, of a module with layers of its own."""
    owner = layers_around(module, value, node)
    function = module.function(node)
    if owner is None or isinstance(function, ast.Module) or function not in owner.body or function.name == "__init__":
        return None
    if is_decorated(function, "staticmethod") or is_decorated(function, "classmethod") or not function.args.args:
        return None
    made = (n for n in module.walk(owner) if isinstance(n, ast.Call))
    if not any(is_layer(a.name) for call in made for a in value(call.func) if isinstance(a, Library)):
        return None
    return f"next({function.args.args[0].arg}.parameters()).device"


def _moved_by(module: Tree, function: ast.AST) -> set[str]:
    """The names whose tensors a function moves itself: they may come from anywhere."""
    moved: set[str] = set()
    for node in module.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("cuda", "to", "cpu")
        ):
            whole = _whole(node.func.value)
            if isinstance(whole, ast.Name):
                moved.add(whole.id)
    return moved


def _whole(node: ast.expr) -> ast.expr:
    """What is moved of a tensor that an expression is a part or a wrapping of: ``x[0]``, ``Variable(x)``."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else (node.args or [node.func])[0]
    return node


def _is_of_modules(value: Evaluate, base: ast.expr) -> bool:
    for atom in value(base):
        if (
            isinstance(atom, Library)
            and atom.name.startswith("torch.nn.")
            and atom.name.rsplit(".", 1)[-1][0].isupper()
        ):
            return True
        if isinstance(atom, ClassRef) and any(map(partial(_is_of_modules, value), atom.node.bases)):
            return True
    return False


def _measured(node: ast.AST) -> Iterator[ast.Name]:
    """The names whose size an expression asks for: ``x`` of ``torch.zeros(x.size(0))``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape") and isinstance(inner.value, ast.Name):
            yield inner.value


def _is_local(module: Tree, function: ast.AST, name: str) -> bool:
    """Whether a name is a parameter of the function, or is bound in it."""
    bound = any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in module.walk(function)
    )
    return bound or (
        isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in {a.arg for a in parameters(function)}
    )


def _is_on_device(one: Value) -> bool:
    """Whether every alternative is a tensor that a loader, a model or an operation on such gives."""
    atoms = list(one)
    return bool(atoms) and all(isinstance(a, Tensor) and a.origin in _ON_DEVICE for a in atoms)


def _may_be_on_device(value: Evaluate, name: ast.Name, *, trusting: bool) -> bool:
    """Whether a name can hold a tensor of the device: known to (or, ``trusting``, not known to be anything else)."""
    one = value(name)
    if _is_on_device(one):
        return True
    others = (Array, Object, FunctionRef, ClassRef, Library, Mapping_, Sequence_, Const)
    return trusting and not any(
        isinstance(a, others) or (isinstance(a, Tensor) and a.origin in (Origin.FRESH, Origin.ARRAY)) for a in one
    )


def _is_asked_of_tensors(module: Tree, name: ast.Name, *, only: bool) -> bool:
    """Whether a name is asked what tensors are asked (``only``: and NumPy's arrays are not)."""
    parent = module.parents[name]
    if not isinstance(parent, ast.Attribute):
        return False
    if only and parent.attr == "size":
        return _is_called(module, parent)
    return parent.attr in (_ONLY_OF_TENSORS if only else _OF_TENSORS)


def _has_torch_size(module: Tree, function: ast.AST, name: str) -> bool:
    """Whether a function calls ``name.size(...)``: NumPy's ``size`` is no method."""
    return any(
        isinstance(n, ast.Attribute) and n.attr == "size" and ast.unparse(n.value) == name and _is_called(module, n)
        for n in module.walk(function)
    )


def _is_called(module: Tree, node: ast.Attribute) -> bool:
    call = module.parents[node]
    return isinstance(call, ast.Call) and call.func is node
