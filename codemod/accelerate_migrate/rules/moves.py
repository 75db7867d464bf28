"""AM120: models and batches are moved by `prepare`; everything else goes to the accelerator's device."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Atom, Bound, Const, Library, Object, Origin, Role, Tensor
from accelerate_migrate.analysis.devices import is_device_flag, is_pure_move, spelled_kinds
from accelerate_migrate.analysis.library_arrays import CONSTANT_TENSORS
from accelerate_migrate.analysis.modules import DEFINITIONS
from accelerate_migrate.analysis.scopes import binding_scope
from accelerate_migrate.analysis.values import flatten, is_device, is_index
from accelerate_migrate.edits import AddArgument, Unwrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import (
    is_map_location,
    keyword,
    library_names,
    method_calls,
    moves_storage,
    says_the_same,
)


def apply(context: Context) -> None:
    """Decide for each ``.cuda()`` and ``.to(device)``, then tidy the statements that moved nothing else."""
    moves = [
        (call, func) for call, func in method_calls(context.plan, "cuda", "to", "xpu") if _is_move(context, call, func)
    ]
    dropped: dict[ast.Call, ast.expr] = {}
    for call, func in moves:
        if context.may_change(call) and _prepare_moves(context, func.value):
            dropped[call] = func.value
    pinned = [
        (call, func)
        for call, func in method_calls(context.plan, "pin_memory")
        if context.may_change(call) and _prepare_moves(context, func.value)
    ]
    dropped |= {call: func.value for call, func in pinned}
    statements = {context.plan.module.statement(call) for call in dropped}
    vanishing = {s for s in statements if _moves_only(s, dropped)}
    _guards(context, moves, vanishing)
    for statement in sorted(vanishing, key=lambda s: s.lineno):
        if not context.is_gone(statement):
            context.migrated(statement, f"{short(statement)}: `prepare` moves it")
            context.delete(statement)
    for call, func in moves:
        if context.may_change(call):
            _rewrite(context, call, func, dropped)
    for call, func in pinned:
        if context.may_change(call):
            context.migrated(call, f"{short(call)}: `prepare` has put it on its device")
            context.replace(call, "{0}", func.value)
    _elsewhere(context, {call for call, _ in moves})


def _elsewhere(context: Context, known: set[ast.Call]) -> None:
    """Name the batches that go to a device which is not known: it may be another than the process's own."""
    for call, func in method_calls(context.plan, "to"):
        target = None if call in known else _target(call)
        if target is None or not context.may_change(call) or not _prepare_moves(context, func.value):
            continue
        if not context.plan.value(func.value).of(Tensor) or "device" not in ast.unparse(target):
            continue
        one = context.plan.value(target)
        if _is_unknown(context, target) or any(str(constant.value).startswith("cuda") for constant in one.of(Const)):
            context.review(
                call,
                f"`prepare` has put this on the process's own device, and `{ast.unparse(target)}` may be another: "
                "take the accelerator's device in its place, or let the move go",
            )
    _where_the_model_was(context, known)


def _is_unknown(context: Context, device: ast.expr) -> bool:
    one = context.plan.value(device)
    return one.may_be_unknown() or bool(one.of(Bound) or one.of(Library) or one.sites(Role.INSTANCE))


def _where_the_model_was(context: Context, known: set[ast.Call]) -> None:
    """Name what goes to the device of which nothing is known but that the script moved a prepared model there."""
    plan = context.plan
    devices: set[tuple[ast.AST, str]] = set()
    moved: set[ast.expr] = set()
    for call, func in method_calls(plan, "to"):
        target = None if call in known else _target(call)
        if target is None or "device" not in ast.unparse(target) or not _is_unknown(context, target):
            continue
        if plan.value(func.value).sites(Role.MODEL) & plan.prepared and ast.unparse(func.value) != "self":
            devices.add(_place_of(context, target))
            moved.add(target)
        elif _prepare_moves(context, func.value):
            moved.add(target)  # named already
    for node in plan.module.walk() if devices else ():
        if not isinstance(node, ast.Call) or node in known or not context.may_change(node):
            continue
        moves = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        named = keyword(node, "device")
        target = _target(node) if moves else named.value if named is not None else None
        if target is not None and target not in moved and _place_of(context, target) in devices:
            context.review(
                node,
                f"the script's models were on `{ast.unparse(target)}`, and `prepare` has moved them to the process's "
                "own device, which may be another: take the accelerator's device in its place",
            )


def _place_of(context: Context, device: ast.expr) -> tuple[ast.AST, str]:
    """What holds a device: a variable of its own scope, or something of the file."""
    module = context.plan.module
    held = binding_scope(module, context.plan.store, device) if isinstance(device, ast.Name) else module.root(device)
    return held, ast.unparse(device)


def _is_move(context: Context, call: ast.Call, func: ast.Attribute) -> bool:
    around = context.parent(call)
    if isinstance(around, ast.Lambda) and moves_storage(around) and is_map_location(context.plan, around):
        return False
    owner = context.plan.value(func.value)
    if any(isinstance(a, Object) and a.site.role not in (Role.MODEL, Role.LOSS) for a in owner):
        return False
    if func.attr != "to":
        return True
    target = _target(call)
    if target is None:
        return False
    one = context.plan.value(target)
    return (is_device(one) and spelled_kinds(one) != {"cpu"}) or is_index(one) or context.plan.parallel.is_index(target)


def _target(call: ast.Call) -> ast.expr | None:
    named = keyword(call, "device")
    if named is not None:
        return named.value
    return call.args[0] if call.args else None


def _prepare_moves(context: Context, owner: ast.expr) -> bool:
    """Whether what is moved is certainly moved by ``prepare`` anyway."""
    atoms = list(context.plan.value(owner))
    return bool(atoms) and all(_is_moved_by_prepare(context, atom) for atom in atoms)


def _is_moved_by_prepare(context: Context, atom: Atom) -> bool:
    plan = context.plan
    if isinstance(atom, Object) and atom.site.role is Role.MODEL:
        if atom.site not in plan.prepared or atom.site in plan.copied:
            return False
        if _is_prepared_in_branch(context, atom):
            return False
        return not _runs_before_prepare(context, atom) and not _goes_to_cpu(context, atom)
    if isinstance(atom, Object) and atom.site.role is Role.LOSS:
        return not plan.store.details[atom.site].has_parameters  # nothing in it to move
    return (
        isinstance(atom, Tensor) and atom.origin is Origin.BATCH and bool(atom.loaders) and atom.loaders <= plan.sharded
    )


def _is_prepared_in_branch(context: Context, model: Object) -> bool:
    """Whether a model is prepared under a condition only that it is not made under: ``if training: …``."""
    group = context.plan.group_of(model.site)
    assert group is not None
    bindings = [s for home in group.homes if model.site in home.sites for s in home.bindings]
    branches = [a for a in context.plan.module.ancestors(group.anchor) if isinstance(a, ast.If)]
    return any(branch not in context.plan.module.ancestors(binding) for branch in branches for binding in bindings)


def _goes_to_cpu(context: Context, model: Object) -> bool:
    """Whether the script moves this model to the CPU at times: then it also moves it back."""
    for call, func in method_calls(context.plan, "cpu", "to"):
        back = func.attr == "cpu" or any(spelled_kinds(context.plan.value(a)) == {"cpu"} for a in call.args)
        if back and model.site in context.plan.value(func.value).sites() and context.may_change(call):
            return True
    return False


def _runs_before_prepare(context: Context, model: Object) -> bool:
    """Whether the model is called before its ``prepare``: it needs its device for that."""
    group = context.plan.group_of(model.site)
    assert group is not None
    made = min(binding.lineno for home in group.homes for binding in home.bindings)
    before = [s for s in getattr(group.scope, "body", []) if made <= s.lineno <= (group.anchor.end_lineno or 0)]
    before = [s for s in before if not isinstance(s, DEFINITIONS)]
    for node in context.plan.training.reached(before):
        if isinstance(node, ast.Call) and model.site in context.plan.training.forwards(node):
            own = context.plan.module.function(node) is group.scope
            if not own or node.lineno <= (group.anchor.end_lineno or 0):
                return True
    return False


# ---- statements that only moved


def _moves_only(statement: ast.stmt, dropped: dict[ast.Call, ast.expr]) -> bool:
    """Whether a statement does nothing once its moves are dropped: ``x = x``, ``x, y = x, y``, a bare ``x``."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and statement.value in dropped
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return False
    return _same(statement.targets[0], statement.value, dropped)


def _same(target: ast.expr, value: ast.expr, dropped: dict[ast.Call, ast.expr]) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        pairs = zip(target.elts, value.elts, strict=False)
        return len(target.elts) == len(value.elts) and all(_same(t, v, dropped) for t, v in pairs)
    if isinstance(value, ast.IfExp):
        return _same(target, value.body, dropped) and _same(target, value.orelse, dropped)
    if isinstance(value, (ast.ListComp, ast.DictComp)) and len(value.generators) == 1 and not value.generators[0].ifs:
        return _copies(target, value, dropped)
    while isinstance(value, ast.Call):
        if value in dropped and _without_device(value) is None:
            value = dropped[value]
        elif ast.unparse(value.func).rsplit(".", 1)[-1] == "DataParallel" and value.args:
            value = value.args[0]  # that wrapper goes as well
        else:
            break
    return ast.unparse(target) == ast.unparse(value)


def _copies(target: ast.expr, value: ast.ListComp | ast.DictComp, dropped: dict[ast.Call, ast.expr]) -> bool:
    """``batch = [t for t in batch]`` and ``batch = {k: v for k, v in batch.items()}``."""
    generator = value.generators[0]
    if isinstance(value, ast.ListComp):
        return ast.unparse(generator.iter) == ast.unparse(target) and _same(generator.target, value.elt, dropped)
    if ast.unparse(generator.iter) != f"{ast.unparse(target)}.items()" or not isinstance(generator.target, ast.Tuple):
        return False
    key, item = generator.target.elts
    return ast.unparse(key) == ast.unparse(value.key) and _same(item, value.value, dropped)


# ---- guards


def _guards(
    context: Context,
    moves: list[tuple[ast.Call, ast.Attribute]],
    vanishing: set[ast.stmt],
) -> None:
    """``if use_cuda:`` around nothing but moves goes: what is left in it holds on every device."""
    module = context.plan.module
    moving = {module.statement(call) for call, _ in moves}
    owners = {call: func.value for call, func in moves}
    for node in module.walk():
        if not isinstance(node, ast.If) or not is_device_flag(context.plan.training, node.test):
            continue
        if node.orelse:
            _same_branches(context, node, owners)
            continue
        if not context.may_change(node.test) or not all(s in moving and is_pure_move(s) for s in node.body):
            continue
        left = [s for s in node.body if s not in vanishing]
        if not all(context.device_here(call) is not None for call in owners if module.statement(call) in left):
            continue
        if left:
            context.edit(Unwrap(node))
            context.gone.add(node.test)
            context.migrated(node.test, f"`if {short(node.test)}` guarded moves only, which hold on every device now")
        else:
            context.migrated(node, f"`if {short(node.test)}` guarded moves only, which `prepare` makes now")
            context.delete(node)


def _same_branches(context: Context, node: ast.If, owners: dict[ast.Call, ast.expr]) -> None:
    """``if use_cuda: return x.cuda() else: return x``: one branch is the other with moves, which hold everywhere."""
    branch, other = node.body, node.orelse
    if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
        branch, other = other, branch
    inside = [n for s in branch for n in ast.walk(s) if isinstance(n, ast.Call) and n in owners]
    if not inside or not context.may_change(node) or not says_the_same(branch, other, owners):
        return
    if all(context.device_here(call) is not None for call in inside):
        context.edit(Unwrap(node, "body" if branch is node.body else "orelse"))
        context.gone.add(node.test)
        context.gone.update(other)
        context.migrated(node.test, f"`if {short(node.test)}` chose between devices only, which hold everywhere now")


# ---- single moves


def _rewrite(context: Context, call: ast.Call, func: ast.Attribute, dropped: dict[ast.Call, ast.expr]) -> None:
    owner = func.value
    target: ast.expr = call
    around = context.parent(call)
    if isinstance(around, ast.IfExp) and around.body is call and is_device_flag(context.plan.training, around.test):
        if ast.unparse(around.orelse) == ast.unparse(owner):
            target = around  # x.cuda() if use_cuda else x
    if call in dropped:
        rest = _without_device(call)
        loss = context.plan.value(owner).sites(Role.LOSS)
        reason = "it has nothing to move" if loss else "`prepare` puts it on its device"
        context.migrated(call, f"{short(call)}: {reason}")
        if rest is None:
            context.replace(target, "{0}", owner)
        else:
            context.replace(target, "{0}.to(" + rest[0] + ")", owner, *rest[1])
        return
    if _is_bare_statement(context, call) and _returns_a_copy(context, owner):
        context.note(call, f"{short(call)} moves a copy that nothing uses; left as it is")
        return
    if func.attr == "to" and target is call and not is_index(context.plan.value(_target(call) or call)):
        return  # its device is a variable, which another rule looks at
    device = context.device_here(call)
    if device is None:
        if func.attr == "cuda":
            context.manual(call, f"{short(call)} moves to CUDA where the accelerator cannot be passed; left as it is")
        return
    made = None if call.keywords else _made_of_constants(context, owner)
    if made is not None:
        context.edit(AddArgument(made, device, name="device"))
        context.replace(target, "{0}", owner)
        context.migrated(call, f"{short(target)} is made on {device}")
        return
    extra = "".join(f", {k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg in ("non_blocking", "dtype"))
    context.migrated(call, f"{short(target)} -> .to({device})")
    context.replace(target, "{0}.to(" + device + extra + ")", owner)


def _made_of_constants(context: Context, owner: ast.expr) -> ast.Call | None:
    """The call that makes a tensor of given values on the spot: they are the same on every device."""
    if not isinstance(owner, ast.Call) or keyword(owner, "device") is not None or keyword(owner, "out") is not None:
        return None
    names = library_names(context.plan, owner.func)
    return owner if names and names <= CONSTANT_TENSORS else None


def _without_device(call: ast.Call) -> tuple[str, list[ast.expr]] | None:
    """What is left of ``.to(device, dtype)``'s arguments: a template and its holes, or nothing."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "to"):
        return None
    positional = call.args[1:] if keyword(call, "device") is None else call.args
    holes: list[ast.expr] = [a for a in positional if not isinstance(a, ast.Constant)]  # True, False: non_blocking
    parts = [f"{{{i + 1}}}" for i in range(len(holes))]
    for named in call.keywords:
        if named.arg not in ("device", "non_blocking", "copy"):
            holes.append(named.value)
            parts.append(f"{named.arg}={{{len(holes)}}}")
    return (", ".join(parts), holes) if parts else None


def _is_bare_statement(context: Context, call: ast.Call) -> bool:
    return isinstance(context.parent(call), ast.Expr)


def _returns_a_copy(context: Context, owner: ast.expr) -> bool:
    """Whether moving this value as a statement of its own does nothing (tensors), unlike modules."""
    atoms = list(flatten(context.plan.value(owner)))
    return bool(atoms) and all(isinstance(a, Tensor) for a in atoms)


RULE = Rule(
    code="AM120",
    name="moves",
    summary="`.cuda()` and `.to(device)` of models and batches go; of anything else they name the accelerator's "
    "device.",
    why="`prepare` moves models and the batches of prepared loaders. Tensors made on the spot and everything else "
    "are still moved, to `accelerator.device`. An `if use_cuda:` around nothing but moves goes with them.",
    before="if args.cuda:\n    model.cuda()\nfor x, y in loader:\n    x, y = x.cuda(), y.cuda()\n"
    "    noise = torch.randn(8, 16).cuda()",
    after="for x, y in loader:\n    noise = torch.randn(8, 16).to(accelerator.device)",
    safety="Exact. Only values that are certainly a prepared model, or come straight from a prepared loader, lose "
    "their move. Other links of the same chain, and dtypes, stay.",
    apply=apply,
    order=20,
    essential=True,
)
