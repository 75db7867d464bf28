"""Data parallelism by hand: gradients that a script averages over processes, and models that it makes equal on all.

``prepare`` does both. Two forms are known: loops over a model's parameters after ``backward``, and a function that
hangs the averaging into the model by hooks and hands the model back, as NVIDIA's speech models have it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.analysis.atoms import Role, Share
from accelerate_migrate.analysis.parallel_facts import ParallelFacts
from accelerate_migrate.analysis.scopes import parameters
from accelerate_migrate.analysis.units import is_never_named

_BROADCAST = "torch.distributed.broadcast"
_SUMS = frozenset({"torch.distributed.all_reduce"})
_PARAMETERS = ("parameters", "named_parameters")
_STATE = (*_PARAMETERS, "buffers", "named_buffers", "state_dict")
# What functions that hang the averaging into a model call: nothing that changes a number.
_MOVING = frozenset(
    ["append", "cat", "contiguous", "copy_", "dir", "flatten", "hasattr", "is_tensor", "isinstance", "items", "list",
        "named_parameters", "narrow", "numel", "parameters", "queue_callback", "register_forward_hook",
        "register_hook", "reshape", "split", "state_dict", "type", "values", "view", "view_as", "zip", "div_",
        "_flatten_dense_tensors", "_unflatten_dense_tensors", "float", "int", "len"]
)  # fmt: skip


def averages_gradients(facts: ParallelFacts, statement: ast.stmt) -> bool:
    """Whether a loop over a model's parameters does nothing but average their gradients over the processes."""
    tensor = _gone_through(facts, statement, _PARAMETERS)
    if tensor is None:
        return False
    leaves = list(_leaves(statement, tensor))
    summed = [leaf for leaf in leaves if _reduces_gradient(facts, leaf, tensor)]
    divided = [leaf for leaf in leaves if _divides_gradient(facts, leaf, tensor)]
    if len(summed) != 1 or len(leaves) != 1 + len(divided):
        return False
    call = summed[0].value if isinstance(summed[0], ast.Expr) else None
    return isinstance(call, ast.Call) and len(divided) == (0 if _operation(call) == "AVG" else 1)


def makes_equal(facts: ParallelFacts, statement: ast.stmt) -> bool:
    """Whether a loop over a model's state does nothing but send that of the first process to all others."""
    tensor = _gone_through(facts, statement, _STATE)
    if tensor is None:
        return False
    leaves = list(_leaves(statement, tensor))
    return bool(leaves) and all(_sends(facts, leaf, tensor) for leaf in leaves)


def wraps_by_hand(facts: ParallelFacts, function: ast.AST) -> bool:
    """Whether a function does nothing but let a model average its gradients by hooks, and returns it or nothing."""
    if not isinstance(function, ast.FunctionDef) or not parameters(function):
        return False
    nodes = list(ast.walk(function))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    sums = [call for call in calls if facts.calls.get(call) in _SUMS]
    said = {facts.calls[call] for call in calls if call in facts.calls}
    if not sums or not said <= _SUMS | table.ASKING | table.DESCRIBING | {_BROADCAST}:
        return False
    hooks = any(_last_name(call.func) == "register_hook" for call in calls)
    gradients = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)
    divided = [*_divisors(nodes)]
    averaged = bool(divided) and all(_is_world(facts, divisor) for divisor in divided)
    plain = all(_last_name(call.func) in _MOVING or call in facts.calls for call in _outside_prints(calls, function))
    return hooks and gradients and averaged and plain and all(map(_is_plain_sum, sums)) and _is_bare(facts, function)


def _is_bare(facts: ParallelFacts, function: ast.FunctionDef) -> bool:
    """Whether a function changes nothing but marks that it leaves on the model, which nothing else reads."""
    model = parameters(function)[0].arg
    inside = set(ast.walk(function))
    marks = {n.attr for n in inside if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    module = facts.training.module
    others = [n for n in module.everywhere() if isinstance(n, ast.ClassDef) and is_never_named(facts.training, n)]
    apart = inside.union(*(ast.walk(other) for other in others))
    read = {n.attr for n in module.everywhere() if isinstance(n, ast.Attribute) and n not in apart}
    for node in inside:
        if isinstance(node, ast.Return) and facts.training.module.function(node) is function:
            if node.value is not None and ast.unparse(node.value) != model:
                return False
        if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Div, ast.Add)):
            return False
        if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Div):
            return False
        if isinstance(node, ast.If) and not _asks_only_whether_there_is_one(node):
            hooked = any(_last_name(n.func) == "register_hook" for n in ast.walk(node) if isinstance(n, ast.Call))
            if hooked:
                return False
    return marks.isdisjoint(read) and marks.isdisjoint({"data", "grad", "requires_grad", "training"})


def _asks_only_whether_there_is_one(node: ast.If) -> bool:
    """``if p.requires_grad:`` and the like, without another way."""
    names = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
    return not node.orelse and bool(names) and names <= {"requires_grad", "grad"}


def _outside_prints(calls: list[ast.Call], function: ast.FunctionDef) -> list[ast.Call]:
    """The calls that do something, without those in what is printed."""
    prints = [call for call in calls if _last_name(call.func) == "print"]
    shown = {n for call in prints for n in ast.walk(call)}
    return [call for call in calls if call not in shown]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# ---- parts of loops


def _gone_through(facts: ParallelFacts, statement: ast.stmt, methods: tuple[str, ...]) -> str | None:
    """The name of the tensor in ``for parameter in model.parameters()`` and its kin, of a whole model."""
    if not isinstance(statement, ast.For) or statement.orelse:
        return None
    call = statement.iter
    while isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
        if isinstance(call.func, ast.Name) and call.func.id == "list" and len(call.args) == 1:
            call = call.args[0]
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("values", "items") and not call.args:
            call = call.func.value
        else:
            break
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in methods):
        return None
    owner = facts.value(call.func.value)
    if not owner.sites(Role.MODEL) or not owner.only_role(Role.MODEL):
        return None
    last = statement.target.elts[-1] if isinstance(statement.target, ast.Tuple) else statement.target
    if not isinstance(last, ast.Name):
        return None
    module = facts.training.module
    inside = set(ast.walk(statement))
    outside = [n for n in module.walk(module.function(statement)) if isinstance(n, ast.Name) and n not in inside]
    bound_again = {n.id for n in outside if isinstance(n.ctx, ast.Store)}
    left = {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)} - bound_again
    return None if any(n.id in left for n in outside) else last.id  # what is read behind the loop must be bound there


def _leaves(statement: ast.stmt, tensor: str) -> Iterator[ast.stmt]:
    """The statements of a loop that do something, those under ``if``s that ask whether there is a gradient included."""
    for inner in statement.body if isinstance(statement, (ast.For, ast.If)) else []:
        if isinstance(inner, ast.If) and not inner.orelse:
            skips = all(isinstance(s, ast.Continue) for s in inner.body)
            if _is_asked_for(inner.test, tensor, there=not skips):
                yield from _leaves(inner, tensor)
            else:
                yield inner
        elif not isinstance(inner, (ast.Pass, ast.Continue)):
            yield inner


def _is_asked_for(test: ast.expr, tensor: str, *, there: bool) -> bool:
    """Whether a test asks that there is a gradient, or (with ``there`` false) that there is none."""
    if isinstance(test, ast.BoolOp):
        wanted = ast.And if there else ast.Or
        return isinstance(test.op, wanted) and all(_is_asked_for(v, tensor, there=there) for v in test.values)
    text = ast.unparse(test)
    positive = (f"{tensor}.requires_grad", f"{tensor}.grad is not None", f"torch.is_tensor({tensor})")
    negative = (f"not {tensor}.requires_grad", f"{tensor}.grad is None", f"not torch.is_tensor({tensor})")
    return text in (positive if there else negative)


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
