"""AM900: what this version does not migrate is refused, with the place and the reason."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Library
from accelerate_migrate.analysis.library import foreign, is_understood_precision
from accelerate_migrate.analysis.library_arrays import is_cuda_tensor_type
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.parallel_library import is_parallel
from accelerate_migrate.analysis.settings import opaque_exec
from accelerate_migrate.analysis.store import Store
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import BOTTOM
from accelerate_migrate.codes import UNSUPPORTED
from accelerate_migrate.findings import Finding, Severity


def check(module: Module, store: Store) -> None:
    """Raise ``Unclear`` where a module uses machinery that the migration would have to take apart."""
    for node in module.walk():
        if not isinstance(node, ast.Call):
            continue
        for atom in store.values.get(node.func, BOTTOM):
            if isinstance(atom, Library) and not is_understood_precision(atom.name):
                what = foreign(atom.name)
                if what is not None and not is_parallel(atom.name):
                    raise Unclear(f"this script uses {what}, which this version does not migrate", node)
    opaque = opaque_exec(module, store)
    if opaque is not None:
        raise Unclear("this script runs code from elsewhere by exec, which can change any name", opaque)


def notes(module: Module, store: Store | None, skipped: frozenset[int]) -> list[Finding]:
    """What stands in a file that does not train a PyTorch model by itself: named, not changed."""
    found: dict[tuple[int, int], Finding] = {}
    for node in module.walk():
        if not isinstance(node, ast.Call) or node.lineno in skipped:
            continue
        named = (
            [a.name for a in store.values.get(node.func, BOTTOM) if isinstance(a, Library)] if store is not None else []
        )
        method = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        machinery = next(filter(None, map(foreign, named)), None)
        if store is None and method == "backward":
            message = "not PyTorch; not migrated"
        elif method == "cuda" or any(map(is_cuda_tensor_type, named)):
            message = "moves to CUDA in a file that does not train by itself; not migrated"
        elif "torch.cuda.set_device" in named:
            message = "chooses a CUDA device in a file that does not train by itself; not migrated"
        elif method == "backward":
            message = "no loss that an optimizer of this file steps on; not migrated"
        elif machinery is not None:
            message = f"uses {machinery} in a file that does not train by itself; not migrated"
        else:
            continue
        found[node.lineno, node.col_offset] = _finding(module, node, Severity.NOTE, message, node.lineno)
    return [found[key] for key in sorted(found)]


def refusal(module: Module, unclear: Unclear) -> Finding:
    """The finding of a file that is left whole."""
    return _finding(module, unclear.node, Severity.REFUSED, f"not migrated: {unclear.message}", unclear.line)


def _finding(module: Module, node: ast.AST | None, severity: Severity, message: str, line: int) -> Finding:
    column = module.column(node) if node is not None else 1
    end = getattr(node, "end_lineno", None) or line
    return Finding(UNSUPPORTED.code, UNSUPPORTED.name, severity, line, column, end, message)
