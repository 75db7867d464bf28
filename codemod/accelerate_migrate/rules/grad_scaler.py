"""AM320: the accelerator scales the loss; the script's GradScaler goes."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import pairwise

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.library import CLIPPERS
from accelerate_migrate.analysis.placement import escapes
from accelerate_migrate.analysis.scopes import argument_for, assigned_targets, parameters
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import RemoveArgument, RemoveParameter, Wrap
from accelerate_migrate.findings import Target
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, method_calls, own_statement

_SKIPPED = {(ast.Gt, True): "", (ast.Lt, False): "", (ast.LtE, True): "not ", (ast.GtE, False): "not "}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def apply(context: Context) -> None:
    """Rewrite every use of a GradScaler, then drop what made it and what handed it on."""
    precision = context.plan.precision
    if not precision.scaler_sites:
        return
    uses = [n for n in context.plan.module.walk() if isinstance(n, (ast.Name, ast.Attribute)) and _is_use(context, n)]
    passed: list[ast.expr] = []
    for node in uses:
        if isinstance(node.ctx, ast.Load) and not context.is_gone(node):
            if not _use(context, node):
                passed.append(node)
    for node in uses:
        if isinstance(node.ctx, ast.Store) and not context.is_gone(node):
            _drop(context, node)
    _drop_parameters(context, passed)
    _say_about_clipping(context)
    _say_about_several(context)


def _is_use(context: Context, node: ast.Name | ast.Attribute) -> bool:
    """Whether this very expression is a scaler. (``self`` of ``self.scaler`` is not.)"""
    return context.plan.precision.is_scaler(node)


def _accelerator(context: Context, node: ast.AST) -> str:
    if not context.has_accelerator(node):
        raise Unclear("the accelerator cannot be passed to this use of the GradScaler", node)
    return context.accelerator(node)


def _use(context: Context, node: ast.expr) -> bool:
    """Rewrite one use; false for an argument, which goes with its parameter."""
    parent = context.parent(node)
    if isinstance(parent, ast.Attribute):
        call = context.parent(parent)
        if isinstance(call, ast.Call) and call.func is parent:
            rewrite = _METHODS.get(parent.attr)
            if rewrite is not None:
                if not context.is_gone(call):
                    rewrite(context, call, node)
                return True
        raise Unclear(f"`{short(parent)}` of a GradScaler has no counterpart", node)
    is_test = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node
    if is_test or isinstance(parent, (ast.Compare, ast.UnaryOp, ast.BoolOp)):
        _ask(context, node)
        return True
    if isinstance(parent, (ast.Call, ast.keyword)):
        return False
    if isinstance(parent, ast.Assign):
        return True  # self.scaler = scaler: goes with its target
    raise Unclear("the GradScaler is kept or handed on here in a way that has no counterpart", node)


def _ask(context: Context, node: ast.expr) -> None:
    """``scaler is not None`` asks the accelerator's; it has one where the script had."""
    parent = context.parent(node)
    test = parent if isinstance(parent, (ast.Compare, ast.UnaryOp)) else node
    if not (context.plan.precision.may_be_none(node) and context.plan.precision.asks_for_scaler(test)):
        raise Unclear(f"what `{short(test)}` asks of the GradScaler has no counterpart", node)
    text = f"{_accelerator(context, node)}.scaler"
    context.replace(node, text)
    context.migrated(node, f"{short(node)} -> {text}")


# ---- methods


def _scale(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    if len(call.args) != 1 or not _is_only_for_backward(context, call):
        raise Unclear(f"`{short(call)}` is used for more than a backward, and the accelerator scales there alone", call)
    context.migrated(call, f"{short(call)}: the accelerator's backward scales the loss")
    context.gone.add(scaler)
    parent = context.parent(call)
    if isinstance(parent, ast.Assign) and ast.unparse(parent.targets[0]) == ast.unparse(call.args[0]):
        context.delete(parent)  # loss = scaler.scale(loss)
        return
    context.replace(call, "{0}", *call.args[:1])


def _is_only_for_backward(context: Context, call: ast.Call) -> bool:
    """``scaler.scale(loss).backward()``, or the same by way of a variable that nothing else reads from there on."""
    parent = context.parent(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "backward"
    if not (isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name)):
        return False
    module = context.plan.module
    reads = [
        n
        for n in module.walk(module.function(call))
        if _same_name(n, parent.targets[0]) and n.lineno > parent.lineno  # type: ignore[attr-defined]
    ]
    backwards = [context.parent(read) for read in reads]
    return bool(reads) and all(isinstance(p, ast.Attribute) and p.attr == "backward" for p in backwards)


def _step(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    if not call.args or isinstance(call.args[0], ast.Starred) or call.keywords:
        raise Unclear(f"`{short(call)}`: its arguments have no counterpart", call)
    optimizer, *rest = call.args
    context.migrated(call, f"{short(call)} -> {short(optimizer)}.step()")
    context.gone.add(scaler)
    holes = ", ".join(f"{{{i + 1}}}" for i in range(len(rest)))
    context.replace(call, "{0}.step(" + holes + ")", optimizer, *rest)


def _update(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    statement = own_statement(context.plan, call)
    if statement is None or call.args or call.keywords:
        raise Unclear(f"`{short(call)}` sets the scale, which has no counterpart", call)
    context.migrated(statement, f"{short(call)}: the prepared optimizer's step does it")
    context.delete_emptying(statement)


def _unscale(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    statement = own_statement(context.plan, call)
    if statement is None or len(call.args) != 1:
        raise Unclear(f"`{short(call)}` has no counterpart", call)
    if _clipped_after(context, call):
        context.migrated(statement, f"{short(call)}: the accelerator's clipping does it")
        context.delete_emptying(statement)
        return
    accelerator = _accelerator(context, call)
    context.migrated(call, f"{short(call)} -> {accelerator}.unscale_gradients({short(call.args[0])})")
    context.gone.add(scaler)
    context.replace(call, f"{accelerator}.unscale_gradients({{0}})", call.args[0])


def _clipped_after(context: Context, call: ast.Call) -> bool:
    """Whether gradients are clipped through the accelerator between this and the optimizer's step."""
    module = context.plan.module
    here = module.function(call)
    statement = module.statement(call)
    steps = [s.lineno for s in context.plan.training.steps if module.function(s) is here and s.lineno > call.lineno]
    until = min(steps, default=10**9)
    block = module.block(statement)
    following = [s for s in block[block.index(statement) + 1 :] if s.lineno <= until]
    reached = set(context.plan.training.reached(following))
    between = [
        clip
        for clip, names in library_calls(context.plan)
        if names <= set(CLIPPERS)
        and (clip in reached or (module.function(clip) is here and call.lineno < clip.lineno <= until))
    ]
    return bool(between) and context.unscaling.issuperset(between)


def _get_scale(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    compare = context.parent(call)
    accelerator = _accelerator(context, call)
    if isinstance(compare, ast.Compare) and len(compare.ops) == 1:
        before_first = compare.left is not call
        before = compare.left if before_first else compare.comparators[0]
        prefix = _SKIPPED.get((type(compare.ops[0]), before_first))
        kept = _scale_kept_in(context, before)
        if prefix is not None and kept is not None:
            text = f"{prefix}{accelerator}.optimizer_step_was_skipped"
            context.migrated(compare, f"{short(compare)} -> {text}")
            context.replace(compare, text)
            context.gone.add(compare)
            loads = [n for n in context.plan.module.walk() if _same_name(n, before)]
            if all(context.is_gone(n) for n in loads):
                context.delete_emptying(kept)
            return
    if _compared_later(context, call):
        return
    text = f"{accelerator}.scaler.get_scale()"
    if not _asked_around(context, call):
        text += f" if {accelerator}.scaler is not None else 1.0"
    context.migrated(call, f"{short(call)} -> {text}")
    context.gone.add(scaler)
    context.replace(call, text)


def _compared_later(context: Context, call: ast.Call) -> bool:
    """Whether this is ``before = scaler.get_scale()``, for nothing but a comparison with the scale after the step."""
    statement = context.parent(call)
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return False
    loads = [n for n in context.plan.module.walk() if _same_name(n, statement.targets[0])]
    for load in loads:
        compare = context.parent(load)
        if not (isinstance(compare, ast.Compare) and len(compare.ops) == 1):
            return False
        other = compare.comparators[0] if compare.left is load else compare.left
        if not _is_get_scale(context, other) or (type(compare.ops[0]), compare.left is load) not in _SKIPPED:
            return False
    return bool(loads)


def _scale_kept_in(context: Context, node: ast.expr) -> ast.stmt | None:
    """The one statement that keeps the scale in this variable."""
    if not isinstance(node, ast.Name):
        return None
    stores = [
        s
        for s in context.plan.module.walk(context.plan.module.function(node))
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in s.targets)
    ]
    return stores[0] if len(stores) == 1 and _is_get_scale(context, stores[0].value) else None


def _is_get_scale(context: Context, node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get_scale"
        and context.plan.precision.is_scaler(node.func.value)
    )


def _same_name(node: ast.AST, other: ast.expr) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == ast.unparse(other)


def _state_dict(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    accelerator = _accelerator(context, call)
    context.migrated(call, f"{short(call)}: the accelerator's scaler has the same state; without one it is empty")
    context.gone.add(scaler)
    if _asked_around(context, call):
        context.replace(scaler, f"{accelerator}.scaler")
    else:
        context.replace(call, f"{accelerator}.scaler.state_dict() if {accelerator}.scaler is not None else {{{{}}}}")


def _load_state_dict(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    statement = own_statement(context.plan, call)
    if statement is None:
        raise Unclear(f"`{short(call)}` has no counterpart", call)
    accelerator = _accelerator(context, call)
    context.migrated(call, f"{short(call)}: the state goes into the accelerator's scaler, where there is one")
    context.replace(scaler, f"{accelerator}.scaler")
    context.gone.add(scaler)
    if not _asked_around(context, call):
        context.edit(Wrap((statement,), f"if {accelerator}.scaler is not None:"))


def _asked_around(context: Context, node: ast.AST) -> bool:
    """Whether an ``if scaler is not None`` stands around."""
    inside = node
    for around in context.plan.module.ancestors(node):
        if isinstance(around, ast.If) and inside in around.body and context.plan.precision.asks_for_scaler(around.test):
            return True
        inside = around
    return False


def _is_enabled(context: Context, call: ast.Call, scaler: ast.expr) -> None:
    text = f"{_accelerator(context, call)}.scaler is not None"
    context.migrated(call, f"{short(call)} -> {text}")
    context.gone.add(scaler)
    context.replace(call, text)


_METHODS = {
    "scale": _scale,
    "step": _step,
    "update": _update,
    "unscale_": _unscale,
    "get_scale": _get_scale,
    "state_dict": _state_dict,
    "load_state_dict": _load_state_dict,
    "is_enabled": _is_enabled,
}


# ---- what made it and handed it on


def _drop(context: Context, node: ast.expr) -> None:
    """Delete ``scaler = GradScaler()``, and an ``if`` that did nothing else."""
    statement = context.plan.module.statement(node)
    if not (isinstance(statement, (ast.Assign, ast.AnnAssign)) and assigned_targets(statement) == [node]):
        raise Unclear("the GradScaler is assigned together with something else", node)
    context.migrated(statement, f"`{short(node)}`: the accelerator has a scaler of its own")
    context.delete_emptying(statement)


def _drop_parameters(context: Context, passed: list[ast.expr]) -> None:
    """Take the parameter that held the scaler from each function, and the argument from each of its calls."""
    plan = context.plan
    arguments: dict[ast.Call, list[ast.expr]] = defaultdict(list)
    for function in plan.module.walk():
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for parameter in parameters(function):
            held = plan.store.stored(function, parameter.arg)
            if held is None or not held.sites(Role.SCALER):
                continue
            if escapes(plan.training, function) and not isinstance(context.parent(function), ast.ClassDef):
                raise Unclear(
                    f"`{parameter.arg}` of `{function.name}` may be given in calls that are not known", function
                )
            context.edit(RemoveParameter(function, parameter.arg))
            context.migrated(parameter, f"`{function.name}` needs no `{parameter.arg}` any more")
            for call in plan.store.callers.get(function, ()):
                given = argument_for(call, function, parameter.arg)
                if given is not None:
                    arguments[call].append(given)
    known = {argument for found in arguments.values() for argument in found}
    for node in passed:
        if node not in known:
            raise Unclear("the GradScaler is handed to code that is not known", node)
    for call, found in arguments.items():
        for argument in found:
            named = next((k for k in call.keywords if k.value is argument), None)
            context.edit(RemoveArgument(call, named if named is not None else argument))
            context.gone.add(argument)


def _say_about_clipping(context: Context) -> None:
    """Gradients that were clipped before they were unscaled are unscaled first now."""
    module, precision = context.plan.module, context.plan.precision
    unscaled = [call for call, func in method_calls(context.plan, "unscale_") if precision.is_scaler(func.value)]
    stepping = [
        module.function(call) for call, func in method_calls(context.plan, "step") if precision.is_scaler(func.value)
    ]
    for clip in context.unscaling:
        here = module.function(clip)
        if clip not in context.unscaling or here not in stepping:
            continue
        if not any(module.function(call) is here and call.lineno < clip.lineno for call in unscaled):
            context.review(
                clip,
                "these gradients were clipped while the loss scale was still in them; the accelerator divides it out "
                "first, so that fp16 clips at the norm that is written here",
            )


def _say_about_several(context: Context) -> None:
    """One scale for several optimizers: the accelerator updates it at each step."""
    plan = context.plan
    if len(plan.training.optimizers) < 2:
        return
    scaled = [
        c for c in plan.training.steps if isinstance(c.func, ast.Attribute) and plan.precision.is_scaler(c.func.value)
    ]
    if not scaled:
        return
    several = len(plan.precision.scalings) > 1
    if context.options.target is Target.ACCELERATE:
        _check_clips(context, scaled)
    context.review(
        scaled[-1],
        "several optimizers share one loss scale: the script "
        + ("had a scale for each" if several else "updated it once an iteration")
        + ", the accelerator updates one for all at each optimizer's step, so that the scale of fp16 grows and shrinks "
        "at other times",
    )


def _check_clips(context: Context, scaled: list[ast.Call]) -> None:
    """Accelerate's clipping unscales every optimizer: a second clip before a step would unscale them again."""
    clips = [clip for clip, names in library_calls(context.plan) if names <= set(CLIPPERS)]
    lines = sorted([(clip.lineno, True, clip) for clip in clips] + [(step.lineno, False, step) for step in scaled],
                   key=lambda item: item[0])  # fmt: skip
    for (_, first, _node), (_, second, clip) in pairwise(lines):
        if first and second:
            raise Unclear(
                "Accelerate unscales every optimizer when it clips, and fails where gradients are clipped twice before "
                "a step; clip each optimizer's gradients right before its step",
                clip,
            )


RULE = Rule(
    code="AM320",
    name="grad-scaler",
    summary="A `GradScaler` goes: the accelerator scales the loss, and the prepared optimizer steps and updates.",
    why="The accelerator has one scaler where fp16 needs it. Clipping unscales by itself. A checkpoint keeps the "
    "scaler's state under its key, and a comparison of scales asks whether the step was skipped.",
    before="scaler = torch.cuda.amp.GradScaler()\n...\nfor x, y in loader:\n    with torch.cuda.amp.autocast():\n"
    "        loss = F.cross_entropy(model(x), y)\n    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
    "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step(optimizer)\n    scaler.update()",
    after="for x, y in loader:\n    with accelerator.autocast():\n        loss = F.cross_entropy(model(x), y)\n"
    "    accelerator.backward(loss)\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()",
    safety="Exact with one optimizer. Several optimizers share the scale in another rhythm, which is named. A scaler "
    "whose scale the script sets, or that it hands to unknown code, makes the file refused.",
    apply=apply,
    order=13,
    essential=True,
)
