"""Tensors that another stage holds: here they have a shape and a type, and no numbers.

A model's own forward runs on every stage. What it computes from tensors of other stages is again without numbers, and
comes out right in shape; nothing that has numbers can depend on it. So what a stage does compute is what the whole
model would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


class Elsewhere(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Makes such tensors, and computes with them.

    Attributes:
        used: the names of the other stages' tensors that were computed with since it was last cleared.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.used: dict[str, None] = {}
        self._names: dict[int, str] = {}
        self._made: list[torch.Tensor] = []

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor like `tensor`, a parameter if that is one, without its numbers."""
        made = self.from_tensor(tensor, static_shapes=True)
        self._names[id(made)] = name
        self._made.append(made)  # its id stays its own
        return made

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, one of whose arguments is elsewhere.

        Raises:
            RuntimeError: it would write what is elsewhere into a tensor that is here.
        """
        kwargs = kwargs or {}
        for value in (*args, *kwargs.values()):
            name = self._names.get(id(value))
            if name is not None:
                self.used[name] = None
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                target = args[index] if index < len(args) else kwargs.get(argument.name)
                if isinstance(target, torch.Tensor) and not isinstance(target, FakeTensor):
                    raise RuntimeError(
                        f"pipeline: forward writes ({func}) a value that another stage computes into a tensor of shape "
                        f"{tuple(target.shape)} that does not depend on the model's parameters. Build that tensor of "
                        "parts instead (torch.cat, torch.where)."
                    )
        return super().dispatch(func, types, args, kwargs)


def is_elsewhere(value: Any) -> bool:
    """Whether it is a tensor of another stage."""
    return isinstance(value, FakeTensor)


def take_away(module: nn.Module, shelf: str, name: str, stand_in: torch.Tensor) -> None:
    """Have `module.name` be `stand_in`, which is no parameter or buffer of the module's.

    Args:
        shelf: "_parameters" or "_buffers".
    """
    del getattr(module, shelf)[name]
    module.__dict__[name] = stand_in
    if isinstance(module, nn.RNNBase):
        module._flat_weights = [getattr(module, one) for one in module._flat_weights_names]


@contextmanager
def covered(shown: list[tuple[nn.Module, str, torch.Tensor]]) -> Iterator[None]:
    """A context in which each `module.name` is a stand-in, though the module has a tensor of that name."""
    for module, name, stand_in in shown:
        module.__dict__[name] = stand_in
    try:
        yield
    finally:
        for module, name, _ in shown:
            module.__dict__.pop(name, None)
