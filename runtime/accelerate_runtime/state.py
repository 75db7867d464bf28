"""What a script may ask about the processes, with or without an Accelerator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch

from . import collectives, topology
from .plugins import InitProcessGroupKwargs

P = ParamSpec("P")
R = TypeVar("R")


class ProcessControl:
    """The processes, and what only some of them do. Base of PartialState and of Accelerator."""

    _place: topology.Topology

    @property
    def device(self) -> torch.device:
        """Where this process's models and batches live."""
        return self._place.device

    @property
    def distributed_type(self) -> topology.DistributedType:
        return self._place.distributed_type

    @property
    def num_processes(self) -> int:
        return self._place.num_processes

    @property
    def process_index(self) -> int:
        """From 0 to `num_processes - 1`."""
        return self._place.process_index

    @property
    def local_process_index(self) -> int:
        """This process's index on its machine."""
        return self._place.local_process_index

    @property
    def is_main_process(self) -> bool:
        return self._place.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first process of its machine."""
        return self._place.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        return self._place.is_last_process

    @property
    def use_distributed(self) -> bool:
        """Whether there are several processes."""
        return self._place.num_processes > 1

    def wait_for_everyone(self) -> None:
        """Return once every process has called this."""
        collectives.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on the main process only."""
        if self.is_main_process:
            print(*args, **kwargs)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The main process runs the block first, then the others (downloads, caches)."""
        yield from self._first(self.is_main_process)

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """The first process of each machine runs the block first, then the others."""
        yield from self._first(self.is_local_main_process)

    def _first(self, mine: bool) -> Iterator[None]:
        if not mine:
            self.wait_for_everyone()
        try:
            yield
        finally:
            if mine:
                self.wait_for_everyone()

    def on_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: the function runs on the main process only, and gives None elsewhere."""
        return self._only_if(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: the function runs on the first process of each machine only."""
        return self._only_if(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorator: the function runs on the last process only."""
        return self._only_if(lambda: self.is_last_process, function)

    def on_process(self, function: Callable[..., Any] | None = None, process_index: int | None = None) -> Any:
        """Decorator, `@accelerator.on_process(process_index=1)`: the function runs on that process only."""
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return self._only_if(lambda: self.process_index == (process_index or 0), function)

    def on_local_process(
        self, function: Callable[..., Any] | None = None, local_process_index: int | None = None
    ) -> Any:
        """Decorator: the function runs on that process of each machine only."""
        if function is None:
            return functools.partial(self.on_local_process, local_process_index=local_process_index)
        return self._only_if(lambda: self.local_process_index == (local_process_index or 0), function)

    @staticmethod
    def _only_if(condition: Callable[[], bool], function: Callable[P, R]) -> Callable[P, R | None]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
            return function(*args, **kwargs) if condition() else None

        return run

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Give the block this process's consecutive part of `inputs`: a list, tuple, tensor, or a dict of such.

        Args:
            apply_padding: repeat the last item where a process would get one less.
        """
        yield split(inputs, self.num_processes, self.process_index, apply_padding)


def split(inputs: Any, count: int, index: int, pad: bool = False) -> Any:
    """Part `index` of `count` consecutive parts of `inputs`, the first ones longer by one where it does not go round.

    Raises:
        ValueError: the values of a dict have different lengths.
    """
    if count == 1:
        return inputs
    if isinstance(inputs, dict):
        lengths = {len(value) for value in inputs.values()}
        if len(lengths) > 1:
            raise ValueError(f"split_between_processes: the values have different lengths: {sorted(lengths)}")
        return {key: split(value, count, index, pad) for key, value in inputs.items()}
    size, longer = divmod(len(inputs), count)
    begin = index * size + min(index, longer)
    part = inputs[begin : begin + size + (index < longer)]
    if pad and longer and index >= longer:
        last = inputs[-1:]
        part = torch.cat([part, last]) if isinstance(part, torch.Tensor) else part + last
    return part


class PartialState(ProcessControl):
    """The processes, usable without an Accelerator; every instance shows the same.

    Args:
        cpu: stay on the CPU.
        kwargs: fields of InitProcessGroupKwargs, used where the process group is made.
    """

    def __init__(self, cpu: bool = False, **kwargs: Any) -> None:
        self._place = topology.connect(cpu, InitProcessGroupKwargs(**kwargs) if kwargs else None)

    @property
    def backend(self) -> str | None:
        """The process group's backend; None on one process."""
        return self._place.backend

    @property
    def default_device(self) -> torch.device:
        return self._place.device

    @property
    def debug(self) -> bool:
        return False

    @property
    def initialized(self) -> bool:
        return topology.is_connected()

    def set_device(self) -> None:
        """Nothing to do: the device was set when the state was made."""

    def destroy_process_group(self) -> None:
        """Leave the process group."""
        topology.shutdown()

    @staticmethod
    def _reset_state() -> None:
        topology.reset()

    def __repr__(self) -> str:
        return (
            f"Distributed environment: {self.distributed_type}  Backend: {self.backend}\n"
            f"Num processes: {self.num_processes}\nProcess index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\nDevice: {self.device}\n"
        )


class AcceleratorState(PartialState):
    """`PartialState`, and the precision that an Accelerator trains in."""

    def __init__(self, mixed_precision: str = "no", cpu: bool = False, **kwargs: Any) -> None:
        super().__init__(cpu, **kwargs)
        self.mixed_precision = mixed_precision

    def __repr__(self) -> str:
        return f"{super().__repr__()}Mixed precision type: {self.mixed_precision}\n"
