"""AM190: what a wrapper hides is asked of the unwrapped model."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import UNKNOWN, FunctionRef, Role, Share, Tensor
from accelerate_migrate.analysis.library import PASSED_ON
from accelerate_migrate.analysis.scopes import argument_for, parameters
from accelerate_migrate.analysis.values import flatten
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import without_module


def apply(context: Context) -> None:
    """Unwrap prepared models where their own methods and attributes are used outside ``forward``."""
    plan = context.plan
    _handed_to_other_files(context)
    for node in plan.module.walk():
        if not isinstance(node, ast.Attribute) or node.attr in PASSED_ON or not context.may_change(node):
            continue
        sites = plan.value(node.value).sites(Role.MODEL) & plan.prepared
        if not sites or _inside_model(node):
            continue
        if node.attr == "module":
            _module(context, node)
            continue
        if not plan.any_prepared_at(sites, node):
            continue
        model = without_module(node.value)
        if node.attr == "forward":
            context.migrated(node, f"{short(node)} would bypass the wrapper; the model is called")
            context.replace(node, "{0}", model)
        elif not context.has_accelerator(node):
            context.manual(
                node, f"{short(node)}: the wrapper hides `{node.attr}`, and the accelerator cannot be passed here"
            )
        else:
            accelerator = context.accelerator(node)
            context.migrated(node, f"{short(node)}: the wrapper hides `{node.attr}`; asked of the unwrapped model")
            context.replace(node.value, f"{accelerator}.unwrap_model({{0}})", model)
            if _trains_through(context, node):
                context.review(
                    node,
                    f"{short(node)} computes outside the model's forward: its gradients are not averaged over "
                    "processes",
                )


def _handed_to_other_files(context: Context) -> None:
    """A function of another file that uses what the wrapper hides is given the unwrapped model."""
    plan = context.plan
    for call in plan.module.walk():
        if not isinstance(call, ast.Call) or not context.may_change(call):
            continue
        for callee in plan.value(call.func).of(FunctionRef):
            if plan.module.is_active(callee.node) or isinstance(callee.node, ast.Lambda):
                continue
            for parameter in parameters(callee.node):
                argument = argument_for(call, callee.node, parameter.arg) if callee.owner is None else None
                if not isinstance(argument, ast.Name) or not context.has_accelerator(argument):
                    continue
                sites = plan.value(argument).sites(Role.MODEL) & plan.prepared
                if plan.any_prepared_at(sites, argument) and _uses_hidden(callee.node, parameter.arg):
                    context.replace(argument, f"{context.accelerator(argument)}.unwrap_model({{0}})", argument)
                    context.migrated(
                        argument, f"`{callee.node.name}` uses what the wrapper hides: it gets the model itself"
                    )


def _uses_hidden(function: ast.AST, name: str) -> bool:
    return any(
        isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id == name
        and n.attr not in PASSED_ON
        for n in ast.walk(function)
    )


def _module(context: Context, node: ast.Attribute) -> None:
    """``net.module`` on its own: the unwrapped model (before prepare: the model)."""
    parent = context.parent(node)
    if isinstance(parent, ast.Attribute):
        if parent.attr in PASSED_ON and parent.attr not in ("state_dict", "load_state_dict"):
            context.replace(node, "{0}", node.value)
            context.migrated(node, f"{short(node)}: there is no wrapper to look through")
        return
    if context.has_accelerator(node):
        whole = parent if isinstance(parent, ast.IfExp) and _chooses_way(context, parent, node) else node
        context.replace(whole, f"{context.accelerator(node)}.unwrap_model({{0}})", node.value)
        context.migrated(whole, f"{short(whole)} -> the unwrapped model")


def _chooses_way(context: Context, choice: ast.IfExp, node: ast.Attribute) -> bool:
    """``net.module if parallel else net``: the unwrapped model either way."""
    parallel = context.plan.parallel
    spread, alone = choice.body, choice.orelse
    if parallel.share(choice.test) is Share.ALONE:
        spread, alone = alone, spread
    elif parallel.share(choice.test) is not Share.SPREAD:
        return False
    return spread is node and ast.unparse(alone) == ast.unparse(node.value) and parallel.is_pure(choice.test)


def _inside_model(node: ast.Attribute) -> bool:
    """Inside a model's own methods ``self`` is the bare module."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _trains_through(context: Context, node: ast.Attribute) -> bool:
    """Whether the hidden method's result is part of a training loop (it may carry gradients)."""
    call = context.parent(node)
    if not isinstance(call, ast.Call):
        return False
    result = context.plan.value(call)
    if UNKNOWN not in result.atoms and not any(isinstance(a, Tensor) and a.models for a in flatten(result)):
        return False
    for around in context.plan.module.ancestors(node):
        if isinstance(around, ast.With) and any("no_grad" in ast.unparse(i.context_expr) for i in around.items):
            return False
    statement = context.plan.module.statement(node)
    return context.plan.training.in_training_loop(node) and isinstance(statement, ast.Assign)


RULE = Rule(
    code="AM190",
    name="model-methods",
    summary="Custom methods and attributes of a prepared model go through `accelerator.unwrap_model`.",
    why="On several processes the prepared model is a wrapper that forwards calls and parameters, not methods and "
    "attributes of one's own: `model.decode(z)` would be an AttributeError there.",
    before="sample = model.decode(z)",
    after="sample = accelerator.unwrap_model(model).decode(z)",
    safety="Exact on one process. A method that computes with gradients outside the model's forward gets a review "
    "finding: its gradients are not averaged.",
    apply=apply,
    order=42,
)
