"""How single layers are split over the processes of a tensor-parallel group: styles of torch's `parallelize_module`.

A style says how parameters are split, what it takes (a plain tensor is whole on each process) and what it gives: a
plain tensor, or a DTensor, which knows how it is split.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement
from torch.nn import functional

SEQUENCE = 1
"""The dimension of activations (batch, sequence, features) that sequence parallelism splits."""


def _spread(x: torch.Tensor, mesh: DeviceMesh, held: Placement, wanted: Placement) -> DTensor:
    """`x` split as `wanted`; where it is plain it is what `held` says."""
    spread = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [held], run_check=False)
    return spread if spread.placements == (wanted,) else spread.redistribute(placements=[wanted])


def _split(module: nn.Module, mesh: DeviceMesh, **placements: Placement) -> None:
    """Replace the parameters named by their parts; every process has the same whole ones."""
    for name, placement in placements.items():
        whole = getattr(module, name, None)
        if isinstance(whole, nn.Parameter) and not isinstance(whole, DTensor):
            part = distribute_tensor(whole.detach(), mesh, [placement], src_data_rank=None)
            own = part.to_local().clone(memory_format=torch.contiguous_format)  # a view would keep the whole alive
            part = DTensor.from_local(own, mesh, [placement], run_check=False, shape=whole.shape, stride=whole.stride())
            module.register_parameter(name, nn.Parameter(part, whole.requires_grad))


def _expect(module: nn.Module, style: ParallelStyle, *kinds: type[nn.Module]) -> None:
    if not isinstance(module, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"tensor parallelism: {type(style).__name__.lower()} splits a {names}, not {module}")


class Column(ParallelStyle):
    """A Linear of which each process has some outputs.

    Args:
        gather: give the whole output; else this process's part, for a Row to go on with.
        local: give a plain tensor.
    """

    def __init__(self, gather: bool = False, local: bool = True) -> None:
        self.gather, self.local = gather, local

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _expect(module, self, nn.Linear)

        def partition(_: str, part: nn.Module, mesh: DeviceMesh) -> None:
            _split(part, mesh, weight=Shard(0), bias=Shard(0))

        def enter(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            return _spread(inputs[0], mesh, Replicate(), Replicate())

        def leave(_: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
            wanted = Replicate() if self.gather else Shard(output.ndim - 1)
            output = _spread(output, mesh, wanted, wanted)
            return output.to_local() if self.local else output

        return distribute_module(module, device_mesh, partition, enter, leave)


class Row(ParallelStyle):
    """A Linear of which each process has some inputs, or an Embedding of which it has some rows.

    Args:
        sequence: give the sum split along the sequence, as a DTensor; else whole.
        local: give a plain tensor.
        split: the input is this process's part, as a Column gives it; else whole.
    """

    def __init__(self, sequence: bool = False, local: bool = True, split: bool = True) -> None:
        self.sequence, self.local, self.split = sequence, local, split

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _expect(module, self, nn.Linear, nn.Embedding)
        linear = isinstance(module, nn.Linear)

        def partition(_: str, part: nn.Module, mesh: DeviceMesh) -> None:
            if linear:
                _split(part, mesh, weight=Shard(1), bias=Replicate())
            else:
                _split(part, mesh, weight=Shard(0))
                part.forward = types.MethodType(_look_up_in_part, part)

        def enter(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            if not linear:
                return inputs
            last = Shard(inputs[0].ndim - 1)
            return _spread(inputs[0], mesh, last if self.split else Replicate(), last)

        def leave(_: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
            by_sequence = self.sequence and output.ndim > SEQUENCE + 1
            output = output.redistribute(placements=[Shard(SEQUENCE) if by_sequence else Replicate()])
            return output.to_local() if self.local and not self.sequence else output

        return distribute_module(module, device_mesh, partition, enter, leave)


def _look_up_in_part(table: nn.Embedding, ids: torch.Tensor) -> DTensor:
    """The forward of an Embedding of which this process has some rows: zeros for the others, to be summed.

    torch's own rule for a split table keeps a mask beside the tensors, which a compiler cannot see.
    """
    weight: Any = table.weight
    if isinstance(ids, DTensor):
        ids = ids.full_tensor()
    mesh, rows = weight.device_mesh, weight.to_local()
    first = mesh.get_local_rank("tp") * rows.shape[0]
    mine = (ids >= first) & (ids < first + rows.shape[0])
    padding = table.padding_idx
    if padding is not None:
        padding = padding - first if first <= padding < first + rows.shape[0] else None
    found = functional.embedding(
        torch.where(mine, ids - first, 0), rows, padding, None, 2.0, table.scale_grad_by_freq, table.sparse
    )
    return DTensor.from_local(torch.where(mine.unsqueeze(-1), found, 0), mesh, [Partial()], run_check=False)


class Sequence(ParallelStyle):
    """A norm (or whatever treats each place of a sequence alone) of activations that are split along the sequence.

    Its parameters are whole on each process, and their gradients the sum over all.

    Args:
        heads: it stands between a Column and a Row: activations are this process's heads, and stay plain tensors.
        last: give the whole sequence, as a plain tensor.
    """

    def __init__(self, heads: bool = False, last: bool = False) -> None:
        self.heads, self.last = heads, last

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            x, *others = inputs
            if self.heads:
                return (_spread(x, mesh, Shard(SEQUENCE), Shard(SEQUENCE)), *others)
            wanted = Shard(SEQUENCE) if x.ndim > SEQUENCE + 1 else Replicate()
            return (_spread(x, mesh, Replicate(), wanted), *others)

        def leave(_: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
            if self.last:
                output = _spread(output, mesh, Replicate(), Replicate())
            return output.to_local() if self.heads or self.last else output

        return distribute_module(module, device_mesh, _whole, enter, leave)


class Whole(ParallelStyle):
    """A layer that each process has whole, and that takes and gives DTensors."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            x, *others = inputs
            return (x if isinstance(x, DTensor) else _spread(x, mesh, Replicate(), Replicate()), *others)

        return distribute_module(module, device_mesh, _whole, enter)


def _whole(_: str, part: nn.Module, mesh: DeviceMesh) -> None:
    names = [name for name, parameter in part.named_parameters(recurse=False) if parameter is not None]
    _split(part, mesh, **dict.fromkeys(names, Replicate()))


class Together(ParallelStyle):
    """A block that takes its inputs whole: what is split along the sequence is gathered once for all of its layers."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def gather(x: Any) -> Any:
            return x.redistribute(placements=[Replicate()]) if isinstance(x, DTensor) else x

        def enter(_: nn.Module, args: Any, kwargs: Any) -> Any:
            return tuple(map(gather, args)), {name: gather(value) for name, value in kwargs.items()}

        module.register_forward_pre_hook(enter, with_kwargs=True)
        return module


def named(name: str) -> ParallelStyle:
    """The style that a plan calls so, with the names that transformers' models use.

    Raises:
        ValueError: there is none.
    """
    styles: dict[str, Any] = {
        "colwise": Column,
        "rowwise": Row,
        "colwise_rep": lambda: Column(gather=True),
        "colwise_gather_output": lambda: Column(gather=True),
        "rowwise_rep": lambda: Row(split=False),
        "rowwise_split_input": lambda: Row(split=False),
        "embedding_rowwise": lambda: Row(split=False),
        "replicated_with_grad_allreduce": lambda: Sequence(heads=True),
    }
    if name not in styles:
        raise ValueError(
            f"tensor parallelism: the plan's style {name!r} is not known; allowed are {', '.join(sorted(styles))}, and "
            "styles of torch.distributed.tensor.parallel (ColwiseParallel(), …)"
        )
    style: ParallelStyle = styles[name]()
    return style
