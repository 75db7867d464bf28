"""AM310: autocast is the accelerator's, and its precision one setting."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.modes import sources_read
from accelerate_migrate.analysis.placement import Creation
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import Unwrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import method_calls


def apply(context: Context) -> None:
    """Rewrite each ``with autocast():`` and say the precision where the accelerator is made."""
    precision = context.plan.precision
    for node, kept in precision.collapsed.items():
        _collapse(context, node, kept)
    for region in precision.regions:
        if context.is_gone(region.expression):
            continue
        if not context.has_accelerator(region.expression):
            raise Unclear("the accelerator cannot be passed to this autocast", region.expression)
        handler = "AutocastKwargs(enabled=False)" if region.off else ""
        text = f"{context.accelerator(region.expression)}.autocast({handler})"
        if region.off:
            context.import_here("AutocastKwargs", region.expression)
        context.migrated(region.expression, f"{short(region.expression)} -> {text}")
        context.replace(region.expression, text)
        context.gone.add(region.expression)
    for statement in precision.held:
        context.migrated(statement, "the accelerator makes its own autocast")
        context.delete(statement)
    for call in precision.of_models:
        context.note(call, f"{short(call)} belongs to the model and stays as it is")
    _half_models(context)
    for creation in precision.modes:
        _set_up(context, creation)
        _say_what_differs(context, creation)


def _half_models(context: Context) -> None:
    """``model.half()`` stays as it is, where it is all the script does about precision."""
    for call, func in method_calls(context.plan, "half", "bfloat16"):
        if context.plan.value(func.value).sites(Role.MODEL) & context.plan.prepared:
            if context.plan.precision.modes and func.attr == "half":
                raise Unclear(
                    f"{short(call)} makes half-precision parameters, whose gradients cannot be unscaled; leave them "
                    "float32 under mixed precision",
                    call,
                )
            context.note(call, f"{short(call)}: the parameters are in the lower precision, and stay so")


def _collapse(context: Context, node: ast.If, kept: str) -> None:
    if not context.may_change(node.test):
        return
    context.edit(Unwrap(node, kept))
    context.gone.add(node.test)
    context.gone.update(node.orelse if kept == "body" else node.body)
    context.migrated(node.test, f"the branches of `if {short(node.test)}` differ in mixed precision alone")


def _set_up(context: Context, creation: Creation) -> None:
    """The arguments of an accelerator, and the line behind which they are known."""
    precision = context.plan.precision
    mode = precision.modes[creation]
    context.constructor[creation, "mixed_precision"] = mode.text
    context.migrated(mode.node, f"{short(mode.node)} -> Accelerator(mixed_precision={mode.text})")
    scaling = precision.scaling.get(creation, {})
    if precision.keeps_float32(creation):
        context.handle_with(creation, "AutocastKwargs", {"enabled": "False"})
        context.migrated(mode.node, "the model turns autocast on for itself, where it wants it")
    if scaling:
        context.handle_with(creation, "GradScalerKwargs", scaling)
    elif mode.type == "bf16" and precision.scalings_of(creation):
        context.note(mode.node, "bf16 has the range of float32: the accelerator does not scale its loss")
    elif precision.scales_nothing(creation) and mode.type != "bf16":
        context.handle_with(creation, "GradScalerKwargs", {"enabled": "False"})
        context.migrated(mode.node, "the loss was not scaled, and is not")
    read = sources_read(mode.text).union(*map(sources_read, scaling.values()))
    context.reads |= read
    before = min((s.lineno for s in creation.leading_to(mode.node)), default=mode.node.lineno)
    module = context.plan.module
    bound = [
        module.statement(node).end_lineno or 0
        for node in module.walk(creation.scope)
        if isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Store)
        and node.lineno < before
        and module.function(node) is creation.scope
        and ast.unparse(node) in read
        and not context.plan.parallel.is_gone(node)
    ]
    context.ready[creation] = max([context.ready.get(creation, 0), *bound])


def _say_what_differs(context: Context, creation: Creation) -> None:
    """A prepared model is under autocast wherever it is called, and gives float32."""
    plan = context.plan
    precision = plan.precision
    on = precision.regions_of(creation)
    if not on:
        return
    inside = set(plan.training.reached([s for region in on for s in region.node.body]))
    for node in plan.module.walk():
        if isinstance(node, ast.Call) and plan.training.forwards(node) & plan.prepared and node not in inside:
            if not context.is_gone(node) and precision.is_for(creation, node):
                context.review(
                    node,
                    "this call of the model was not under autocast; a prepared model always is, so its results here "
                    "are those of the lower precision",
                )
                break
    context.note(
        on[0].expression,
        "under mixed precision a prepared model returns float32: what is computed from its outputs inside autocast "
        "is at least as precise as it was",
    )


RULE = Rule(
    code="AM310",
    name="autocast",
    summary="`autocast` is entered through the accelerator, which is made with the script's `mixed_precision`.",
    why="The accelerator puts the forward of prepared models under autocast and scales the loss for fp16, on every "
    "device and under every strategy. Its precision is one setting; flags of the script keep deciding it. CUDA's "
    "autocast did nothing without CUDA, and so does this setting. Branches that did the same with and without "
    "autocast become one.",
    before="scaler = torch.cuda.amp.GradScaler(enabled=args.amp)\n...\nfor x, y in loader:\n"
    "    with torch.cuda.amp.autocast(enabled=args.amp):\n        loss = F.cross_entropy(model(x), y)\n"
    "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
    after='accelerator = Accelerator(mixed_precision="fp16" if args.amp and torch.cuda.is_available() else "no")\n'
    "...\nfor x, y in loader:\n    with accelerator.autocast():\n        loss = F.cross_entropy(model(x), y)\n"
    "    accelerator.backward(loss)\n    optimizer.step()",
    safety="Exact without mixed precision. With it, a model's outputs are float32, so a loss that autocast leaves in "
    "the lower precision is computed in float32; a forward outside autocast is named. Two different precisions in "
    "one file are refused.",
    apply=apply,
    order=12,
    essential=True,
)
