"""AM115: tensor types that choose a device, like `torch.cuda.FloatTensor`, become a dtype and the device."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import (
    Array,
    Bound,
    Const,
    Library,
    Number,
    Object,
    Origin,
    Role,
    Sequence_,
    Tensor,
)
from accelerate_migrate.analysis.devices import is_device_flag
from accelerate_migrate.analysis.scopes import binding_scope
from accelerate_migrate.analysis.tensor_types import DEFAULT_DTYPE, TensorType, tensor_type, torch_name
from accelerate_migrate.analysis.values import Value, flatten
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_names

_SETS_DEFAULT = frozenset({"torch.set_default_tensor_type", "torch.set_default_dtype"})


def apply(context: Context) -> None:
    """Rewrite what is made of and converted to such types; drop their aliases; name what is left."""
    module = context.plan.module
    torch_of: dict[ast.AST, str | None] = {}
    for node in module.walk():
        if not isinstance(node, (ast.Call, ast.Compare)) or not context.may_change(node):
            continue
        root = module.root(node)
        torch = torch_of[root] if root in torch_of else torch_of.setdefault(root, torch_name(module, node))
        if torch is None:
            continue
        if isinstance(node, ast.Call):
            _conversion(context, torch, node)
            _creation(context, torch, node)
        else:
            _comparison(context, torch, node)
    for node in module.walk():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and context.may_change(node):
            _alias(context, node)
    for node in module.walk():
        if isinstance(node, (ast.If, ast.IfExp)):
            _choice(context, node)
        elif isinstance(node, ast.Attribute) and context.may_change(node):
            _left(context, node)


def _is_of_cuda(one: Value) -> TensorType | None:
    known = tensor_type(one)
    return known if known is not None and known.cuda else None


# ---- x.type(Tensor)


def _conversion(context: Context, torch: str, call: ast.Call) -> None:
    """``x.type(torch.cuda.FloatTensor)`` converts, and moves what is not on the device yet."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr == "type" and len(call.args) == 1 and not call.keywords):
        return
    known = tensor_type(context.plan.value(call.args[0]))
    if known is None:
        return
    owner = context.plan.value(func.value)
    if _is_on_device(context, owner) and (known.cuda or not _is_output(owner)):
        _convert(context, call, func.value, f"{{0}}.{known.method}()")
        return
    if not known.cuda:
        return
    if owner.sites(Role.MODEL) and owner.only(Object):
        if owner.sites() <= context.plan.prepared:
            _convert(context, call, func.value, f"{{0}}.{known.method}()")
        return
    device = _device(context, call, call.args[0])
    if device is not None:
        same = _makes(context, func.value) == known.dtype
        _convert(
            context, call, func.value, f"{{0}}.to({device})" if same else f"{{0}}.to({device}, {torch}.{known.dtype})"
        )


def _device(context: Context, call: ast.Call, of_type: ast.expr) -> str | None:
    """The device that a type stands for here: of ``x`` for ``torch.cuda.FloatTensor if x.is_cuda else ...``."""
    chosen: ast.expr | None = of_type
    if isinstance(of_type, ast.Name):
        module, store = context.plan.module, context.plan.store
        scope = binding_scope(module, store, of_type)
        assigned = [n for n in module.walk(scope) if isinstance(n, ast.Assign)]
        made = [n.value for n in assigned if any(ast.unparse(t) == of_type.id for t in n.targets)]
        chosen = made[0] if len(made) == 1 and module.function(call) is scope else None
    if isinstance(chosen, ast.IfExp) and isinstance(chosen.test, ast.Attribute) and chosen.test.attr == "is_cuda":
        return f"{ast.unparse(chosen.test.value)}.device"
    return context.device_here(call)


def _convert(context: Context, call: ast.Call, owner: ast.expr, template: str) -> None:
    context.migrated(call, f"{short(call)} -> {template.format(short(owner))}")
    context.replace(call, template, owner)


def _is_on_device(context: Context, one: Value) -> bool:
    """Whether every alternative is a batch of a prepared loader, or what a model made."""
    atoms = list(one)
    return bool(atoms) and all(
        isinstance(a, Tensor)
        and (
            a.origin is Origin.OUTPUT
            or (a.origin is Origin.BATCH and bool(a.loaders) and a.loaders <= context.plan.sharded)
        )
        for a in atoms
    )


def _is_output(one: Value) -> bool:
    return any(a.origin is Origin.OUTPUT for a in one.of(Tensor))


def _makes(context: Context, node: ast.expr) -> str | None:
    """The dtype of a tensor that is made on the spot, where that is the default one."""
    if isinstance(node, ast.Call) and not any(k.arg == "dtype" for k in node.keywords):
        floats = {"torch.zeros", "torch.ones", "torch.empty", "torch.rand", "torch.randn"}
        if library_names(context.plan, node.func) <= floats and not _changes_default(context):
            return "float32"
    return None


# ---- Tensor(...)


def _creation(context: Context, torch: str, call: ast.Call) -> None:
    """``torch.cuda.FloatTensor(…)`` of sizes, an array, a list or anything."""
    known = _is_of_cuda(context.plan.value(call.func))
    if known is None and library_names(context.plan, call.func) == {"torch.Tensor"} and _cuda_by_default(context):
        known = tensor_type(context.plan.value(call.func))
    if known is None or call.keywords or isinstance(call.func, ast.Constant):
        return
    device = _device(context, call, call.func)
    if device is None:
        return
    told = f"device={device}"
    dtype = f"dtype={torch}.{known.dtype}, "
    given = call.args
    holes = tuple(a.value if isinstance(a, ast.Starred) else a for a in given)
    listed = ", ".join(f"*{{{i}}}" if isinstance(a, ast.Starred) else f"{{{i}}}" for i, a in enumerate(given))
    if not given:
        listed = "0"
    holder = context.parent(call)
    to_be_filled = isinstance(holder, ast.keyword) and holder.arg == "out"
    if len(given) != 1 or isinstance(given[0], ast.Starred) or to_be_filled or _is_size(context.plan.value(given[0])):
        _sized(context, torch, call, known, listed, holes, told)
        return
    data = context.plan.value(given[0])
    if data.only(Array):
        maker = "tensor" if _is_kept(given[0]) else "as_tensor"
        template = f"{torch}.{maker}({{0}}, {dtype}{told})"
    elif _is_numbers(data):
        template = f"{torch}.tensor({{0}}, {dtype}{told})"
    elif any(isinstance(a, Tensor) and a.origin is not Origin.ARRAY for a in data):
        return  # an alias of that tensor, which must have the right type already
    else:
        host = {"float32": "Float", "long": "Long", "uint8": "Byte"}.get(known.dtype, known.method.capitalize())
        template = f"{torch}.{host}Tensor({{0}}).to({device})"
    _create(context, call, template, holes)


def _create(context: Context, call: ast.Call, template: str, holes: tuple[ast.expr, ...]) -> None:
    context.migrated(call, f"{short(call)} -> {template.format(*map(short, holes))}")
    context.replace(call, template, *holes)


def _sized(
    context: Context, torch: str, call: ast.Call, known: TensorType, listed: str, holes: tuple[ast.expr, ...], told: str
) -> None:
    """A tensor of a given size, and the constant that it is filled with at once."""
    default = known.dtype == "float32" and not _changes_default(context)
    dtype = "" if default else f"dtype={torch}.{known.dtype}, "
    method = context.parent(call)
    filled = context.parent(method) if isinstance(method, ast.Attribute) else None
    if isinstance(method, ast.Attribute) and isinstance(filled, ast.Call) and filled.func is method:
        if method.attr == "zero_" and not filled.args:
            _create(context, filled, f"{torch}.zeros({listed}, {dtype}{told})", holes)
            return
        if method.attr == "fill_" and len(filled.args) == 1 and not filled.keywords:
            fill = filled.args[0]
            number = context.plan.value(fill).const()
            plain = isinstance(number, (int, float)) and isinstance(fill, ast.Constant)
            if plain and number in (0, 1):
                maker = "ones" if number else "zeros"
                _create(context, filled, f"{torch}.{maker}({listed}, {dtype}{told})", holes)
            else:
                dtype = "" if default and type(number) is float and plain else f"dtype={torch}.{known.dtype}, "
                one = len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
                size = listed if one and not _is_number(context, call) else f"({listed}{',' if one else ''})"
                _create(context, filled, f"{torch}.full({size}, {{{len(holes)}}}, {dtype}{told})", (*holes, fill))
            return
    _create(context, call, f"{torch}.empty({listed}, {dtype}{told})", holes)


def _is_number(context: Context, call: ast.Call) -> bool:
    """Whether the one argument of a call is a number, not a size of several."""
    argument = call.args[0]
    of_all = isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and not argument.args
    return not of_all and not any(isinstance(a, Bound) for a in context.plan.value(argument))


def _is_size(one: Value) -> bool:
    """Whether a value is a number, or a tensor's ``shape``."""
    atoms = list(one)
    return bool(atoms) and all(
        isinstance(a, Number)
        or (isinstance(a, Const) and type(a.value) is int)
        or (isinstance(a, Bound) and a.name == "shape" and a.owner.only(Tensor))
        for a in atoms
    )


def _is_numbers(one: Value) -> bool:
    """Whether a value is a list or tuple of nothing but numbers."""
    return one.only(Sequence_) and all(isinstance(a, (Const, Number, Sequence_)) for a in flatten(one))


def _is_kept(node: ast.expr) -> bool:
    """Whether an array goes by a name, under which it may be changed later: then it must be copied."""
    return not isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp))


def _cuda_by_default(context: Context) -> bool:
    """Whether a default tensor type of CUDA is set: ``torch.Tensor`` is such a type then."""
    return any(
        isinstance(node, ast.Call)
        and library_names(context.plan, node.func) == {"torch.set_default_tensor_type"}
        and any(_is_of_cuda(context.plan.value(argument)) for argument in node.args)
        for node in context.plan.module.walk()
    )


def _changes_default(context: Context) -> bool:
    return any(
        isinstance(node, ast.Call)
        and library_names(context.plan, node.func) & _SETS_DEFAULT
        and getattr(tensor_type(context.plan.value(node.args[0])) if node.args else None, "dtype", "") != DEFAULT_DTYPE
        for node in context.plan.module.walk()
    )


# ---- x.type() == "torch.cuda.HalfTensor"


def _comparison(context: Context, torch: str, node: ast.Compare) -> None:
    """A comparison with the name of a type asks for the dtype, where it is not that of every tensor."""
    asked, known = node.left, tensor_type(context.plan.value(node.comparators[0]))
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)) or known is None or not known.cuda:
        return
    if known.dtype == DEFAULT_DTYPE or not (isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute)):
        return
    if asked.func.attr == "type" and not asked.args and isinstance(node.comparators[0], ast.Constant):
        operator = "==" if isinstance(node.ops[0], ast.Eq) else "!="
        context.replace(node, f"{{0}}.dtype {operator} {torch}.{known.dtype}", asked.func.value)
        context.migrated(node, f"{short(node)} asks for the dtype")


# ---- aliases, and what is left


def _alias(context: Context, node: ast.Assign | ast.AnnAssign) -> None:
    """``Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`` goes where nothing reads it any more."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name) or node.value is None or tensor_type(context.plan.value(node.value)) is None:
        return
    if isinstance(node.value, (ast.Constant, ast.Name)):
        return
    module, store = context.plan.module, context.plan.store
    scope = binding_scope(module, store, target)
    loads = [
        n
        for n in module.walk()
        if isinstance(n, ast.Name)
        and n.id == target.id
        and isinstance(n.ctx, ast.Load)
        and binding_scope(module, store, n) is scope
    ]
    of_cuda = any(_is_of_cuda(context.plan.value(n)) for n in loads) or _is_of_cuda(context.plan.value(node.value))
    if of_cuda and all(context.is_gone(n) for n in loads):
        context.migrated(node, f"`{target.id}`: each tensor is given its dtype and device where it is made")
        context.delete_emptying(node)


def _choice(context: Context, node: ast.If | ast.IfExp) -> None:
    """Name a choice between a type of CUDA and one of the CPU that is more than whether CUDA is there."""
    by_tensor = any(isinstance(n, ast.Attribute) and n.attr in ("is_cuda", "device") for n in ast.walk(node.test))
    if by_tensor or is_device_flag(context.plan.training, node.test) or not context.plan.module.is_active(node):
        return
    if isinstance(node, ast.IfExp):
        ways = {"": (node.body, node.orelse)}
    else:
        bodies = [_assigned(node.body), _assigned(node.orelse)]
        ways = {name: (bodies[0][name], bodies[1][name]) for name in bodies[0].keys() & bodies[1].keys()}
    for one, other in ways.values():
        types = [tensor_type(context.plan.value(way)) for way in (one, other)]
        if None not in types and {known.cuda for known in types if known is not None} == {True, False}:
            context.review(
                node.test,
                f"`{short(node.test)}` chose between CUDA and the CPU, which is the accelerator's choice now: start "
                "with `--cpu`, or set ACCELERATE_USE_CPU, where the CPU is meant",
            )
            return


def _assigned(block: list[ast.stmt]) -> dict[str, ast.expr]:
    """What a block assigns to variables, by name."""
    found: dict[str, ast.expr] = {}
    for statement in block:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts, strict=False))
            else:
                pairs = [(target, statement.value)]
            found |= {name.id: made for name, made in pairs if isinstance(name, ast.Name)}
    return found


def _left(context: Context, node: ast.Attribute) -> None:
    """Name a type that is still handed around."""
    parent = context.parent(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    if not called and any(_is_cuda_name(name) for name in library_names(context.plan, node)):
        context.review(
            node, f"{short(node)} as a type ties this script to CUDA: on other accelerators it makes CPU tensors"
        )


def _is_cuda_name(name: str) -> bool:
    return _is_of_cuda(Value(frozenset([Library(name)]))) is not None


RULE = Rule(
    code="AM115",
    name="tensor-types",
    summary="Tensor types that choose a device, like `torch.cuda.FloatTensor`, become a dtype and the device.",
    why="An alias `Tensor` is how older scripts chose their device; it knows CUDA and the CPU only. Each tensor made "
    "of it is made on its device by the function that says what it is filled with, a batch is only converted, and the "
    "alias goes.",
    before="Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n"
    "for x, y in loader:\n"
    "    ones = Tensor(x.size(0), 1).fill_(1.0)\n"
    "    loss = F.mse_loss(model(x.type(Tensor)), ones)",
    after="for x, y in loader:\n"
    "    ones = torch.ones(x.size(0), 1, device=accelerator.device)\n"
    "    loss = F.mse_loss(model(x.float()), ones)",
    safety="Exact. A type that is handed on to code of which nothing is known stays, for review.",
    apply=apply,
    order=13,
    essential=True,
)
