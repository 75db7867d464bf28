"""AM325: what a scaler object of timm does when it is called is spelled out where it was called."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelerate_migrate.analysis.modes import argument
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import own_statement

_CLIP_MODES = {"norm": "clip_grad_norm_", "value": "clip_grad_value_"}


def apply(context: Context) -> None:
    """Spell out each call of a scaler."""
    for call in context.plan.training.scaler_calls:
        if not context.is_gone(call):
            if not context.has_accelerator(call):
                raise Unclear("the accelerator cannot be passed to this call of a scaler", call)
            _spell_out(context, call, context.accelerator(call))


def _spell_out(context: Context, call: ast.Call, accelerator: str) -> None:
    """Put backward, clipping and step in the place of ``scaler(loss, optimizer, clip_grad=..., parameters=...)``."""
    statement = own_statement(context.plan, call)
    loss, optimizer = argument(call, 0, "loss"), argument(call, 1, "optimizer")
    if statement is None or loss is None or optimizer is None or any(isinstance(a, ast.Starred) for a in call.args):
        raise Unclear(f"{short(call)} is not a statement of its own", call)
    holes: list[ast.expr] = [loss, optimizer]

    def hole(node: ast.expr) -> str:
        holes.append(node)
        return f"{{{len(holes) - 1}}}"

    create_graph = argument(call, 5, "create_graph")
    extra = f", create_graph={hole(create_graph)}" if create_graph is not None else ""
    lines = [*_clipping(context, call, accelerator, hole), "{1}.step()"]
    update = argument(call, 6, "need_update")
    if update is not None and not (isinstance(update, ast.Constant) and update.value is True):
        lines = [f"if {hole(update)}:", *("    " + line for line in lines)]
    lines.insert(0, f"{accelerator}.backward({{0}}{extra})")
    context.migrated(call, f"{short(call)}: backward, clipping and step, spelled out")
    context.edit(ReplaceStatement(statement, "\n".join(lines), tuple(holes)))
    context.gone.update({call, *call.args, *(k.value for k in call.keywords)} - set(holes))
    context.gone.add(call.func)


def _clipping(context: Context, call: ast.Call, accelerator: str, hole: Callable[[ast.expr], str]) -> list[str]:
    clip = argument(call, 2, "clip_grad")
    if clip is None or (isinstance(clip, ast.Constant) and clip.value is None):
        return []
    mode, parameters = argument(call, 3, "clip_mode"), argument(call, 4, "parameters")
    named = mode.value if isinstance(mode, ast.Constant) else "norm" if mode is None else None
    method = _CLIP_MODES.get(str(named))
    if method is None or parameters is None:
        raise Unclear(f"how {short(call)} clips gradients has no counterpart", call)
    most = hole(clip)
    text = f"{accelerator}.{method}({hole(parameters)}, {most})"
    if isinstance(clip, ast.Constant):
        return [text]
    return [f"if {most} is not None:", f"    {text}"]


RULE = Rule(
    code="AM325",
    name="called-scaler",
    summary="A call of timm's `NativeScaler` becomes the backward, clipping and step that it stands for.",
    why="The scaler hides backward and step, which are the accelerator's and the prepared optimizer's now.",
    before="loss_scaler = NativeScaler()\n...\nfor x, y in loader:\n    with torch.cuda.amp.autocast():\n"
    "        loss = F.cross_entropy(model(x), y)\n"
    "    loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())",
    after="for x, y in loader:\n    with accelerator.autocast():\n        loss = F.cross_entropy(model(x), y)\n"
    "    accelerator.backward(loss)\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()",
    safety='Exact. Adaptive clipping (`clip_mode="agc"`) makes the file refused.',
    apply=apply,
    order=12,
    essential=True,
)
