"""Which accumulation can be left to the accelerator whole: ``with accelerator.accumulate(model):``.

The accelerator divides each loss by the number of micro-batches, steps at the end of each window and at a loader's end.
That is the script's training where its windows begin with the loader, its loss is divided by the same number, and
nothing but the step depends on where a window ends.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelerate_migrate.analysis.atoms import Role, Site
from accelerate_migrate.analysis.library import CLIPPERS
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.windows import (
    Window,
    accumulated_loss,
    is_loader,
    jumps,
    loader_loop,
    steps_of,
)


@dataclass(eq=False)
class WholeWindow:
    """A window that ``accumulate`` takes over: what goes, what is read differently, what waits for the boundary."""

    window: Window
    boundary: ast.If
    count: ast.expr  # the number of micro-batches, as the loop spells it
    drops_rest: bool  # the original's last window, if it is not full, does not step at the loader's end
    quotients: list[ast.BinOp] = field(default_factory=list)  # ``a / n``, of which ``a`` stays
    divisions: list[ast.stmt] = field(default_factory=list)  # statements that do nothing but divide
    products: list[ast.BinOp] = field(default_factory=list)  # ``loss.item() * n``, of which the left stays
    reads: list[ast.expr] = field(default_factory=list)  # ``loss.item()`` of the divided loss
    clips: list[ast.stmt] = field(default_factory=list)
    schedulers: list[ast.stmt] = field(default_factory=list)
    zeros: list[ast.stmt] = field(default_factory=list)  # ``optimizer.zero_grad()`` inside the boundary
    top: ast.stmt | None = None  # ``if i % n == 0: optimizer.zero_grad()`` ahead of the forward


def whole_window(training: Training, window: Window, sharded: frozenset[Site]) -> WholeWindow | None:
    """What ``accumulate`` makes of a window, or ``None`` where the script must keep its own modulo."""
    boundary, loop = window.boundary, loader_loop(training, window)
    if boundary is None or loop is None or not loop.loaders <= sharded or jumps(loop.node):
        return None
    if set(training.backwards) != set(window.backwards) or len(training.optimizers) != 1:
        return None  # the accelerator divides every loss of the script
    (loader,) = loop.loaders
    tested = _tested(training, loop.node, boundary.test, loader)
    if tested is None:
        return None
    whole = WholeWindow(window, boundary, *tested)
    if not _sort_boundary(training, whole) or not _sort_rest(training, whole, loop.node):
        return None
    return whole if all(_divides(training, whole, call) for call in window.backwards) else None


# ---- the test


def _tested(
    training: Training, loop: ast.For | ast.AsyncFor, test: ast.expr, loader: Site
) -> tuple[ast.expr, bool] | None:
    """The number of micro-batches that a test counts, and whether it ignores the loader's end."""
    start = _first_index(training, loop)
    if start is None:
        return None
    index, first = start
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and len(test.values) == 2:
        counts = [_counted(part, index, first) for part in test.values]
        ends = [_is_end(training, part, index, first, loader) for part in test.values]
        for count, end in (counts[0], ends[1]), (counts[1], ends[0]):
            if count is not None and end:
                return count, False
        return None
    count = _counted(test, index, first)
    return (count, True) if count is not None else None


def _first_index(training: Training, loop: ast.For | ast.AsyncFor) -> tuple[str, int] | None:
    """The name that counts a loop's rounds, and its first value."""
    called, target = loop.iter, loop.target
    while isinstance(called, ast.Call) and "tqdm" in ast.unparse(called.func) and called.args:
        called = called.args[0]
    if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "enumerate"):
        return None
    if not (isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name)):
        return None
    given = [*called.args[1:], *(k.value for k in called.keywords)]
    first = given[0].value if given and isinstance(given[0], ast.Constant) else 0 if not given else None
    name = target.elts[0].id
    stored = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
    if not isinstance(first, int) or any(isinstance(n.ctx, ast.Store) for n in stored):
        return None
    return name, first


def _counted(test: ast.expr, index: str, first: int) -> ast.expr | None:
    """``n`` of ``(i + 1) % n == 0``, ``i % n == n - 1`` and ``not (i + 1) % n``: each n-th round, from the first on."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _counted(ast.Compare(test.operand, [ast.Eq()], [ast.Constant(0)]), index, first)
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    left, right = test.left, test.comparators[0]
    if not (isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)):
        return None
    count = left.right
    ahead = _ahead(left.left, index)
    if ahead is None or not isinstance(count, (ast.Name, ast.Attribute, ast.Constant)):
        return None
    text = ast.unparse(right)
    if text == "0" and ahead + first == 1:
        return count
    return count if text == f"{ast.unparse(count)} - 1" and ahead + first == 0 else None


def _ahead(node: ast.expr, index: str) -> int | None:
    """``k`` of ``i + k``."""
    if isinstance(node, ast.Name) and node.id == index:
        return 0
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.Name) and one.id == index and isinstance(other, ast.Constant):
                if type(other.value) is int and (one is node.left or isinstance(node.op, ast.Add)):
                    return other.value if isinstance(node.op, ast.Add) else -other.value
    return None


def _is_end(training: Training, test: ast.expr, index: str, first: int, loader: Site) -> bool:
    """``i + 1 == len(loader)``: the loader's last batch."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    for one, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        ahead, behind = _ahead(one, index), 0
        if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Sub) and isinstance(other.right, ast.Constant):
            behind, other = int(str(other.right.value)), other.left
        length = isinstance(other, ast.Call) and ast.unparse(other.func) == "len" and len(other.args) == 1
        if ahead is not None and isinstance(other, ast.Call) and length and is_loader(training, other.args[0], loader):
            return ahead + first + behind == 1
    return False


# ---- what the loop does


def _sort_boundary(training: Training, whole: WholeWindow) -> bool:
    """Sort what the boundary does; false where it does more than a step."""
    stepped = 0
    for statement in whole.boundary.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, (ast.Attribute, ast.Name))):
            return False
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        owner = training.receiver(call) if isinstance(call.func, ast.Attribute) else training.value(call.func)
        names = training.library_names(call.func)
        if steps_of(training, call):
            stepped += 1
        elif method == "zero_grad" and owner.only_role(Role.OPTIMIZER):
            whole.zeros.append(statement)
        elif method == "step" and owner.sites(Role.SCHEDULER) and stepped:
            whole.schedulers.append(statement)
        elif names and names <= set(CLIPPERS):
            whole.clips.append(statement)
        elif not (method in ("update", "unscale_") and owner.sites(Role.SCALER)):
            return False
    return stepped == 1


def _sort_rest(training: Training, whole: WholeWindow, loop: ast.For | ast.AsyncFor) -> bool:
    """Find the gradients' clearing outside the boundary; false where the loop steps or clears otherwise."""
    test = f"% {ast.unparse(whole.count)} == 0"
    for statement in loop.body:
        if statement is whole.boundary:
            continue
        clears = _calls(training, statement, "zero_grad")
        ahead = not whole.zeros and whole.top is None and statement.lineno < whole.window.micro[0].lineno
        if clears and ahead and isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
            if ast.unparse(statement.test).endswith(test) and training.receiver(clears[0]).only_role(Role.OPTIMIZER):
                whole.top = statement
                continue
        if clears or any(training.receiver(c).sites(Role.SCHEDULER) for c in _calls(training, statement, "step")):
            return False
    return bool(whole.zeros) or whole.top is not None


def _calls(training: Training, node: ast.AST, method: str) -> list[ast.Call]:
    return [
        n
        for n in training.module.walk(node)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == method
    ]


# ---- the division of the loss


def _divides(training: Training, whole: WholeWindow, call: ast.Call) -> bool:
    """Find where the loss of a backward is divided by the number of micro-batches; false where it is not."""
    loss = accumulated_loss(training, call)
    if _is_quotient(whole, loss):
        assert isinstance(loss, ast.BinOp)
        whole.quotients.append(loss)
        return not call.args and not call.keywords
    if not isinstance(loss, ast.Name) or call.args or call.keywords:
        return False
    bound = [
        (statement, guarded)
        for statement, guarded in _straight(whole, whole.window.micro)
        if statement.lineno <= call.lineno and _binds(statement, loss.id)
    ]
    if not bound:
        return False
    division, guard = bound[-1]
    if isinstance(division, ast.AugAssign):
        if not (isinstance(division.op, ast.Div) and ast.unparse(division.value) == ast.unparse(whole.count)):
            return False
        whole.divisions.append(guard or division)
    elif isinstance(division, ast.Assign) and len(division.targets) == 1 and _is_quotient(whole, division.value):
        assert isinstance(division.value, ast.BinOp)
        if ast.unparse(division.value.left) == loss.id:
            whole.divisions.append(guard or division)
        elif guard is None:
            whole.quotients.append(division.value)
        else:
            return False
    else:
        return False
    return _sort_reads(training, whole, loss.id, division, call)


def _is_quotient(whole: WholeWindow, node: ast.expr) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and ast.unparse(node.right) == ast.unparse(whole.count)
    )


def _straight(whole: WholeWindow, block: tuple[ast.stmt, ...] | list[ast.stmt]) -> list[tuple[ast.stmt, ast.If | None]]:
    """The statements that run in each micro-batch, those under ``if n > 1:`` with that ``if``."""
    found: list[tuple[ast.stmt, ast.If | None]] = []
    for statement in block:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            found += _straight(whole, statement.body)
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == f"{ast.unparse(whole.count)} > 1":
            if len(statement.body) == 1 and not statement.orelse:
                found.append((statement.body[0], statement))
        else:
            found.append((statement, None))
    return found


def _binds(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(statement))


def _sort_reads(training: Training, whole: WholeWindow, name: str, division: ast.stmt, call: ast.Call) -> bool:
    """Sort the reads of the divided loss behind its division; false where one needs the divided tensor itself."""
    module = training.module
    backward = set(module.walk(call))
    for node in module.walk(module.function(call)):
        if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)):
            continue
        if node in backward or module.function(node) is not module.function(call):
            continue
        in_loop = whole.window.loop in module.ancestors(node)
        if in_loop and node.lineno <= (division.end_lineno or division.lineno):
            continue
        method = module.parents[node]
        read = module.parents[method]
        if not (isinstance(method, ast.Attribute) and method.attr == "item" and isinstance(read, ast.Call)):
            return False
        around = module.parents[read]
        times = isinstance(around, ast.BinOp) and isinstance(around.op, ast.Mult) and around.left is read
        if isinstance(around, ast.BinOp) and times and ast.unparse(around.right) == ast.unparse(whole.count):
            whole.products.append(around)
        else:
            whole.reads.append(read)
    return True
