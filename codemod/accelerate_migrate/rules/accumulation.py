"""AM340: gradient accumulation is the accelerator's, or keeps its modulo and averages gradients where it steps."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.spelling import Spelling, spelled_in
from accelerate_migrate.analysis.whole_windows import WholeWindow, whole_window
from accelerate_migrate.analysis.windows import Window, find_windows
from accelerate_migrate.edits import AddImport, Delete, Insert, Unwrap, Wrap
from accelerate_migrate.rules.base import Context, Rule
from accelerate_migrate.rules.calls import method_calls


def apply(context: Context) -> None:
    """Rewrite each accumulation window; runs when all other rules have said where they need the accelerator."""
    _own_no_sync(context)
    models = frozenset(s for s in context.plan.prepared if s.role is Role.MODEL)
    for window in find_windows(context.plan.training, models):
        if context.is_gone(window.loop) or not context.may_change(window.micro[0]):
            continue
        whole = whole_window(context.plan.training, window, context.plan.sharded)
        spelling = _spelling(context, whole) if whole is not None else None
        if whole is not None and spelling is not None:
            _accumulate(context, whole, spelling)
        else:
            _without_averaging(context, window)


def _own_no_sync(context: Context) -> None:
    """``model.no_sync()`` is a method of the wrapper, which one process does not have."""
    for call, func in method_calls(context.plan, "no_sync"):
        sites = context.plan.value(func.value).sites(Role.MODEL) & context.plan.prepared
        if sites and not call.args and context.may_change(call) and context.has_accelerator(call):
            method = f"{context.accelerator(call)}.no_sync"
            context.migrated(call, f"{ast.unparse(call)} -> {method}({ast.unparse(func.value)})")
            context.replace(call, f"{method}({{0}})", func.value)


# ---- the whole form


def _spelling(context: Context, whole: WholeWindow) -> Spelling | None:
    """The number of micro-batches where the accelerator is made; ``None`` where it is made before that is known."""
    placement = context.plan.placement
    if len(placement.creations) != 1 or not context.has_accelerator(whole.window.micro[0]):
        return None
    (creation,) = placement.creations
    found = spelled_in(context.plan.training, whole.count, whole.boundary, creation.scope)
    if found is None:
        return None
    uses = [*placement.uses, *(group.anchor for group in context.plan.groups)]
    first = min((s.lineno for node in uses for s in creation.leading_to(node)), default=0)
    return found if found.known_from < first else None


def _accumulate(context: Context, whole: WholeWindow, spelling: Spelling) -> None:
    window, boundary = whole.window, whole.boundary
    accelerator = context.accelerator(window.micro[0])
    count = ast.unparse(whole.count)
    (creation,) = context.plan.placement.creations
    context.constructor[creation, "gradient_accumulation_steps"] = spelling.text
    context.ready[creation] = max(context.ready.get(creation, 0), spelling.known_from)
    for quotient in [*whole.quotients, *whole.products]:
        context.replace(quotient, "{0}", quotient.left)
    for division in whole.divisions:
        context.edit(Delete(division))
    for read in whole.reads:
        context.replace(read, f"{{0}} / {count}", read)
    unprepared = [
        s
        for s in whole.schedulers
        if not any(context.plan.value(n).sites(Role.SCHEDULER) & context.plan.prepared for n in ast.walk(s))
    ]
    for statement in [*whole.clips, *unprepared]:
        context.edit(Wrap((statement,), f"if {accelerator}.sync_gradients:"))
    context.edit(Unwrap(boundary))
    if whole.top is not None:
        assert isinstance(whole.top, ast.If)
        context.edit(Delete(whole.top))
        context.edit(Insert(boundary.body[-1], ast.unparse(whole.top.body[0]), after=True))
    block = context.plan.module.block(boundary)
    statements = block[block.index(window.micro[0]) : block.index(boundary) + 1]
    context.edit(Wrap(tuple(statements), f"with {accelerator}.accumulate({window.model}):"))
    said = f"`{accelerator}.accumulate({window.model})` divides the loss by {count} and steps once in {count} batches"
    if whole.drops_rest:
        context.review(
            boundary,
            f"{said}; the original kept the gradients of a last window that is not full for the next epoch, now that "
            "window steps by itself at the end of the loader",
        )
    else:
        context.migrated(boundary, said)


# ---- the script's own modulo


def _without_averaging(context: Context, window: Window) -> None:
    """Keep the modulo; gradients of micro-batches that do not step are not averaged yet."""
    first = window.micro[0]
    if window.last is None or not context.has_accelerator(first):
        context.note(
            window.loop,
            "this loop accumulates gradients: right on several processes, which average them after every backward; "
            "accelerator.no_sync(model) around those that do not step would spare that",
        )
        return
    accelerator = context.accelerator(first)
    header = f"with nullcontext() if {window.last} else {accelerator}.no_sync({window.model}):"
    context.edit(Wrap(window.micro, header))
    context.edit(AddImport("contextlib", "nullcontext", context.plan.module.root(first)))
    context.migrated(
        first, f"gradients are averaged over processes only where `{window.last}`; the script keeps its own windows"
    )


RULE = Rule(
    code="AM340",
    name="accumulation",
    summary="A loop that steps once in several batches accumulates through `accelerator.accumulate(model)`.",
    why="The accelerator then divides the loss, skips `step` and `zero_grad` between the steps, and processes average "
    "their gradients once a window instead of once a batch. Where the loop does more at a window's end than clip, step "
    "and clear, or steps by another count, it keeps its own modulo, and `accelerator.no_sync(model)` stands around the "
    "batches that do not step.",
    before="for i, (x, y) in enumerate(loader):\n"
    "    loss = criterion(model(x), y) / 4\n"
    "    loss.backward()\n"
    "    if (i + 1) % 4 == 0:\n"
    "        optimizer.step()\n"
    "        optimizer.zero_grad()",
    after="for i, (x, y) in enumerate(loader):\n"
    "    with accelerator.accumulate(model):\n"
    "        loss = criterion(model(x), y)\n"
    "        accelerator.backward(loss)\n"
    "        optimizer.step()\n"
    "        optimizer.zero_grad()",
    safety="Exact while windows are full. The last window of an epoch that is not full steps by itself; the original "
    "may have carried it into the next epoch, which a review finding says. With its own modulo a loop trains exactly "
    "as before. A printed `loss.item() * n` is read undivided, which may round its last digit otherwise.",
    apply=apply,
    order=85,
)
