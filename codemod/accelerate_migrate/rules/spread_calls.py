"""Calls that spread a module over GPUs on the spot, ``nn.parallel.data_parallel(net, x, ids)``, become ``net(x)``."""

from __future__ import annotations

import ast

from accelerate_migrate.edits import Unwrap
from accelerate_migrate.rules.base import Context
from accelerate_migrate.rules.calls import says_the_same

DATA_PARALLEL_CALL = "torch.nn.parallel.data_parallel"
_POSITIONS = 4  # module, inputs, device_ids, output_device: behind these come `dim` and `module_kwargs`
_OF_TUPLES = frozenset(dir(tuple))


def plain_call(context: Context, call: ast.Call) -> ast.Call | None:
    """The module's own call that ``data_parallel(module, inputs, …)`` spreads, or ``None`` where that is not certain.

    ``data_parallel`` takes a tuple of inputs apart, so it must be seen that these are one tensor, or which they are.
    """
    known = all(k.arg in ("device_ids", "output_device") for k in call.keywords)
    if not known or not 2 <= len(call.args) <= _POSITIONS or not context.plan.placement.creations:
        return None
    module, inputs = call.args[:2]
    if any(isinstance(a, ast.Starred) for a in call.args) or not isinstance(module, (ast.Name, ast.Attribute)):
        return None
    if not all(_only_asks(context, part) for part in (*call.args[2:], *(k.value for k in call.keywords))):
        return None
    if isinstance(inputs, ast.Tuple):
        return ast.Call(module, inputs.elts, [])
    plain = ast.Call(module, [inputs], [])
    if isinstance(inputs, ast.Name) and (_is_made(context, call, plain) or _is_asked_as_tensor(context, call, inputs)):
        return plain
    return None


def call_plainly(context: Context, call: ast.Call, plain: ast.Call) -> None:
    """Call the module itself; a condition that chose between the two ways goes."""
    statement, parent = context.plan.module.statement(call), context.parent(call)
    around = context.parent(statement)
    same = {call: plain}
    if isinstance(around, ast.If) and around.body and statement in around.body and _may_go(context, around):
        if around.orelse and says_the_same(around.body, around.orelse, same):
            context.edit(Unwrap(around, "orelse"))
            context.gone.update((around.test, *around.body))
            return
        behind = _behind(context, around)
        if isinstance(behind, ast.Return) and not around.orelse and says_the_same(around.body, [behind], same):
            context.delete(around)
            return
    if isinstance(parent, ast.IfExp) and parent.body is call and says_the_same(plain, parent.orelse, {}):
        if _may_go(context, parent):
            context.replace(parent, "{0}", parent.orelse)
            return
    template = "{0}(" + ", ".join(f"{{{i + 1}}}" for i in range(len(plain.args))) + ")"
    context.replace(call, template, plain.func, *plain.args)


def _is_made(context: Context, call: ast.Call, plain: ast.Call) -> bool:
    """Whether the same function also calls the module itself, with the same inputs."""
    inside = context.plan.module.walk(context.plan.module.function(call))
    return any(isinstance(n, ast.Call) and says_the_same(plain, n, {}) for n in inside)


def _is_asked_as_tensor(context: Context, call: ast.Call, inputs: ast.Name) -> bool:
    """Whether a condition around the call reads from its inputs what no tuple has: ``x.is_cuda``."""
    for around in context.plan.module.ancestors(call):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        for node in ast.walk(around.test) if isinstance(around, (ast.If, ast.IfExp)) else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == inputs.id and node.attr not in _OF_TUPLES:
                    return True
    return False


def _only_asks(context: Context, part: ast.AST) -> bool:
    """Whether nothing happens where an expression is evaluated: it can go."""
    for node in ast.walk(part):
        if isinstance(node, (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(node, ast.Call) and not context.asks_only(node):
            if not (isinstance(node.func, ast.Name) and node.func.id in ("range", "list")):
                return False
    return True


def _may_go(context: Context, choice: ast.If | ast.IfExp) -> bool:
    return context.may_change(choice) and _only_asks(context, choice.test)


def _behind(context: Context, statement: ast.stmt) -> ast.stmt | None:
    """The statement behind one, in its block."""
    for block in (getattr(context.parent(statement), name, []) for name in ("body", "orelse", "finalbody")):
        if isinstance(block, list) and statement in block:
            return next(iter(block[block.index(statement) + 1 :]), None)
    return None
