"""Tensors that are spread over a device mesh (DTensor): norms over several meshes, whole tensors to parts and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .. import pieces, waiting
from ..precision.scaling import parameters_of


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor: a DTensor's parts are gathered, which all processes of its mesh must call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """`tensor`, which every process has whole, spread as `example` is. Nothing is exchanged.

    A tensor without dimensions (an optimizer's count of steps) stays as it is.
    """
    if not isinstance(example, DTensor) or isinstance(tensor, DTensor) or tensor.shape != example.shape:
        return tensor
    moved = tensor.to(example.device)
    spread = distribute_tensor(moved, example.device_mesh, example.placements, src_data_rank=None)
    return spread.clone()  # not a view, which would keep all of `tensor` alive


def total_norm(parameters: Iterable[nn.Parameter], norm_type: float) -> torch.Tensor:
    """The norm of all gradients, whatever mesh each is spread over: a plain tensor without dimensions."""
    norms = [
        whole(nn.utils.get_total_norm([p.grad for p in group if p.grad is not None], norm_type))
        for group in _by_mesh(parameters)
    ]
    if not norms:
        return torch.tensor(0.0)
    if len(norms) == 1:
        return norms[0]
    stacked = torch.stack([norm.to(norms[0].device) for norm in norms])
    return stacked.max() if math.isinf(norm_type) else torch.linalg.vector_norm(stacked, norm_type)


def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
    """Clip gradients to a norm over all of them; returns the norm before, as `total_norm`."""
    parameters = list(parameters)
    norm = total_norm(parameters, norm_type)
    for group in _by_mesh(parameters):
        nn.utils.clip_grads_with_norm_(group, max_norm, norm)
    return norm


def _by_mesh(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters that have gradients, grouped by the mesh that these are spread over: torch takes one at a time."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            mesh = parameter.grad.device_mesh if isinstance(parameter.grad, DTensor) else None
            groups.setdefault(mesh, []).append(parameter)
    yield from groups.values()


def gathered_state(model: nn.Module, keep: bool) -> dict[str, Any]:
    """A model's state dict with whole tensors on the CPU; one tensor at a time is gathered. All processes call it.

    Args:
        keep: give it back; else only take part, and return an empty one.
    """
    first: dict[int, str] = {}
    tied = {
        name: first.setdefault(id(parameter), name)
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    state: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        same = tied.get(name, name)
        if isinstance(value, DTensor) and same != name and same in state:
            value = state[same]
        elif isinstance(value, DTensor):
            value = value.full_tensor()
            value = value.cpu() if keep else None
        state[name] = value
    return state if keep else {}


def speaks_whole_state(optimizer: torch.optim.Optimizer, keep: bool) -> None:
    """Have `optimizer.state_dict()`, which all processes must call, give whole tensors on the CPU, and
    `optimizer.load_state_dict` take them (every process has them). torch.distributed.checkpoint gets shards.

    Args:
        keep: give the parameters' entries; else only take part, and give the groups alone.
    """

    def gather(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        if pieces.wanted_in_shards():
            return state
        return waiting.for_whole("optimizer.state_dict()", whole_of, state)

    def whole_of(state: dict[str, Any]) -> dict[str, Any]:
        entries: dict[Any, Any] = {}
        for number, entry in state["state"].items():
            gathered = {name: value for name, value in entry.items() if not isinstance(value, DTensor)}
            for name, value in entry.items():
                if isinstance(value, DTensor):
                    all_of_it = value.full_tensor()
                    gathered[name] = all_of_it.cpu() if keep else None
            if keep:
                entries[number] = {name: gathered[name] for name in entry}
        return {**state, "state": entries}

    def spread(one: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        owners = dict(zip(numbers, parameters_of(one), strict=False))

        def part(number: Any, value: Any) -> Any:
            return like(value, owners[number]) if isinstance(value, torch.Tensor) and number in owners else value

        entries = {
            number: {name: part(number, value) for name, value in entry.items()}
            for number, entry in state["state"].items()
        }
        return {**state, "state": entries}

    optimizer.register_state_dict_post_hook(gather)
    optimizer.register_load_state_dict_pre_hook(spread)


def read_whole_numbers() -> None:
    """Have `.item()`, and all that reads a number (`float()`, `if norm > 1`), read the whole of a spread tensor.

    torch reads this process's part: a norm of gradients, say, would be another number on each process, and wrong on
    all. All processes must read it, as they must gather.
    """
    handlers: dict[Any, Any] = DTensor._op_dispatcher._custom_op_handlers
    handlers[torch.ops.aten._local_scalar_dense.default] = _read_number


def _read_number(_: Any, args: tuple[DTensor, ...], __: dict[str, Any]) -> Any:
    return waiting.together("reading a number of a tensor that is spread", args[0].full_tensor).item()


def draw_as_one_process() -> None:
    """Have spread tensors on the CPU be filled at random with the parts of what one process would draw.

    There torch lets each process fill its part alone: with one seed all get the same rows. (On GPUs it keeps count.)
    """
    handlers: dict[Any, Any] = DTensor._op_dispatcher._custom_op_handlers
    aten = torch.ops.aten
    for operator in (aten.normal_.default, aten.uniform_.default, aten.bernoulli_.float, aten.exponential_.default):
        handlers[operator] = _draw_whole


def _draw_whole(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    operator(whole, *args[1:], **kwargs)
    tensor.to_local().copy_(
        distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None).to_local()
    )
    return tensor


def takes_whole_weights(model: nn.Module) -> None:
    """Have `model.load_state_dict` take a state dict of whole tensors, which every process has."""

    def spread(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
        for name, tensor in own.items():
            key = prefix + name
            if isinstance(tensor, DTensor) and isinstance(state.get(key), torch.Tensor):
                state[key] = like(state[key], tensor)

    for part in model.modules():
        part.register_load_state_dict_pre_hook(spread)  # type: ignore[no-untyped-call]


def adapt_loops(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer of tensors that are spread differently step one by one: torch's joint kernels take one kind."""
    for group in optimizer.param_groups:
        kinds = {getattr(parameter, "device_mesh", None) for parameter in group["params"]}
        if len(kinds) > 1 and not group.get("fused"):
            group["foreach"] = False
