"""AM220: sums of a training loop that are divided by the whole set cover the whole set."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.accumulation import is_divided_by_samples, is_sample_count
from accelerate_migrate.analysis.atoms import Number, Reduction, Tensor
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.training import LoaderLoop
from accelerate_migrate.rules.base import Context, Rule
from accelerate_migrate.rules.calls import library_names


def apply(context: Context) -> None:
    """Reduce ``total += loss.item()`` over processes where ``total / len(loader.dataset)`` follows."""
    for loop in context.plan.training.loops:
        if not loop.trains or not loop.loaders & context.plan.sharded:
            continue
        measured = _inner_loops(context, loop)
        plain: list[ast.AugAssign] = []
        for node in context.plan.module.walk(loop.node):
            if node in measured or not isinstance(node, (ast.AugAssign, ast.Call)) or not context.may_change(node):
                continue
            if isinstance(node, ast.Call):
                _meter(context, loop.node, node)
            elif isinstance(node.op, ast.Add) and not _accumulation(context, loop.node, node):
                plain.append(node)
        if len(loop.loaders & context.plan.sharded) > 1 and _measures_too(context, loop.node):
            _partial(context, loop.node, plain)


def _inner_loops(context: Context, loop: LoaderLoop) -> set[ast.AST]:
    """What stands in loops inside of a training loop that only measure: they have numbers of their own."""
    inside = set(context.plan.module.walk(loop.node))
    inner = [other.node for other in context.plan.training.loops if not other.trains and other.node in inside]
    return {node for around in inner for node in context.plan.module.walk(around)}


def _partial(context: Context, loop: ast.For | ast.AsyncFor, sums: list[ast.AugAssign]) -> None:
    """Sums of a loop that trains on one loader and measures on another, which stay those of each process."""
    scope = context.plan.module.function(loop)
    behind = [n for n in context.plan.module.walk(scope) if getattr(n, "lineno", 0) > (loop.end_lineno or 0)]
    shown = [s for s in sums if any(_mentions(node, {ast.unparse(s.target)}) for node in behind)]
    if shown:
        names = ", ".join(dict.fromkeys(f"`{ast.unparse(s.target)}`" for s in shown))
        context.review(
            shown[0],
            f"{names}: each process adds up its own part of the data, also where this loop only measures; gather what "
            "is reported of the whole set",
        )


def _accumulation(context: Context, loop: ast.For | ast.AsyncFor, node: ast.AugAssign) -> bool:
    """Whether something was done or said about a sum of what a loop draws."""
    added = _of_batches(context, node.value)
    target = ast.unparse(node.target)
    if not added:
        return True
    if _divided_by_dataset(context, loop, target):
        _total(context, loop, node)
    elif _decides(context, loop, target):
        kinds = {a.reduction for a in added}
        if kinds == {Reduction.COUNT} and _item(context, node.value) is None:
            _count(context, loop, node)
        elif _reduce(context, node, "sum" if kinds <= {Reduction.SUM, Reduction.COUNT} else "mean"):
            context.migrated(node, f"`{target}` is used beyond a progress line: every process gets the same number")
        elif _decides(context, loop, target, returned=False):
            context.review(node, f"`{target}` {_DIFFERS}")
        else:
            context.note(node, f"`{target}` is what the main process adds up from its own part of the data")
    else:
        return False
    return True


def _total(context: Context, loop: ast.For | ast.AsyncFor, node: ast.AugAssign) -> None:
    """A sum that is divided by the size of the whole set: of the rows of every process, or of their sums."""
    of_set = f"`{ast.unparse(node.target)}` is divided by the size of the whole set"
    rows = _summed_rows(context, node.value)
    if rows is not None and context.has_accelerator(node):
        detach = ".detach()" if _has_gradient(context, rows) else ""
        context.replace(rows, f"{context.accelerator(node)}.gather_for_metrics({{0}}{detach})", rows)
        context.migrated(node, f"{of_set}: the rows of every process are added up")
    elif not _reduce(context, node, "sum"):
        context.review(node, f"{of_set}, but each process adds up its own part only")
    else:
        say = context.review if _measures_too(context, loop) else context.migrated
        say(
            node,
            f"{of_set}: it is summed over processes (samples repeated to fill the last batch count twice)",
        )


def _summed_rows(context: Context, value: ast.expr) -> ast.expr | None:
    """What ``rows.sum()`` or ``torch.sum(rows)``, and their ``.item()``, add up: one row a sample."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        value = value.func.value
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    rows: ast.expr | None = None
    if len(value.args) == 1 and library_names(context.plan, value.func) == {"torch.sum"}:
        rows = value.args[0]
    elif not value.args and isinstance(value.func, ast.Attribute) and value.func.attr == "sum":
        rows = value.func.value
    if rows is None or isinstance(rows, ast.Starred):
        return None
    atoms = list(context.plan.value(rows))
    of_rows = bool(atoms) and all(isinstance(a, Tensor) and a.reduction is Reduction.ROWS for a in atoms)
    return rows if of_rows else None


def _measures_too(context: Context, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop trains in some passes and measures in others."""
    module = context.plan.module
    return any(
        isinstance(around, (ast.If, ast.IfExp)) and loop in module.ancestors(around)
        for node in context.plan.training.reached(loop.body)
        if node in context.plan.training.backwards
        for around in module.ancestors(node)
    )


def _meter(context: Context, loop: ast.For | ast.AsyncFor, node: ast.Call) -> None:
    """``losses.update(loss.item(), n)``, where something is decided on ``losses.avg``."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "update" and node.args):
        return
    meter = ast.unparse(node.func.value)
    if not _of_batches(context, node.args[0]) or not _decides(context, loop, meter, returned=False):
        return
    item = _item(context, node.args[0])
    if item is not None and context.has_accelerator(node):
        _reduce_item(context, item, "mean")
        context.migrated(node, f"something is decided on `{meter}`: every process gets the same number")
    else:
        context.review(node, f"`{meter}` {_DIFFERS}")


def _of_batches(context: Context, node: ast.expr) -> list[Tensor | Number]:
    """The numbers and tensors that a value may be which are computed from batches."""
    return [a for a in context.plan.value(node) if isinstance(a, (Tensor, Number)) and a.loaders]


def _count(context: Context, loop: ast.For | ast.AsyncFor, node: ast.AugAssign) -> None:
    """``seen += y.size(0)`` counts for all processes where the sums beside it add up for all."""
    target = ast.unparse(node.target)
    left = [
        ast.unparse(other.target)
        for other in ast.walk(loop)
        if isinstance(other, ast.AugAssign)
        and not is_sample_count(context.plan.training, other.value)
        and any(isinstance(a, (Tensor, Number)) and a.loaders for a in context.plan.value(other.value))
        and (_item(context, other.value) is None or not _decides(context, loop, ast.unparse(other.target)))
    ]
    if left or not context.has_accelerator(node):
        beside = f", like `{left[0]}` beside it" if left else ""
        say = context.review if _decides(context, loop, target, returned=False) else context.note
        say(node, f"`{target}` counts the samples of each process for itself{beside}")
        return
    context.replace(node.value, f"{{0}} * {context.accelerator(node)}.num_processes", node.value)
    context.migrated(node, f"`{target}` counts the samples of every process")


def _item(context: Context, value: ast.expr) -> ast.Call | None:
    """The ``tensor.item()`` that is added, itself or times a number of samples; none where it is written otherwise."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        if is_sample_count(context.plan.training, value.right):
            value = value.left
        elif is_sample_count(context.plan.training, value.left):
            value = value.right
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        return value
    return None


def _reduce(context: Context, node: ast.AugAssign, how: str) -> bool:
    """Reduce the tensor of ``total += tensor.item()`` over processes; false where it is not written so."""
    item = _item(context, node.value)
    if item is None or not context.has_accelerator(node):
        return False
    if item is not node.value:
        how = "sum"  # times a number of samples, which is the same on every process
    _reduce_item(context, item, how)
    return True


def _reduce_item(context: Context, item: ast.Call, how: str) -> None:
    assert isinstance(item.func, ast.Attribute)
    tensor = item.func.value
    detach = ".detach()" if _has_gradient(context, tensor) else ""
    context.replace(item, f'{context.accelerator(item)}.reduce({{0}}{detach}, reduction="{how}").item()', tensor)


def _has_gradient(context: Context, tensor: ast.expr) -> bool:
    if not any(isinstance(a, Tensor) and a.models for a in context.plan.value(tensor)):
        return False
    ends = ("detach", "eq", "ne", "argmax")
    return not any(
        isinstance(n, ast.Compare) or (isinstance(n, ast.Attribute) and n.attr in ends) for n in ast.walk(tensor)
    )


def _divided_by_dataset(context: Context, loop: ast.For | ast.AsyncFor, target: str) -> bool:
    own_total = any(
        isinstance(n, ast.AugAssign)
        and ast.unparse(n.target) != target
        and is_sample_count(context.plan.training, n.value)
        for n in ast.walk(loop)
    )
    return not own_total and is_divided_by_samples(context.plan.training, loop, target)


def _decides(context: Context, loop: ast.For | ast.AsyncFor, target: str, *, returned: bool = True) -> bool:
    """Whether a number is compared or given to a scheduler behind the loop, or returned.

    With ``returned=False`` a number that is returned counts where those who call the function decide on it.
    """
    scope = context.plan.module.function(loop)
    behind = [n for n in context.plan.module.walk(scope) if getattr(n, "lineno", 0) > (loop.end_lineno or 0)]
    names = {target}
    for node in behind:  # what is computed from it counts as well
        if isinstance(node, ast.Assign) and _mentions(node.value, names):
            names |= {t.id for t in assigned_targets(node) if isinstance(t, ast.Name)}
    for node in behind:
        if _mentions(node, names):
            if _is_decision(context, node):
                return True
            if isinstance(node, ast.Return) and (returned or _callers_decide(context, scope)):
                return True
    return False


def _mentions(node: ast.AST, names: set[str]) -> bool:
    places = (n for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))
    return any(ast.unparse(n) in names for n in places)


def _is_decision(context: Context, node: ast.AST) -> bool:
    """Whether a node compares what it mentions, or lets a scheduler go by it."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Compare)
    names = library_names(context.plan, node.func)
    return node in context.plan.training.scheduler_steps or bool(names & {"builtins.min", "builtins.max"})


def _callers_decide(context: Context, function: ast.AST) -> bool:
    module = context.plan.module
    own = set(module.walk())
    for call in context.plan.store.callers.get(function, ()):
        if call not in own:
            return True
        statement = module.statement(call)
        if isinstance(statement, ast.Expr) and statement.value is call:
            continue
        if not (isinstance(statement, ast.Assign) and statement.value is call):
            return True
        names = {ast.unparse(t) for t in assigned_targets(statement)}
        scope = module.function(call)
        for node in module.walk(scope):
            if _mentions(node, names):
                if _is_decision(context, node) or isinstance(node, ast.Return):
                    return True
    return False


_DIFFERS = (
    "decides something, and each process computes it from its own part of the data: a decision made on it may differ "
    "between processes, which would leave them waiting for each other"
)

RULE = Rule(
    code="AM220",
    name="metrics",
    summary="A training sum that covers the whole set, or decides something, is reduced over processes.",
    why="Each process sees its part of the set: `total / len(loader.dataset)` would come out too small by their "
    "number.",
    before="for x, y in loader:\n    ...\n    total += loss.item()\nprint(total / len(loader.dataset))",
    after='for x, y in loader:\n    ...\n    total += accelerator.reduce(loss.detach(), reduction="sum").item()\n'
    "accelerator.print(total / len(loader.dataset))",
    safety="Exact on one process. A number that decides something is averaged or summed over processes, so that all "
    "decide alike; where it is not written as `total += tensor.item()` it gets a review finding.",
    apply=apply,
    order=41,
)
