"""Arguments of calls and parameters of functions that come, go or change their name."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import libcst as cst

from ..edits import (
    AddArgument,
    AddParameter,
    EditConflict,
    RemoveArgument,
    RemoveParameter,
    RenameKeyword,
    RenameParameter,
)
from . import commas
from .plan import CallEdit, FunctionEdit, describe
from .precedence import fit, parenthesized
from .templates import expression


def edit_call(node: ast.Call, tree: Any, edits: Sequence[CallEdit], places: dict[int, int]) -> Any:
    """The call with its edits. ``places``: the number of each of its ast arguments in the libcst list."""
    order: list[ast.AST | AddArgument] = sorted([*node.args, *node.keywords], key=lambda arg: places[id(arg)])
    for edit in edits:
        if isinstance(edit, RenameKeyword):
            i = _place(order, edit.keyword, edit)
            args = list(tree.args)
            args[i] = args[i].with_changes(keyword=cst.Name(edit.new))
            tree = tree.with_changes(args=tuple(args))
    for edit in edits:
        if isinstance(edit, RemoveArgument):
            i = _place(order, edit.argument, edit)
            del order[i]
            left, opening = commas.remove(
                tree.args, i, opening=tree.whitespace_before_args, after="whitespace_after_arg"
            )
            tree = tree.with_changes(args=left, whitespace_before_args=opening)
    for edit in edits:
        if isinstance(edit, AddArgument):
            i = _place_of_new(order, node, edit)
            order.insert(i, edit)
            tree = _with_argument(tree, i, edit)
    return tree


def _place(order: Sequence[object], argument: ast.AST, edit: CallEdit) -> int:
    for i, known in enumerate(order):
        if known is argument:
            return i
    raise EditConflict(f"{describe(edit)}: the call has no such argument any more")


def _place_of_new(order: Sequence[object], node: ast.Call, edit: AddArgument) -> int:
    """Where a new argument goes: in front of the positional one that had its number, if that is still there."""
    if edit.index is None:
        return len(order)
    for argument in node.args[max(edit.index, 0) :]:
        for i, known in enumerate(order):
            if known is argument:
                return i
    for i in range(len(order), 0, -1):
        known = order[i - 1]
        if isinstance(known, ast.expr) or (isinstance(known, AddArgument) and known.index is not None):
            return i
    return 0


def _with_argument(tree: Any, index: int, edit: AddArgument) -> Any:
    value = expression(edit.value)
    if edit.name is None:
        new = cst.Arg(value)
        new = new.with_changes(value=fit(value, new, "value", True))
    else:
        new = cst.Arg(value, keyword=cst.Name(edit.name), equal=cst.AssignEqual(*[cst.SimpleWhitespace("")] * 2))
        new = new.with_changes(value=fit(value, new, "value", True))
    args = tree.args
    if len(args) == 1 and isinstance(args[0].value, cst.GeneratorExp) and not args[0].value.lpar:
        args = (args[0].with_changes(value=parenthesized(args[0].value)),)
    args = commas.insert(args, index, new, opening=tree.whitespace_before_args, after="whitespace_after_arg")
    return tree.with_changes(args=args)


def edit_function(node: ast.FunctionDef | ast.AsyncFunctionDef, tree: Any, edits: Sequence[FunctionEdit]) -> Any:
    """The function with another parameter list. An index of a new parameter counts those that the function had."""
    opening, params = tree.whitespace_before_params, tree.params
    for edit in edits:
        if isinstance(edit, RenameParameter):
            params = _renamed(params, edit)
    adding = [edit for edit in edits if isinstance(edit, AddParameter)]
    total = len(params.posonly_params) + len(params.params)
    adding.sort(key=lambda edit: min(edit.index, total))
    for edit in reversed(adding):  # the last place first, so that the numbers of the others stay right
        params = _with_parameter(params, edit.name, min(edit.index, total), opening)
    for edit in edits:
        if isinstance(edit, RemoveParameter):
            params, opening = _without(params, edit, opening)
    return tree.with_changes(params=params, whitespace_before_params=opening)


def _renamed(params: Any, edit: RenameParameter) -> Any:
    for field in ("posonly_params", "params", "kwonly_params"):
        group = getattr(params, field)
        for i, param in enumerate(group):
            if param.name.value == edit.old:
                return params.with_changes(**{field: (*group[:i], _named(param, edit.new), *group[i + 1 :])})
    for field in ("star_arg", "star_kwarg"):
        param = getattr(params, field)
        if isinstance(param, cst.Param) and param.name.value == edit.old:
            return params.with_changes(**{field: _named(param, edit.new)})
    raise EditConflict(f"the function of line {edit.function.lineno} has no parameter {edit.old}")


def _without(params: Any, edit: RemoveParameter, opening: Any) -> tuple[Any, Any]:
    """The parameters without one of them, and the whitespace after the opening bracket."""
    for field in ("posonly_params", "params", "kwonly_params"):
        group = getattr(params, field)
        for i, param in enumerate(group):
            if param.name.value == edit.name:
                left, space = commas.remove(group, i, opening=opening, after="whitespace_after_param")
                if not left:  # a bare star or slash goes with the last parameter beside it
                    bare = {"kwonly_params": "star_arg", "posonly_params": "posonly_ind"}.get(field, "")
                    if isinstance(getattr(params, bare, None), cst.ParamStar | cst.ParamSlash):
                        params = params.with_changes(**{bare: cst.MaybeSentinel.DEFAULT})
                        if field == "kwonly_params" and params.params and not params.star_kwarg:
                            *before, last = params.params
                            params = params.with_changes(
                                params=(*before, last.with_changes(comma=cst.MaybeSentinel.DEFAULT))
                            )
                leads = field == "posonly_params" or (field == "params" and not params.posonly_params)
                return params.with_changes(**{field: left}), space if leads and i == 0 and left else opening
    raise EditConflict(f"the function of line {edit.function.lineno} has no parameter {edit.name}")


def _named(param: Any, name: str) -> Any:
    changes: dict[str, Any] = {"name": cst.Name(name)}
    if param.annotation is not None:
        changes["annotation"] = None
        if param.default is not None:
            changes["equal"] = cst.AssignEqual(*[cst.SimpleWhitespace("")] * 2)
    return param.with_changes(**changes)


def _with_parameter(params: Any, name: str, index: int, opening: Any) -> Any:
    first = len(params.posonly_params)
    positional_only = index < first
    field = "posonly_params" if positional_only else "params"
    rest = (isinstance(params.star_arg, cst.Param | cst.ParamStar), params.kwonly_params, params.star_kwarg)
    new = commas.insert(
        getattr(params, field),
        index if positional_only else index - first,
        cst.Param(cst.Name(name)),
        opening=opening,
        after="whitespace_after_param",
        followed=positional_only or any(rest),
    )
    return params.with_changes(**{field: new})
