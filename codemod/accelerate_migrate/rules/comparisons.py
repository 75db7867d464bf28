"""Comparisons of a device with a text, ``device == "cuda"``: the accelerator's device has a type that says the same."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import Const, DeviceValue
from accelerate_migrate.analysis.devices import DeviceDefinition, is_of_self
from accelerate_migrate.analysis.scopes import binding_scope
from accelerate_migrate.analysis.tensor_types import torch_name
from accelerate_migrate.analysis.values import Value, is_device
from accelerate_migrate.rules.base import Context, short
from accelerate_migrate.rules.calls import library_names


@dataclass(frozen=True, slots=True)
class Kept:
    """A variable or attribute that stays and holds the accelerator's device now; else, if not ``certain``, a text."""

    target: str
    definition: DeviceDefinition
    certain: bool


def compare_types(context: Context, node: ast.expr, kept: list[Kept], replaceable: Callable[[ast.Name], bool]) -> None:
    """Rewrite a node that compares a device, or looks into its text, to its type."""
    if isinstance(node, ast.Call):
        _starts_with(context, node, kept, replaceable)
        return
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not context.may_change(node):
        return
    left, right = node.left, node.comparators[0]
    if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        if _named(context, left):
            left, right = right, left
        kinds = _named(context, right)
        subject = _without_str(left)
    elif isinstance(node.ops[0], (ast.In, ast.NotIn)):
        listed = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
        found = [_named(context, item) for item in listed]
        if listed and all(found):
            _of_several(context, node, [kind for kind in found if kind], kept, replaceable)
            return
        kinds = _named(context, left) if isinstance(left, ast.Constant) else None
        left, right = right, left
        subject = _without_str(left)
    else:
        return
    if kinds is None or (isinstance(right, ast.Call) and kinds == "cpu"):
        return
    template = _type_of(context, subject, kept, replaceable, compared=right, as_text=subject is not left)
    if template is None:
        return
    holes = [subject] if "{0}" in template else []
    context.replace(left, template, *holes)
    if not holes:
        context.gone.add(left)
    if not isinstance(right, ast.Constant) or right.value != kinds:
        context.replace(right, f'"{kinds}"')
    context.migrated(node, f"{short(node)} compares the type of the accelerator's device")


def _of_several(
    context: Context, node: ast.Compare, kinds: list[str], kept: list[Kept], replaceable: Callable[[ast.Name], bool]
) -> None:
    """``device in ("cuda", "cuda:0")``."""
    subject = _without_str(node.left)
    template = _type_of(context, subject, kept, replaceable, compared=None, as_text=subject is not node.left)
    if template is None:
        return
    unique = list(dict.fromkeys(kinds))
    positive = isinstance(node.ops[0], ast.In)
    if len(unique) == 1:
        rest = f' {"==" if positive else "!="} "{unique[0]}"'
    else:
        rest = f" {'in' if positive else 'not in'} ({', '.join(chr(34) + kind + chr(34) for kind in unique)})"
    context.replace(node, template + rest, *([subject] if "{0}" in template else []))
    context.migrated(node, f"{short(node)} compares the type of the accelerator's device")


def _starts_with(context: Context, node: ast.Call, kept: list[Kept], replaceable: Callable[[ast.Name], bool]) -> None:
    """``device.startswith("cuda")``."""
    func = node.func
    if not (
        isinstance(func, ast.Attribute) and func.attr == "startswith" and len(node.args) == 1 and not node.keywords
    ):
        return
    kind = _named(context, node.args[0])
    if kind is None or not isinstance(node.args[0], ast.Constant) or not context.may_change(node):
        return
    subject = _without_str(func.value)
    template = _type_of(context, subject, kept, replaceable, compared=node.args[0], as_text=subject is not func.value)
    if template is not None:
        context.replace(node, f'{template} == "{kind}"', *([subject] if "{0}" in template else []))
        context.migrated(node, f"{short(node)} compares the type of the accelerator's device")


def _without_str(node: ast.expr) -> ast.expr:
    """The device of ``str(device)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        return node.args[0]
    return node


def _named(context: Context, node: ast.expr) -> str | None:
    """The type of the device that a constant or ``torch.device("cuda:0")`` names."""
    if (
        isinstance(node, ast.Call)
        and library_names(context.plan, node.func) == {"torch.device"}
        and len(node.args) == 1
    ):
        node = node.args[0]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        kind = node.value.split(":")[0]
        return kind if kind in ("cuda", "cpu", "mps", "xpu") else None
    return None


def _type_of(
    context: Context,
    subject: ast.expr,
    kept: list[Kept],
    replaceable: Callable[[ast.Name], bool],
    *,
    compared: ast.expr | None,
    as_text: bool,
) -> str | None:
    """The type of the device that a variable becomes, as a template; ``None`` where it stays what it is.

    A text is no device: only what was a text (or was made one, ``as_text``) was ever equal to a text.
    """
    if not isinstance(subject, (ast.Name, ast.Attribute)) or not isinstance(subject.ctx, ast.Load):
        return None
    one = context.plan.value(subject)
    of_device = isinstance(compared, ast.Call)
    if not is_device(one) or (of_device and _is_text(one)) or not (of_device or as_text or _is_text(one)):
        return None
    if isinstance(subject, ast.Name) and replaceable(subject):
        return f"{context.device(subject)}.type"
    for held in kept:
        if held.target == ast.unparse(subject) and _sees(context, subject, held.definition):
            torch = torch_name(context.plan.module, subject)
            return "{0}.type" if held.certain else f"{torch}.device({{0}}).type" if torch is not None else None
    return None


def _is_text(one: Value) -> bool:
    return any(isinstance(a, Const) or (isinstance(a, DeviceValue) and a.is_string) for a in one)


def _sees(context: Context, subject: ast.Name | ast.Attribute, definition: DeviceDefinition) -> bool:
    """Whether a read comes after this definition."""
    module = context.plan.module
    if isinstance(subject, ast.Name):
        if binding_scope(module, context.plan.store, subject) is not definition.scope:
            return False
    elif is_of_self(ast.unparse(subject)):
        owners = (module.class_of(module.function(subject)), module.class_of(definition.scope))
        if not context.plan.placement.are_related(*owners):
            return False
    if module.function(subject) is not definition.scope:
        return True
    return subject.lineno > definition.statement.lineno
