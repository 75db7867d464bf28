"""Branches that do the same with and without mixed precision: one of the two is enough for an accelerator."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from accelerate_migrate.analysis.atoms import Role

if TYPE_CHECKING:
    from accelerate_migrate.analysis.precision import Precision

SCALE_LOSS = "apex.amp.scale_loss"
MASTER_PARAMS = "apex.amp.master_params"


def collapsible(precision: Precision) -> dict[ast.If, str]:
    """The ``if``s whose branches differ in mixed precision alone, with the branch to keep.

    That is the plain one, unless the other has autocast.
    """
    found: dict[ast.If, str] = {}
    module = precision.module
    entered = {region.node for region in precision.regions}
    for node in module.walk():
        if not isinstance(node, ast.If) or not node.orelse or _is_elif(precision, node):
            continue
        lower = {
            name: [n for s in getattr(node, name) for n in module.walk(s) if _is_of_precision(precision, n)]
            for name in ("body", "orelse")
        }
        if any(lower.values()) and _plain(precision, node.body) == _plain(precision, node.orelse):
            mixed, other = ("body", "orelse") if lower["body"] else ("orelse", "body")
            found[node] = mixed if entered.intersection(lower[mixed]) else other
    return found


def master_parameters(precision: Precision, call: ast.Call) -> str | None:
    """The source that means what ``amp.master_params(optimizer)`` did: the parameters of the optimizer's model."""
    training, module = precision.training, precision.module
    wanted = {
        owner
        for argument in call.args
        for site in training.value(argument).sites(Role.OPTIMIZER)
        for owner in (training.store.details[site].owners or training.value(call)).sites(Role.MODEL)
    }
    for node in module.walk(module.function(call)):
        if isinstance(node, ast.Name) and len(wanted) == 1 and training.value(node).sites() == wanted:
            return f"{node.id}.parameters()"
    return None


def _is_elif(precision: Precision, node: ast.If) -> bool:
    parent = precision.module.parents[node]
    return isinstance(parent, ast.If) and parent.orelse == [node]


def _is_of_precision(precision: Precision, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        named = precision.training.library_names(node.func)
        if named & {SCALE_LOSS, MASTER_PARAMS}:
            return True
        return isinstance(node.func, ast.Attribute) and precision.is_scaler(node.func.value)
    return isinstance(node, ast.With) and any(region.node is node for region in precision.regions)


def _plain(precision: Precision, statements: list[ast.stmt]) -> str:
    """The source of statements as they would be without mixed precision."""
    copies = [copy.deepcopy(statement) for statement in statements]
    origin = {
        new: old
        for statement, new_statement in zip(statements, copies, strict=True)
        for old, new in zip(ast.walk(statement), ast.walk(new_statement), strict=True)
    }
    kept: list[str] = []
    for statement in copies:
        result = _Plain(precision, origin).visit(statement)
        kept += [ast.unparse(one) for one in (result if isinstance(result, list) else [result]) if one is not None]
    return "\n".join(kept)


class _Plain(ast.NodeTransformer):
    def __init__(self, precision: Precision, origin: dict[ast.AST, ast.AST]) -> None:
        self.precision = precision
        self.origin = origin

    def visit_With(self, node: ast.With) -> object:
        old = self.origin[node]
        self.generic_visit(node)
        regions = [region for region in self.precision.regions if region.node is old]
        if len(regions) == len(node.items) and not any(region.off for region in regions):
            return node.body
        item = node.items[0]
        if len(node.items) == 1 and isinstance(item.context_expr, ast.Call) and self._is(item.context_expr, SCALE_LOSS):
            name = item.optional_vars
            if isinstance(name, ast.Name) and item.context_expr.args:
                renamed = _Renamed(name.id, item.context_expr.args[0])
                return [renamed.visit(statement) for statement in node.body]
        return node

    def visit_Expr(self, node: ast.Expr) -> object:
        call = self.origin[node.value]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr in ("update", "unscale_") and self.precision.is_scaler(call.func.value):
                return None
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> object:
        return None

    def visit_Call(self, node: ast.Call) -> object:
        old = self.origin[node]
        self.generic_visit(node)
        if self._is(node, MASTER_PARAMS):
            assert isinstance(old, ast.Call)
            source = master_parameters(self.precision, old)
            return ast.parse(source, mode="eval").body if source is not None else node
        if not (isinstance(old, ast.Call) and isinstance(old.func, ast.Attribute) and node.args):
            return node
        if not self.precision.is_scaler(old.func.value):
            return node
        if old.func.attr == "scale":
            return node.args[0]
        if old.func.attr == "step":
            step = ast.Attribute(node.args[0], "step", ast.Load())
            return ast.Call(step, node.args[1:], node.keywords)
        return node

    def _is(self, node: ast.Call, name: str) -> bool:
        old = self.origin.get(node)
        if not isinstance(old, ast.Call):
            return False
        return name in self.precision.training.library_names(old.func)


class _Renamed(ast.NodeTransformer):
    def __init__(self, name: str, new: ast.expr) -> None:
        self.name = name
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.new if node.id == self.name else node
