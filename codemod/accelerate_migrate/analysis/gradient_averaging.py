"""Data parallelism by hand: gradients that a script averages over processes, and models that it makes equal on all.

``prepare`` does both. Two forms are known: loops over a model's parameters after ``backward``, and a function that
hangs the averaging into the model by hooks and hands the model back, as NVIDIA's speech models have it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.analysis.atoms import Share
from accelerate_migrate.analysis.parallel_facts import ParallelFacts
from accelerate_migrate.analysis.scopes import parameters

_BROADCAST = "torch.distributed.broadcast"
_SUMS = frozenset({"torch.distributed.all_reduce"})
_PARAMETERS = ("parameters", "named_parameters")
_STATE = (*_PARAMETERS, "buffers", "named_buffers", "state_dict")


def averages_gradients(facts: ParallelFacts, statement: ast.stmt) -> bool:
    """Whether a loop over a model's parameters does nothing but average their gradients over the processes."""
    tensor = _gone_through(statement, _PARAMETERS)
    if tensor is None:
        return False
    leaves = list(_leaves(statement))
    summed = [leaf for leaf in leaves if _reduces_gradient(facts, leaf, tensor)]
    divided = [leaf for leaf in leaves if _divides_gradient(facts, leaf, tensor)]
    if len(summed) != 1 or len(leaves) != 1 + len(divided):
        return False
    call = summed[0].value if isinstance(summed[0], ast.Expr) else None
    return isinstance(call, ast.Call) and len(divided) == (0 if _operation(call) == "AVG" else 1)


def makes_equal(facts: ParallelFacts, statement: ast.stmt) -> bool:
    """Whether a loop over a model's state does nothing but send that of the first process to all others."""
    tensor = _gone_through(statement, _STATE)
    leaves = list(_leaves(statement))
    return tensor is not None and bool(leaves) and all(_sends(facts, leaf, tensor) for leaf in leaves)


def wraps_by_hand(facts: ParallelFacts, function: ast.AST) -> bool:
    """Whether a function lets a model average its gradients by hooks, and returns the model or nothing."""
    if not isinstance(function, ast.FunctionDef) or not parameters(function):
        return False
    nodes = list(ast.walk(function))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    said = {facts.calls[call] for call in calls if call in facts.calls}
    sums = [call for call in calls if facts.calls.get(call) in _SUMS]
    if not sums or not said <= _SUMS | table.ASKING | table.DESCRIBING | {_BROADCAST}:
        return False
    hooks = any(isinstance(n.func, ast.Attribute) and n.func.attr == "register_hook" for n in calls)
    gradients = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)
    averaged = any(_is_world(facts, divisor) for divisor in _divisors(nodes))
    model = parameters(function)[0].arg
    own = (n for n in nodes if isinstance(n, ast.Return) and facts.training.module.function(n) is function)
    handed_back = all(n.value is None or ast.unparse(n.value) == model for n in own)
    return hooks and gradients and averaged and handed_back and all(map(_is_plain_sum, sums))


# ---- parts of loops


def _gone_through(statement: ast.stmt, methods: tuple[str, ...]) -> str | None:
    """The name of the tensor in ``for parameter in model.parameters()`` and its kin."""
    if not isinstance(statement, ast.For) or statement.orelse:
        return None
    calls = [n for n in ast.walk(statement.iter) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    if not any(isinstance(call.func, ast.Attribute) and call.func.attr in methods for call in calls):
        return None
    last = statement.target.elts[-1] if isinstance(statement.target, ast.Tuple) else statement.target
    return last.id if isinstance(last, ast.Name) else None


def _leaves(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of a loop that do something, those under its ``if``s included."""
    for inner in statement.body if isinstance(statement, (ast.For, ast.If)) else []:
        if isinstance(inner, ast.If) and not inner.orelse:
            yield from _leaves(inner)
        elif not isinstance(inner, (ast.Pass, ast.Continue)):
            yield inner


def _is_gradient(node: ast.expr, tensor: str) -> bool:
    return ast.unparse(node) in (f"{tensor}.grad", f"{tensor}.grad.data")


def _reduces_gradient(facts: ParallelFacts, leaf: ast.stmt, tensor: str) -> bool:
    call = leaf.value if isinstance(leaf, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and facts.calls.get(call) in _SUMS
        and bool(call.args)
        and _is_gradient(call.args[0], tensor)
        and (_is_plain_sum(call) or _operation(call) == "AVG")
    )


def _operation(call: ast.Call) -> str:
    told = [k.value for k in call.keywords if k.arg == "op"] + call.args[1:2]
    return ast.unparse(told[0]).rsplit(".", 1)[-1] if told else "SUM"


def _is_plain_sum(call: ast.Call) -> bool:
    return _operation(call) == "SUM" and all(k.arg == "op" for k in call.keywords) and len(call.args) < 3


def _divides_gradient(facts: ParallelFacts, leaf: ast.stmt, tensor: str) -> bool:
    """``p.grad /= world``, ``p.grad.data = p.grad.data / world`` or ``p.grad.div_(world)``."""
    if isinstance(leaf, ast.AugAssign):
        return isinstance(leaf.op, ast.Div) and _is_gradient(leaf.target, tensor) and _is_world(facts, leaf.value)
    if isinstance(leaf, ast.Assign) and len(leaf.targets) == 1 and isinstance(leaf.value, ast.BinOp):
        made = leaf.value
        both = _is_gradient(leaf.targets[0], tensor) and _is_gradient(made.left, tensor)
        return both and isinstance(made.op, ast.Div) and _is_world(facts, made.right)
    call = leaf.value if isinstance(leaf, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "div_"
        and _is_gradient(call.func.value, tensor)
        and len(call.args) == 1
        and not call.keywords
        and _is_world(facts, call.args[0])
    )


def _is_world(facts: ParallelFacts, node: ast.expr) -> bool:
    return facts.share(node) is Share.WORLD


def _sends(facts: ParallelFacts, leaf: ast.stmt, tensor: str) -> bool:
    call = leaf.value if isinstance(leaf, ast.Expr) else None
    if not isinstance(call, ast.Call) or facts.calls.get(call) != _BROADCAST or not call.args:
        return False
    told = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "src")]
    first = len(told) == 1 and isinstance(told[0], ast.Constant) and told[0].value == 0
    return first and ast.unparse(call.args[0]) in (tensor, f"{tensor}.data", f"{tensor}.detach()")


def _divisors(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """What is divided by, in any division."""
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("div", "div_"):
            yield from node.args[:1]
