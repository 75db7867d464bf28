"""The new libcst tree: only the nodes on the way to an edit are made anew, all others are those of the file."""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from ..edits import EditConflict, Replace
from . import templates
from .calls import edit_call, edit_function
from .locate import Path, Trees, blocks, follow, put
from .plan import Plan, describe, target
from .precedence import bare, fit, is_bracketed, parenthesized, requoted
from .statements import Blocks


class Rewriter:
    """One file's trees and edits, and the edited libcst node of any of its ast nodes."""

    def __init__(self, trees: Trees, plan: Plan) -> None:
        self.trees = trees
        self.plan = plan
        self.blocks = Blocks(self)
        self._dirty: set[int] = {id(trees.tree)} if plan else set()
        self._open: set[int] = set()  # replaced nodes whose holes are being filled
        self._holes = {id(hole) for edit in plan.edits for hole in getattr(edit, "holes", ())}
        for edit in plan.edits:
            if id(target(edit)) not in trees.parents:
                raise EditConflict(f"{describe(edit)} is not about a node of this file's tree")
        for node in plan.targets():
            self._dirty.add(id(node))
            for ancestor in trees.ancestors(node):
                if id(ancestor) in self._dirty:
                    break
                self._dirty.add(id(ancestor))

    def module(self) -> cst.Module:
        """The edited module."""
        module: cst.Module = self.inner(self.trees.tree) if self.plan else self.trees.module
        self._check_unused()
        return module

    def changes(self, node: ast.AST) -> bool:
        """Whether an edit is about this node or one inside of it."""
        return id(node) in self._dirty

    def node(self, node: ast.AST) -> Any:
        """The edited libcst node of an ast node."""
        replace = self.plan.replace.get(id(node))
        if replace is not None and id(node) not in self._open:
            return self._replacement(node, replace)
        return self.inner(node) if id(node) in self._dirty else self.trees.node(node)

    def holes(self, edit: Any) -> list[Any]:
        """What fills the holes of an edit."""
        return [self.node(hole) for hole in edit.holes]

    def inner(self, node: ast.AST) -> Any:
        """The libcst node with the edits inside of it, and those of its arguments or parameters."""
        old = new = self.trees.node(node)
        for child, path in self.trees.children(node):
            if id(child) in self._dirty:
                if isinstance(child, ast.stmt):
                    new = put(new, path, self.blocks.elif_branch(child, follow(old, path)))
                else:
                    new = self._with_child(new, path, child)
        for block in blocks(node, old):
            if any(id(statement) in self._dirty for statement in block.statements):
                new = self.blocks.edited(new, block.path, block.statements, follow(old, block.path))
        if isinstance(node, ast.Call) and (calls := self.plan.calls.get(id(node))):
            places = {id(child): path[0][1] or 0 for child, path in self.trees.children(node) if path[0][0] == "args"}
            for child in node.args:
                if isinstance(child, ast.Starred):
                    places[id(child)] = self.trees.path(child)[0][1] or 0
            new = edit_call(node, new, calls, places)
            self.plan.use(calls)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (params := self.plan.functions.get(id(node))):
            new = edit_function(node, new, params)
            self.plan.use(params)
        return new

    # --- expressions --------------------------------------------------------------------------------------------------

    def _replacement(self, node: ast.AST, edit: Replace) -> Any:
        self._open.add(id(node))
        try:
            holes = self.holes(edit)
        finally:
            self._open.discard(id(node))
        if id(node) in self.plan.calls and not any(hole is node for hole in edit.holes):
            raise EditConflict(f"{describe(edit)} and {describe(self.plan.calls[id(node)][0])} change one call")
        self.plan.use(edit)
        new = templates.expression(edit.template, holes, bracketed=self._is_bracketed(node))
        for ancestor in self.trees.ancestors(node):
            if isinstance(ancestor, ast.JoinedStr):
                quote = next(iter(_quotes(self.trees.node(ancestor))), "")
                new = requoted(new, quote) if isinstance(new, cst.BaseExpression) else new
        return new

    def _with_child(self, parent: Any, path: Path, child: ast.AST) -> Any:
        """``parent`` with the edited ``child`` at the end of ``path``."""
        new = self.node(child)
        place = follow(parent, path[:-1])
        if id(child) in self.plan.replace:
            if isinstance(new, cst.BaseExpression):
                new = fit(new, place, path[-1][0], self._is_bracketed(child))
            new = _as_kind_of(self.trees.node(child), new)
        in_string = path[-1][0] == "expression" and isinstance(place, cst.FormattedStringExpression)
        if in_string and cst.Module(()).code_for_node(new).startswith("{"):
            parent = put(parent, (*path[:-1], ("whitespace_before_expression", None)), cst.SimpleWhitespace(" "))
        try:
            return put(parent, path, new)
        except cst.CSTValidationError:  # two words would meet, as in return(x) without its parentheses
            return put(parent, path, parenthesized(new))

    def _is_bracketed(self, node: ast.AST) -> bool:
        """Whether a line may end in this node's place. What fills a hole is asked again where it comes to stand."""
        while not isinstance(node, ast.stmt):
            if id(node) in self._holes:
                return True
            parent = self.trees.parents[id(node)]
            path = self.trees.path(node)
            place = self.trees.node(parent)
            if not isinstance(place, tuple | list):
                for i, (field, _) in enumerate(path):
                    if field and is_bracketed(follow(place, path[:i]), field):
                        return True
            node = parent
        return False

    # --- what is left -------------------------------------------------------------------------------------------------

    def _check_unused(self) -> None:
        """Edits whose place is gone: with a statement that was deleted that is meant, otherwise it is a conflict."""
        for edit in self.plan.unused():
            node = target(edit)
            if not self._is_gone(node):
                raise EditConflict(f"{describe(edit)} changes what another edit replaced")

    def _is_gone(self, node: ast.AST) -> bool:
        inside = node
        for around in [node, *self.trees.ancestors(node)]:
            if id(around) in self.plan.delete:
                return True
            if id(around) in self.plan.unwrap and inside is not around:
                kept = getattr(around, self.plan.unwrap[id(around)].branch)
                if not any(statement is inside for statement in kept):
                    return True
            inside = around
        return False


def _as_kind_of(old: Any, new: Any) -> Any:
    """An expression that takes the place of what is more than one in libcst: ``*args``, a slice, a bare tuple."""
    if not isinstance(new, cst.BaseExpression) or isinstance(new, cst.StarredElement):
        return new
    if isinstance(old, cst.Arg):
        return cst.Arg(new, comma=old.comma, whitespace_after_arg=old.whitespace_after_arg)
    if isinstance(old, cst.StarredElement):
        return cst.Element(new, comma=old.comma)
    if isinstance(old, cst.Slice | cst.Index):
        return cst.Index(new)
    if isinstance(old, tuple | list):
        return (cst.SubscriptElement(cst.Index(bare(new))),)
    if not isinstance(old, cst.BaseExpression):
        raise EditConflict(f"a {type(old).__name__} cannot be replaced by an expression")
    return new


def _quotes(string: Any) -> list[str]:
    """The quotes of an f-string, or of the f-strings that stand side by side."""
    if isinstance(string, cst.ConcatenatedString):
        return [*_quotes(string.left), *_quotes(string.right)]
    return [string.end] if isinstance(string, cst.FormattedString) else []
