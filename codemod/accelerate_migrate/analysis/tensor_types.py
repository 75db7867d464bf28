"""Tensor types of the old kind, ``torch.FloatTensor`` and ``torch.cuda.FloatTensor``: a dtype and a device in one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import Const, Library
from accelerate_migrate.analysis.modules import Tree
from accelerate_migrate.analysis.values import Value

_NAME = re.compile(r"torch\.(?P<cuda>cuda\.)?(?P<kind>[A-Z]\w*?)?Tensor")
DEFAULT_DTYPE = "float32"
# The dtype of each, and the method of a tensor that converts to it.
_KINDS = {
    "Float": ("float32", "float"),
    "Double": ("float64", "double"),
    "Half": ("float16", "half"),
    "BFloat16": ("bfloat16", "bfloat16"),
    "Long": ("long", "long"),
    "Int": ("int32", "int"),
    "Short": ("int16", "short"),
    "Char": ("int8", "char"),
    "Byte": ("uint8", "byte"),
    "Bool": ("bool", "bool"),
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor type: its dtype's name in ``torch``, the method that converts to it, whether it may be one of CUDA."""

    dtype: str
    method: str
    cuda: bool


def named_type(name: str) -> TensorType | None:
    """The tensor type of this qualified name (``torch.Tensor`` is ``torch.FloatTensor``), or ``None``."""
    match = _NAME.fullmatch(name)
    if match is None or (match["cuda"] and not match["kind"]):
        return None
    known = _KINDS.get(match["kind"] or "Float")
    return TensorType(*known, cuda=bool(match["cuda"])) if known else None


def tensor_type(one: Value) -> TensorType | None:
    """The tensor type that a value is, by its name or a text with it; ``None`` where it may be another dtype's."""
    names = [str(a.value if isinstance(a, Const) else a.name) for a in one if isinstance(a, (Const, Library))]
    found = [named_type(name) for name in names]
    if not found or len(names) < len(one.atoms):
        return None
    first = found[0]
    if first is None or any(other is None or other.dtype != first.dtype for other in found):
        return None
    return TensorType(first.dtype, first.method, any(other is not None and other.cuda for other in found))


def torch_name(module: Tree, node: ast.AST) -> str | None:
    """The name under which the file of a node imports torch; ``None`` where it only imports things from it."""
    root = module.root(node)
    for imported in module.walk(root):
        if isinstance(imported, ast.Import) and module.scope(imported) is root:
            for alias in imported.names:
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    return alias.asname or "torch"
    return None
