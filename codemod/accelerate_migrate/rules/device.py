"""AM110: `device` variables and spelled-out devices become the accelerator's device."""

from __future__ import annotations

import ast
from functools import partial

from accelerate_migrate.analysis.atoms import Library
from accelerate_migrate.analysis.devices import (
    DeviceDefinition,
    is_device_argument,
    is_of_self,
    is_type_choice,
    spelled_kinds,
)
from accelerate_migrate.analysis.placement import NAME
from accelerate_migrate.analysis.scopes import argument_for, binding_scope, parameters
from accelerate_migrate.analysis.values import is_device, is_index
from accelerate_migrate.edits import RenameKeyword, ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import is_map_location, library_names, moves_storage
from accelerate_migrate.rules.comparisons import Kept, compare_types

_DEVICE_KEYWORDS = ("device", "map_location")
_SPELLINGS = (ast.Call, ast.IfExp, ast.Constant, ast.JoinedStr, ast.BinOp)


def apply(context: Context) -> None:
    """Replace uses first; a definition whose uses are all replaced goes, another one keeps its name."""
    own = {c.definition: c for c in context.plan.placement.creations if c.definition is not None}
    all_kept: list[Kept] = []
    for definition in context.plan.definitions:
        if definition not in own and _chooses_alone(context, definition):
            context.manual(definition.statement, "this object chooses a device of its own; left as it is")
            continue
        kept = _kept_targets(context, definition)
        certain = definition in own or definition.statement in getattr(definition.scope, "body", [])
        all_kept += [Kept(target, definition, certain) for target in kept]
        if definition in own:
            creation = own[definition]
            name = context.plan.placement.text_in(creation)
            context.after_creation.setdefault(creation, []).extend(f"{target} = {name}.device" for target in kept)
        elif not context.has_accelerator(definition.statement):
            continue
        elif kept:
            text = "\n".join(f"{target} = {context.device(definition.statement)}" for target in kept)
            context.edit(ReplaceStatement(definition.statement, text))
            context.migrated(definition.statement, f"`{text}`")
        else:
            context.delete(definition.statement)
            context.migrated(definition.statement, "the device is the accelerator's; this choice is gone")
        context.gone.add(definition.statement)
    for node in context.plan.module.walk():
        if isinstance(node, ast.expr) and not context.is_gone(node):
            compare_types(context, node, all_kept, partial(_replaceable, context))
            if not context.is_gone(node):
                _use(context, node)


def _kept_targets(context: Context, definition: DeviceDefinition) -> list[str]:
    """The targets that something still reads which cannot be given the accelerator's device instead."""
    kept = []
    for target in sorted(definition.targets):
        if is_of_self(target) and _is_unread(context, target):
            continue
        if "." in target or not all(
            _replaceable(context, node) for node in _loads(context, definition, target)
        ):  # an attribute of an object that other code may read
            kept.append(target)
    return kept


def _chooses_alone(context: Context, definition: DeviceDefinition) -> bool:
    """Whether an object's own choice asks for more than the accelerator that it is given was made with."""
    placement = context.plan.placement
    if not any(map(is_of_self, definition.targets)) or not context.has_accelerator(definition.statement):
        return False
    return definition.cpu is not None and all(definition.cpu != creation.cpu for creation in placement.creations)


def _is_unread(context: Context, target: str) -> bool:
    """Whether every read of ``self.device`` is gone."""
    name = target.partition(".")[2]
    nodes = (n for n in context.plan.module.everywhere() if isinstance(n, ast.Attribute) and n.attr == name)
    loads = [n for n in nodes if isinstance(n.ctx, ast.Load) and not context.plan.value(n.value).only(Library)]
    return bool(loads) and all(map(context.is_gone, loads))


def _loads(context: Context, definition: DeviceDefinition, name: str) -> list[ast.Name]:
    """The reads of a device variable, in its scope and in the functions that see it."""
    found = []
    for node in context.plan.module.walk():
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            if binding_scope(context.plan.module, context.plan.store, node) is definition.scope and not context.is_gone(
                node
            ):
                found.append(node)
    return found


def _replaceable(context: Context, node: ast.Name) -> bool:
    scope = binding_scope(context.plan.module, context.plan.store, node)
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.id in {a.arg for a in parameters(scope)}:
        return context.plan.placement.device_parameters.get(scope) == node.id
    defined = {d.statement for d in context.plan.definitions if node.id in d.targets and d.scope is scope}
    for other in context.plan.module.walk(scope):
        if isinstance(other, ast.Name) and other.id == node.id and isinstance(other.ctx, (ast.Store, ast.Del)):
            around = {context.plan.module.statement(other), *context.plan.module.ancestors(other)}
            if not around & defined and binding_scope(context.plan.module, context.plan.store, other) is scope:
                return False
    return bool(defined) and context.has_accelerator(node) and context.may_change(node)


def _use(context: Context, node: ast.expr) -> None:
    if isinstance(node, (ast.Lambda, ast.Dict)):
        if _maps_to_device(context, node):
            _spelled(context, node)
    elif isinstance(node, ast.Name) and is_device_argument(context.plan.training, node):
        _spelled(context, node)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and is_device(context.plan.value(node)) and _replaceable(context, node):
            _replace_name(context, node)
    elif isinstance(node, ast.IfExp) and is_type_choice(context.plan.training, node):
        if context.may_change(node) and context.has_accelerator(node):
            context.migrated(node, f"{short(node)} -> {context.device(node)}.type")
            context.replace(node, f"{context.device(node)}.type")
    elif isinstance(node, ast.Attribute):
        if (is_device_argument(context.plan.training, node) and not _is_target(context, node)) or _is_number(
            context, node
        ):
            _spelled(context, node)
    elif isinstance(node, _SPELLINGS) and (_spelled_out(context, node) or _is_number(context, node)):
        _spelled(context, node)


def _maps_to_device(context: Context, node: ast.Lambda | ast.Dict) -> bool:
    """Whether ``torch.load`` is told to put what it reads on a GPU: ``lambda s, _: s.cuda(1)``, ``{"cuda:0": dev}``."""
    if isinstance(node, ast.Lambda):
        return is_map_location(context.plan, node) and moves_storage(node)
    kinds = [context.plan.value(item) for item in node.values]
    known = bool(kinds) and all(is_device(one) and spelled_kinds(one) != {"cpu"} for one in kinds)
    return known and is_map_location(context.plan, node)


def _is_number(context: Context, node: ast.expr) -> bool:
    """Whether a number stands where torch asks for a device: ``torch.zeros(3, device=args.gpu)``."""
    parent = context.parent(node)
    if not isinstance(parent, ast.keyword) or parent.arg != "device" or not is_index(context.plan.value(node)):
        return False
    call = context.parent(parent)
    names = library_names(context.plan, call.func) if isinstance(call, ast.Call) else frozenset()
    return any(name.startswith("torch.") for name in names)


def _is_target(context: Context, node: ast.Attribute) -> bool:
    """Whether a definition keeps this attribute as the accelerator's device."""
    text = ast.unparse(node)
    return any(
        text in d.targets and (not is_of_self(text) or (context.is_gone(d.statement) and _same_class(context, node, d)))
        for d in context.plan.definitions
    )


def _same_class(context: Context, node: ast.AST, definition: DeviceDefinition) -> bool:
    """Whether ``self`` at a node may be an object to which this definition gives an attribute."""
    module = context.plan.module
    return context.plan.placement.are_related(module.class_of(module.function(node)), module.class_of(definition.scope))


def _spelled(context: Context, node: ast.expr) -> None:
    if context.may_change(node):
        device = context.device_here(node)
        if device is not None:
            context.migrated(node, f"{short(node)} -> {device}")
            context.replace(node, device)
        else:
            context.manual(node, f"{short(node)} names a device where the accelerator cannot be passed; left as it is")


def _replace_name(context: Context, node: ast.Name) -> None:
    passed = _call_that_takes_accelerator(context, node)
    if passed is not None:
        call, keyword = passed
        context.replace(node, context.accelerator(node))
        if keyword is not None and keyword.arg != NAME:
            context.edit(RenameKeyword(call, keyword, NAME))
        return
    parent = context.parent(node)
    as_text = isinstance(parent, (ast.BinOp, ast.Subscript)) or (
        isinstance(parent, ast.Attribute) and parent.attr in ("startswith", "split", "lower", "find")
    )
    device = context.device(node)
    context.replace(node, f"str({device})" if as_text else device)
    context.migrated(node, f"`{node.id}` -> {device}")


def _call_that_takes_accelerator(context: Context, node: ast.Name) -> tuple[ast.Call, ast.keyword | None] | None:
    """The call that passes this device on to a function which now takes the accelerator, and the keyword if any."""
    parent = context.parent(node)
    keyword = parent if isinstance(parent, ast.keyword) else None
    call = context.parent(parent) if keyword is not None else parent
    if not isinstance(call, ast.Call):
        return None
    for callee in context.plan.store.calls.get(call, ()):
        name = context.plan.placement.device_parameters.get(callee)
        if name is not None and argument_for(call, callee, name) is node:
            return call, keyword
    return None


def _spelled_out(context: Context, node: ast.expr) -> bool:
    """Whether an expression names a device (other than the CPU) on the spot, where a device is asked for."""
    one = context.plan.value(node)
    if not is_device(one):
        return False
    if spelled_kinds(one) == {"cpu"}:
        return False
    parent = context.parent(node)
    if isinstance(parent, ast.keyword):
        return parent.arg in _DEVICE_KEYWORDS
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("to", "set_device"):
        return True
    named = library_names(context.plan, parent.func)
    return "torch.load" in named


RULE = Rule(
    code="AM110",
    name="device",
    summary="`device` variables and spelled-out devices become `accelerator.device`.",
    why="The accelerator knows the device of its process; a device chosen by the script would put every process on "
    "the same one. A device string that is compared is compared by type.",
    before='device = "cuda" if torch.cuda.is_available() else "cpu"\nnoise = torch.randn(8, 16, device=device)',
    after="accelerator = Accelerator()\nnoise = torch.randn(8, 16, device=accelerator.device)",
    safety="Exact on one process. Where something still reads the variable that cannot be given the accelerator, the "
    "variable stays as `device = accelerator.device`.",
    apply=apply,
    order=30,
    essential=True,
)
