"""AM450: numbers that processes add up are reduced by the accelerator."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import parallel_library as table, processes
from accelerate_migrate.analysis.atoms import Number, Origin, Share, Site, Tensor
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, own_statement

_OPERATIONS = {"SUM": "sum", "AVG": "mean", "Sum": "sum", "Average": "mean"}


def apply(context: Context) -> None:
    """Reduce by the accelerator, or not at all what was gathered before."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for call, name in parallel.calls.items():
        if name in table.REDUCING and not context.is_gone(call) and not parallel.is_unused(call):
            _reduce(context, call, name)


def _reduce(context: Context, call: ast.Call, name: str) -> None:
    tensor = call.args[0] if call.args else None
    how = _operation(context, call, name)
    if tensor is None or how is None or not context.has_accelerator(call) or not context.may_change(call):
        raise Unclear("this reduction over processes has no counterpart", call)
    of_gradients = any(isinstance(n, ast.Attribute) and n.attr in ("grad", "parameters") for n in ast.walk(tensor))
    if of_gradients or _is_in_hook(context, call):
        raise Unclear("gradients are averaged over processes by hand here; take that out: prepare does it", call)
    accelerator = context.accelerator(call)
    place = _on_device(context, tensor, accelerator)
    if name == "horovod.torch.allreduce" and _is_copy_on_host(tensor):
        inner = tensor.func.value  # type: ignore[attr-defined]
        context.replace(call, f'{accelerator}.reduce({{0}}, reduction="{how}").cpu()', inner)
        context.migrated(call, f"{short(call)} -> {accelerator}.reduce")
        return
    if name == "horovod.torch.allreduce":
        context.replace(call, f'{accelerator}.reduce({{0}}{place}, reduction="{how}")', tensor)
        context.migrated(call, f"{short(call)} -> {accelerator}.reduce")
        return
    statement = own_statement(context.plan, call)
    if statement is None or not isinstance(tensor, (ast.Name, ast.Attribute)):
        raise Unclear("this reduction works in place on something without a name", call)
    if _fills_for_caller(context, tensor):
        raise Unclear(f"`{short(tensor)}` is reduced in place for the caller of this function", call)
    if how == "sum" and _is_gathered(context, tensor) and not _is_averaged(context, tensor):
        context.migrated(call, f"`{short(tensor)}` is that of all processes already: its rows are gathered")
        context.delete(statement)
        return
    text = f'{ast.unparse(tensor)} = {accelerator}.reduce({{0}}{place}, reduction="{how}")'
    context.edit(ReplaceStatement(statement, text, (tensor,)))
    context.gone.add(call.func)
    context.migrated(call, f"{short(call)} -> {accelerator}.reduce")


def _is_copy_on_host(tensor: ast.expr) -> bool:
    """``x.cpu()``: what comes back is on the CPU as well."""
    called = tensor.func if isinstance(tensor, ast.Call) and not tensor.args and not tensor.keywords else None
    return isinstance(called, ast.Attribute) and called.attr == "cpu"


def _is_in_hook(context: Context, call: ast.Call) -> bool:
    """Whether a reduction stands in a function that is hung onto parameters, or beside it."""
    around = [a for a in context.plan.module.ancestors(call) if isinstance(a, (ast.FunctionDef, ast.Lambda))]
    return any(isinstance(n, ast.Attribute) and n.attr == "register_hook" for a in around for n in ast.walk(a))


def _operation(context: Context, call: ast.Call, name: str) -> str | None:
    """``sum`` or ``mean``; ``None`` for what the accelerator does not do."""
    if any(k.arg in ("async_op", "group", "process_set") and not _is_plain(k.value) for k in call.keywords):
        return None
    told = keyword(call, "op")
    node = told.value if told is not None else call.args[1] if len(call.args) > 1 else None
    if name == "horovod.torch.allreduce":
        average = keyword(call, "average")
        if average is not None:
            return "mean" if ast.unparse(average.value) == "True" else "sum"
        node = told.value if told is not None else None
        return "mean" if node is None else _OPERATIONS.get(ast.unparse(node).rsplit(".", 1)[-1])
    if name == "torch.distributed.reduce":
        return "sum" if told is None else _OPERATIONS.get(ast.unparse(told.value).rsplit(".", 1)[-1])
    return "sum" if node is None else _OPERATIONS.get(ast.unparse(node).rsplit(".", 1)[-1])


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _on_device(context: Context, tensor: ast.expr, accelerator: str) -> str:
    """A tensor made on the spot goes to the device first: processes exchange what is there."""
    fresh = any(t.origin is Origin.FRESH for t in context.plan.value(tensor).of(Tensor))
    return f".to({accelerator}.device)" if fresh else ""


def _fills_for_caller(context: Context, tensor: ast.expr) -> bool:
    """Whether a tensor is a parameter that the function reduces without returning it."""
    function = context.plan.module.function(tensor)
    if not isinstance(tensor, ast.Name) or isinstance(function, ast.Module):
        return False
    if tensor.id not in {a.arg for a in function.args.args}:
        return False
    named = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == tensor.id]
    stored = [n for n in named if isinstance(n.ctx, ast.Store)]
    returned = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    names = {n.id for r in returned for n in ast.walk(r) if isinstance(n, ast.Name)}
    return not stored and tensor.id not in names


def _is_gathered(context: Context, tensor: ast.expr) -> bool:
    """Whether a number was added up from rows that an evaluation loop gathers."""
    loaders: set[Site] = set()
    for atom in context.plan.value(tensor):
        if isinstance(atom, (Tensor, Number)):
            loaders |= atom.loaders
    gathered = {site for gather in context.plan.evaluations.gathers for site in gather.loop.loaders}
    return bool(loaders) and loaders <= gathered


def _is_averaged(context: Context, tensor: ast.expr) -> bool:
    """Whether the sum is divided by the number of processes: equal numbers then stay what they are."""
    function = context.plan.module.function(tensor)
    text = ast.unparse(tensor)
    for node in context.plan.module.walk(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            if ast.unparse(node.target) == text and processes.share(context.plan.value(node.value)) is Share.WORLD:
                return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            if ast.unparse(node.left) == text and processes.share(context.plan.value(node.right)) is Share.WORLD:
                return True
    return False


RULE = Rule(
    code="AM450",
    name="reductions",
    summary="`all_reduce` of numbers becomes `accelerator.reduce`.",
    why="It works with and without a process group. What an evaluation loop gathers is that of all processes already: "
    "adding it up once more would count it once a process.",
    before="dist.all_reduce(total)",
    after='total = accelerator.reduce(total, reduction="sum")',
    safety="Exact on one process. Other operations than sums and averages, reductions that go on in the background and "
    "gradients that are averaged by hand refuse the file.",
    apply=apply,
    order=39,
    essential=True,
)
