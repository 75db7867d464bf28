"""AM330: apex's amp is the accelerator's mixed precision."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.branches import MASTER_PARAMS, SCALE_LOSS, master_parameters
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls

_LEVELS = {
    "O0": "opt_level O0 was float32, and so is this",
    "O1": "opt_level O1 chose a type for each function, as autocast does now; their lists differ a little",
    "O2": "opt_level O2 kept the model in half precision beside float32 copies; now the parameters are float32 and "
    "autocast chooses a type for each operation",
    "O3": "opt_level O3 trained in half precision throughout; now the parameters are float32 and autocast chooses a "
    "type for each operation",
}


def apply(context: Context) -> None:
    """Take out ``amp.initialize``, ``amp.scale_loss`` and ``amp.master_params``."""
    for call, names in library_calls(context.plan):
        if context.is_gone(call):
            continue
        if "apex.amp.initialize" in names:
            _initialize(context, call)
        elif SCALE_LOSS in names:
            _scale_loss(context, call)
        elif MASTER_PARAMS in names:
            _master_params(context, call)


def _initialize(context: Context, call: ast.Call) -> None:
    statement = context.plan.module.statement(call)
    objects = [*call.args[:2], *(k.value for k in call.keywords if k.arg in ("models", "optimizers"))]
    level = keyword(call, "opt_level")
    chosen = level.value.value if level is not None and isinstance(level.value, ast.Constant) else None
    difference = _LEVELS["O1"] if level is None else _LEVELS.get(str(chosen), "for opt_levels O2 and O3 the model's "
                 "parameters were half precision; now they are float32")  # fmt: skip
    message = f"{short(call.func)} -> Accelerator(mixed_precision=...): {difference}"
    if chosen == "O0":
        context.migrated(call, message)
    else:
        context.review(call, message)
    if not (isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1):
        raise Unclear(f"what {short(call.func)} gives is used on the spot", call)
    names = objects[0] if len(objects) == 1 else ast.Tuple(objects, ast.Load())
    if ast.unparse(statement.targets[0]) == ast.unparse(names):
        context.delete_emptying(statement)
    else:
        context.replace(call, ", ".join(f"{{{i}}}" for i in range(len(objects))), *objects)


def _scale_loss(context: Context, call: ast.Call) -> None:
    """``with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`` is the backward of the loss."""
    item = context.parent(call)
    block = context.plan.module.statement(call)
    name = item.optional_vars if isinstance(item, ast.withitem) else None
    alone = isinstance(block, ast.With) and len(block.items) == 1 and all(isinstance(s, ast.Expr) for s in block.body)
    if not (alone and isinstance(name, ast.Name) and call.args):
        raise Unclear(f"{short(call)} is not the `with` around a backward that has a counterpart", call)
    assert isinstance(block, ast.With)
    for node in context.plan.module.walk():
        if isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Load):
            if block in context.plan.module.ancestors(node):
                use = context.parent(node)
                if not (isinstance(use, ast.Attribute) and use.attr == "backward"):
                    raise Unclear(f"`{name.id}` is used for more than a backward", node)
                context.replace(node, "{0}", call.args[0])
    done = tuple(s.value for s in block.body if isinstance(s, ast.Expr))
    context.migrated(block, f"{short(call)}: the accelerator's backward scales the loss")
    context.edit(ReplaceStatement(block, "\n".join(f"{{{i}}}" for i in range(len(done))), done))
    context.gone.update([call.func, name, *call.args[1:]])


def _master_params(context: Context, call: ast.Call) -> None:
    if len(call.args) != 1:
        raise Unclear(f"{short(call)} has no counterpart", call)
    source = master_parameters(context.plan.precision, call)
    context.gone.add(call.func)
    if source is not None:
        context.replace(call, source)
    else:
        context.replace(call, '[p for group in {0}.param_groups for p in group["params"]]', call.args[0])
    context.migrated(call, f"{short(call)} -> {source or 'the parameters of its groups'}")


RULE = Rule(
    code="AM330",
    name="apex",
    summary="apex's `amp.initialize` and `amp.scale_loss` go: the accelerator's mixed precision does their work.",
    why="apex's amp is no longer maintained, and PyTorch's own has taken its place. Every level but O0 becomes fp16 "
    "with autocast.",
    before='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\nfor x, y in loader:\n'
    "    loss = F.cross_entropy(model(x), y)\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
    "        scaled_loss.backward()",
    after='accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")\n'
    "for x, y in loader:\n    loss = F.cross_entropy(model(x), y)\n    accelerator.backward(loss)",
    safety="The same training in fp16 up to what the two libraries run in half precision, which a finding names. "
    "apex's own optimizers, `FP16_Optimizer` and the state of its scaler in checkpoints make the file refused.",
    apply=apply,
    order=11,
    essential=True,
)
