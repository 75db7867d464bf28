"""What a tensor operation does to what is known of a tensor: its relation to the batch, its device, its models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from accelerate_migrate.analysis.atoms import UNKNOWN, Array, Number, Origin, Reduction, Site, Tensor
from accelerate_migrate.analysis.tensor_types import tensor_type
from accelerate_migrate.analysis.values import ANY, Value, flatten, sequence, value

REDUCING = frozenset(
    {"sum", "mean", "max", "min", "prod", "norm", "std", "var", "median", "all", "any", "argmax", "argmin", "logsumexp"}
)
PAIRS = frozenset({"max", "min", "topk", "sort", "median", "kthvalue", "mode"})  # with a dim: (values, indices)


def combined(values: Iterable[Value]) -> Tensor | None:
    """The tensor computed from these values by an operation that works row by row; ``None`` without a tensor."""
    tensors: list[Tensor] = []
    numbers: list[Number] = []
    known = True
    for one in values:
        for atom in flatten(one):
            if isinstance(atom, Tensor):
                tensors.append(atom)
            elif isinstance(atom, Number):
                numbers.append(atom)
            elif atom is UNKNOWN or isinstance(atom, Array):
                known = False
    if not tensors:
        return None
    origins = {t.origin for t in tensors}
    if origins & {Origin.OUTPUT, Origin.PARAMETER}:
        origin = Origin.OUTPUT
    elif origins == {Origin.BATCH} and known:
        origin = Origin.BATCH
    elif origins == {Origin.ARRAY}:
        origin = Origin.ARRAY
    elif origins <= {Origin.FRESH}:
        origin = Origin.FRESH
    else:
        origin = Origin.OTHER
    return Tensor(
        origin, _mixed(tensors, numbers), _union(t.loaders for t in tensors), _union(t.models for t in tensors)
    )


def _union(sets: Iterable[frozenset[Site]]) -> frozenset[Site]:
    return frozenset().union(*sets)


def _mixed(tensors: Sequence[Tensor], numbers: Sequence[Number]) -> Reduction:
    kinds = {t.reduction for t in tensors}
    if Reduction.ROWS in kinds:
        return Reduction.ROWS
    if len(kinds) == 1 and not any(n.reduction in (Reduction.COUNT, Reduction.SUM) for n in numbers):
        return next(iter(kinds))
    return _uncertain(kinds)


def arithmetic(left: Value, right: Value, operator: str) -> Value:
    """The value of ``left <operator> right``: sums stay sums when added and scaled, a sum over a count is a mean."""
    tensor = combined([left, right])
    lefts, rights = ({a.reduction for a in side if isinstance(a, (Tensor, Number))} for side in (left, right))
    if tensor is None:
        numbers = [a for side in (left, right) for a in side if isinstance(a, Number)]
        arrays = [a for side in (left, right) for a in side.of(Array)]
        if arrays and UNKNOWN not in (left | right).atoms:
            return value(arrays[0])
        if not numbers:
            return ANY if UNKNOWN in (left | right).atoms or not (left.atoms and right.atoms) else value(Number())
        return value(
            Number(
                _scaled(lefts, rights, operator),
                _union(n.loaders for n in numbers),
                _union(n.models for n in numbers),
            )
        )
    if tensor.reduction is not Reduction.ROWS:
        tensor = Tensor(tensor.origin, _scaled(lefts, rights, operator), tensor.loaders, tensor.models)
    return value(tensor)


def _scaled(lefts: set[Reduction], rights: set[Reduction], operator: str) -> Reduction:
    if not lefts or not rights:  # the other side is a plain number
        kinds = lefts or rights
        if operator in ("*", "/", "+", "-") and len(kinds) == 1 and (lefts or operator in ("*", "+", "-")):
            return next(iter(kinds))
        return _uncertain(kinds)
    if len(lefts) == len(rights) == 1:
        (left,), (right,) = lefts, rights
        if operator in ("+", "-") and left is right:
            return left
        if operator == "/" and left is Reduction.SUM and right is Reduction.COUNT:
            return Reduction.MEAN
        if operator == "*" and {left, right} == {Reduction.MEAN, Reduction.COUNT}:
            return Reduction.SUM
        if operator in ("*", "/") and left is Reduction.MEAN and right is Reduction.OTHER:
            return left
        if operator == "*" and right is Reduction.MEAN and left is Reduction.OTHER:
            return right
    return _uncertain(lefts | rights)


def _uncertain(kinds: set[Reduction]) -> Reduction:
    return Reduction.MIXED if kinds & {Reduction.SUM, Reduction.MIXED} else Reduction.OTHER


def method(tensor: Tensor, name: str, arguments: Sequence[Value], keywords: dict[str, Value]) -> Value:
    """The value of ``tensor.name(*arguments, **keywords)``."""
    others = combined([value(tensor), *arguments, *keywords.values()]) or tensor
    if tensor.origin is Origin.PARAMETER:  # what is computed from it is no parameter
        tensor = replace(tensor, origin=Origin.OUTPUT)
    if name == "item":  # one row a sample has no single number: what was taken for rows is not
        kind = Reduction.OTHER if tensor.reduction is Reduction.ROWS else tensor.reduction
        return value(Number(kind, tensor.loaders, tensor.models))
    if name in ("numpy", "tolist"):
        return value(Tensor(Origin.ARRAY, tensor.reduction, tensor.loaders, tensor.models))
    if name in ("size", "__len__"):
        index = arguments[0].const() if arguments else UNKNOWN
        count = Reduction.COUNT if index == 0 and tensor.reduction is Reduction.ROWS else Reduction.OTHER
        return value(Number(count, tensor.loaders))
    if name in ("dim", "numel", "nelement", "data_ptr", "get_device"):
        return value(Number())
    if name in ("backward", "stride", "is_contiguous"):
        return ANY
    to_host = [tensor_type(one) for one in arguments] if name == "type" else []
    if name == "cpu" or (tensor.origin is not Origin.BATCH and any(t is not None and not t.cuda for t in to_host)):
        return value(Tensor(Origin.FRESH, tensor.reduction, tensor.loaders, tensor.models))
    if name in ("to", "cuda") or any(t is not None and t.cuda for t in to_host):
        return value(
            tensor
            if tensor.origin is not Origin.FRESH
            else Tensor(Origin.OTHER, tensor.reduction, tensor.loaders, tensor.models)
        )
    if name in REDUCING or name in PAIRS:
        return reduced(tensor, name, arguments, keywords)
    if name in ("chunk", "split", "unbind", "tensor_split", "t", "transpose", "permute") or name.startswith("new_"):
        return value(Tensor(tensor.origin, Reduction.OTHER, tensor.loaders, tensor.models))
    return value(others)


def reduced(tensor: Tensor, name: str, arguments: Sequence[Value], keywords: dict[str, Value]) -> Value:
    """The value of a reduction: over everything, over the rows, or within each row."""
    dim = keywords.get("dim", keywords.get("axis"))
    position = 1 if name == "topk" else 0
    if dim is None and len(arguments) > position and name != "norm":
        dim = arguments[position]
    if dim is not None and any(isinstance(a, Tensor) for a in dim):  # torch.max(a, b)
        return value(combined([value(tensor), *arguments]) or tensor)
    if dim is None and name not in ("topk", "sort"):
        whole = {"sum": Reduction.SUM, "mean": Reduction.MEAN}.get(name, Reduction.OTHER)
        if tensor.reduction in (Reduction.SUM, Reduction.MEAN):  # already 0-d
            whole = tensor.reduction
        elif tensor.reduction is not Reduction.ROWS:
            whole = Reduction.OTHER
        return value(Tensor(tensor.origin, whole, tensor.loaders, tensor.models))
    index = dim.const() if dim is not None else -1
    kept = tensor.reduction
    if index == 0 and kept is Reduction.ROWS:
        kept = {"sum": Reduction.SUM, "mean": Reduction.MEAN}.get(name, Reduction.OTHER)
    result = value(Tensor(tensor.origin, kept, tensor.loaders, tensor.models))
    return sequence([result, result]) if name in PAIRS else result


def loss(kind: Reduction | None, arguments: Iterable[Value]) -> Value:
    """The value of a loss function of this reduction (``None``: unknown) over these arguments."""
    tensor = combined(arguments)
    if tensor is None:
        return value(Tensor(Origin.OTHER, kind or Reduction.OTHER))
    return value(Tensor(tensor.origin, kind or Reduction.OTHER, tensor.loaders, tensor.models))


def loss_reduction(keywords: dict[str, Value]) -> Reduction | None:
    """What ``reduction=`` (once ``size_average=``, ``reduce=``) makes of a torch loss; ``None`` if not constant."""
    if "reduction" in keywords:
        named = {"sum": Reduction.SUM, "mean": Reduction.MEAN, "none": Reduction.ROWS, "batchmean": Reduction.MEAN}
        chosen = keywords["reduction"].const()
        return named.get(chosen) if isinstance(chosen, str) else None
    if "reduce" in keywords and keywords["reduce"].const() is False:
        return Reduction.ROWS
    if "size_average" in keywords:
        averaged = keywords["size_average"].const()
        return Reduction.SUM if averaged is False else Reduction.MEAN if averaged in (True, None) else None
    return Reduction.MEAN
