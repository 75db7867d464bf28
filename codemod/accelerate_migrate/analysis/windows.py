"""Gradient accumulation: the loops whose rounds are micro-batches, and the place where a window of them steps.

Two shapes are known: a modulo inside the loop (``if (i + 1) % n == 0: optimizer.step()``) and a step behind an inner
loop (``for micro in range(n): ... backward()``, then ``optimizer.step()``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import Role, Site
from accelerate_migrate.analysis.modules import DEFINITIONS, LOOPS
from accelerate_migrate.analysis.training import LoaderLoop, Training
from accelerate_migrate.analysis.values import Value

_JUMPS = (ast.Break, ast.Continue, ast.Return)


@dataclass(frozen=True, eq=False)
class Window:
    """One accumulation: ``micro`` are the statements from the first forward to the last backward of a micro-batch.

    ``boundary`` is the ``if`` that steps; ``None`` where the step stands behind an inner loop. ``last`` is the source
    of the condition under which this micro-batch steps, ``None`` where it cannot be told before its backward.
    """

    loop: ast.For | ast.AsyncFor | ast.While
    micro: tuple[ast.stmt, ...]
    boundary: ast.If | None
    model: str  # its name in the loop
    last: str | None
    backwards: tuple[ast.Call, ...]


def find_windows(training: Training, models: frozenset[Site]) -> list[Window]:
    """The accumulation windows of a module over one of these models, in the order of the source."""
    found = []
    for node in training.module.walk():
        if isinstance(node, LOOPS):
            window = _by_modulo(training, models, node) or _by_inner_loop(training, models, node)
            if window is not None:
                found.append(window)
    return found


def steps_of(training: Training, node: ast.AST) -> list[ast.Call]:
    """The optimizer steps among what is written below a node, those through a grad scaler included."""
    return [
        call
        for call in training.module.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        if training.receiver(call).sites(Role.OPTIMIZER)
        or any(training.value(argument).sites(Role.OPTIMIZER) for argument in call.args)
    ]


def accumulated_loss(training: Training, call: ast.Call) -> ast.expr:
    """The loss of a backward call; that of ``scaler.scale(loss).backward()`` is ``loss``."""
    assert isinstance(call.func, ast.Attribute)
    return training.unscaled(call.func.value)


# ---- the two shapes


def _by_modulo(training: Training, models: frozenset[Site], loop: ast.For | ast.AsyncFor | ast.While) -> Window | None:
    boundary = next((s for s in loop.body if isinstance(s, ast.If) and _steps_now_and_then(training, s)), None)
    if boundary is None:
        return None
    before = loop.body[: loop.body.index(boundary)]
    if any(steps_of(training, statement) for statement in before):
        return None
    micro = _micro_batch(training, models, before)
    name = _model_name(training, models, micro)
    backwards = _backwards(training, micro)
    if name is None or not backwards:
        return None
    last = ast.unparse(boundary.test)
    known_early = not _changes(micro, boundary.test) and _is_harmless(boundary.test)
    return Window(loop, micro, boundary, name, last if known_early else None, backwards)


def _by_inner_loop(
    training: Training, models: frozenset[Site], loop: ast.For | ast.AsyncFor | ast.While
) -> Window | None:
    """``for micro in range(n):`` without a step in it, followed by one in the same block."""
    if not isinstance(loop, ast.For) or steps_of(training, loop):
        return None
    block = training.module.block(loop)
    micro = _micro_batch(training, models, loop.body)
    name = _model_name(training, models, micro)
    backwards = _backwards(training, micro)
    if name is None or not backwards or any(isinstance(n, _JUMPS) for n in _level(loop.body)):
        return None
    if not any(steps_of(training, statement) for statement in block[block.index(loop) + 1 :]):
        return None
    return Window(loop, micro, None, name, _last_round(loop), backwards)


def _last_round(loop: ast.For) -> str | None:
    """The condition of the last round of ``for i in range(n)``."""
    called = loop.iter
    if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "range"):
        return None
    if len(called.args) != 1 or called.keywords or not isinstance(loop.target, ast.Name):
        return None
    count = called.args[0]
    if not _is_harmless(count) or _changes(tuple(loop.body), count) or _changes(tuple(loop.body), loop.target):
        return None
    return f"{loop.target.id} == {ast.unparse(count)} - 1"


def _steps_now_and_then(training: Training, statement: ast.If) -> bool:
    """Whether an ``if`` without ``else`` steps an optimizer in some rounds only, counted by a modulo."""
    if statement.orelse or not steps_of(training, statement):
        return False
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(statement.test))


def _micro_batch(training: Training, models: frozenset[Site], block: list[ast.stmt]) -> tuple[ast.stmt, ...]:
    """The run of statements from the first forward of one of the models to the last backward."""
    forward = [i for i, s in enumerate(block) if any(training.forwards(n) & models for n in training.reached([s]))]
    backward = [i for i, s in enumerate(block) if any(n in training.backwards for n in training.reached([s]))]
    if not forward or not backward or forward[0] > backward[-1]:
        return ()
    return tuple(block[forward[0] : backward[-1] + 1])


def _backwards(training: Training, micro: tuple[ast.stmt, ...]) -> tuple[ast.Call, ...]:
    """The backward calls that stand in these statements themselves."""
    inside = [n for s in micro for n in training.module.walk(s)]
    return tuple(n for n in inside if isinstance(n, ast.Call) and n in training.backwards)


def _model_name(training: Training, models: frozenset[Site], micro: tuple[ast.stmt, ...]) -> str | None:
    """The one name under which these statements call the one model they train."""
    called = [
        node
        for statement in micro
        for node in training.module.walk(statement)
        if isinstance(node, ast.Call) and training.forwards(node) & models
    ]
    names = {ast.unparse(node.func) for node in called}
    trained = {training.forwards(node) & models for node in called}  # several where branches make it in several ways
    plain = all(isinstance(node.func, (ast.Name, ast.Attribute)) for node in called)
    return names.pop() if len(names) == 1 and len(trained) == 1 and plain else None


# ---- small questions


def _level(block: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes that run in this loop itself: not those of loops and functions inside of it."""
    for statement in block:
        stack: list[ast.AST] = [statement]
        while stack:
            node = stack.pop()
            yield node
            inner = (*LOOPS, *DEFINITIONS)
            stack += [] if isinstance(node, inner) else list(ast.iter_child_nodes(node))


def jumps(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a round of this loop may end early."""
    returns = any(isinstance(n, ast.Return) for s in loop.body for n in ast.walk(s))
    return returns or any(isinstance(n, _JUMPS) for n in _level(loop.body))


def _is_harmless(test: ast.expr) -> bool:
    """Whether evaluating an expression twice is the same as once."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "len"):
            return False
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
    return True


def _changes(statements: tuple[ast.stmt, ...], read: ast.expr) -> bool:
    """Whether statements bind what an expression reads."""
    texts = {ast.unparse(n) for n in ast.walk(read) if isinstance(n, (ast.Name, ast.Attribute))}
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and ast.unparse(n) in texts
        for s in statements
        for n in ast.walk(s)
    )


def loader_loop(training: Training, window: Window) -> LoaderLoop | None:
    """The loop of a window, where it runs over one loader."""
    found = next((one for one in training.loops if one.node is window.loop), None)
    return found if found is not None and len(found.loaders) == 1 else None


def is_loader(training: Training, node: ast.expr, site: Site) -> bool:
    """Whether an expression is this loader and nothing else."""
    one: Value = training.value(node)
    return one.sites() == {site} and len(one.atoms) == 1
