"""What a script may ask about the processes, with or without an Accelerator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

import torch

from . import collectives, division, topology
from .accumulation import GradientState as GradientState
from .environment import parse_flag_from_env
from .plugins import InitProcessGroupKwargs, TorchDynamoPlugin

if TYPE_CHECKING:
    from .plugins.deepspeed import DeepSpeedPlugin
    from .plugins.fsdp import FullyShardedDataParallelPlugin
    from .plugins.megatron import MegatronLMPlugin
    from .plugins.parallelism import ParallelismConfig
    from .strategies import Strategy

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
        """How training is spread."""
        return self._place.distributed_type

    @property
    def num_processes(self) -> int:
        """The number of processes, over all machines."""
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
        """Whether this is process 0."""
        return self._place.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first process of its machine."""
        return self._place.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        """Whether this is the process with the highest index."""
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
        """Give the block this process's consecutive part of `inputs`.

        They are a list, tuple or tensor, a dict of such, or a dataset of the `datasets` library. Processes that work on
        one model together get the same part.

        Args:
            apply_padding: repeat the last item where a process would get one less.
        """
        part = division.current().place
        yield split(inputs, part.num_processes, part.process_index, apply_padding)


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
    end = begin + size + (index < longer)
    repeat = pad and longer > 0 and index >= longer
    if not isinstance(inputs, torch.Tensor) and hasattr(inputs, "select"):  # a slice of such a dataset is a dict
        return inputs.select([*range(begin, end), *([len(inputs) - 1] if repeat else [])])
    part = inputs[begin:end]
    if repeat:
        last = inputs[-1:]
        part = torch.cat([part, last]) if isinstance(part, torch.Tensor) else part + last
    return part


class PartialState(ProcessControl):
    """The processes, usable without an Accelerator; every instance shows the same, and attributes set on one too.

    Args:
        cpu: stay on the CPU.
        kwargs: fields of InitProcessGroupKwargs, used where the process group is made.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    def __init__(self, cpu: bool = False, **kwargs: Any) -> None:
        self.__dict__ = self._shared_state
        self._place = topology.connect(cpu, InitProcessGroupKwargs(**kwargs) if kwargs else None)

    @property
    def backend(self) -> str | None:
        """The process group's backend; None on one process."""
        return self._place.backend

    @property
    def default_device(self) -> torch.device:
        """The device that a single process takes."""
        return topology.default_device()

    @property
    def debug(self) -> bool:
        """Whether collectives compare their arguments between processes first (ACCELERATE_DEBUG_MODE); may be set."""
        return topology.debugging()

    @debug.setter
    def debug(self, on: bool) -> None:
        topology.set_debugging(on)

    @property
    def initialized(self) -> bool:
        """Whether there is one."""
        return bool(self._shared_state)

    @property
    def fork_launched(self) -> bool:
        """Whether `notebook_launcher` or `debug_launcher` started this process."""
        return parse_flag_from_env("FORK_LAUNCHED")

    def set_device(self) -> None:
        """Nothing to do: the device was set when the state was made."""

    def destroy_process_group(self) -> None:
        """Leave the process group."""
        topology.shutdown()

    @staticmethod
    def _reset_state() -> None:
        """Forget everything, so that the next one reads the environment again (for tests)."""
        PartialState._shared_state.clear()
        topology.reset()

    def __getattr__(self, name: str) -> NoReturn:
        raise _missing(self, name)

    def __repr__(self) -> str:
        return (
            f"Distributed environment: {self.distributed_type}  Backend: {self.backend}\n"
            f"Num processes: {self.num_processes}\nProcess index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\nDevice: {self.device}\n"
        )


class AcceleratorState(PartialState):
    """The processes, and how an Accelerator trains. `AcceleratorState()` shows that of the latest Accelerator.

    Args:
        mixed_precision, cpu: what the caller takes for granted; they must be as the Accelerator has them.

    Raises:
        ValueError: there is no Accelerator yet, or it trains otherwise.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    mixed_precision: str
    dynamo_plugin: TorchDynamoPlugin
    parallelism_config: ParallelismConfig | None
    device_mesh: Any
    deepspeed_plugins: dict[str, DeepSpeedPlugin] | None
    fsdp_plugin: FullyShardedDataParallelPlugin | None
    megatron_lm_plugin: MegatronLMPlugin | None
    strategy: Strategy
    """What spreads training; ours, Accelerate does not have it."""

    def __init__(self, mixed_precision: str | None = None, cpu: bool = False) -> None:
        latest = AcceleratorState._shared_state
        if not latest:
            raise ValueError(
                "AcceleratorState() shows how an Accelerator trains, and there is none yet: create `Accelerator()` "
                "first (PartialState() tells of the processes without one)."
            )
        self.__dict__ = latest
        if mixed_precision is not None and mixed_precision != self.mixed_precision:
            raise ValueError(f"mixed_precision={mixed_precision!r}, but the Accelerator's is {self.mixed_precision!r}")
        if cpu and self.device.type != "cpu":
            raise ValueError(f"cpu=True, but the Accelerator is on {self.device}")

    @classmethod
    def of_accelerator(cls, place: topology.Topology, strategy: Strategy, **attributes: Any) -> AcceleratorState:
        """The state of a new Accelerator, which becomes the latest."""
        PartialState()
        state = cls.__new__(cls)
        AcceleratorState._shared_state = state.__dict__
        state.__dict__.update(_place=place, strategy=strategy, **attributes)
        return state

    @property
    def distributed_type(self) -> topology.DistributedType:
        """How training is spread: by which engine, or over which devices."""
        return self.strategy.distributed_type or self._place.distributed_type

    @property
    def deepspeed_plugin(self) -> DeepSpeedPlugin | None:
        """The DeepSpeedPlugin in use, or None."""
        several = self.deepspeed_plugins or {}
        return next((plugin for plugin in several.values() if plugin.selected), None)

    def get_deepspeed_plugin(self, name: str) -> DeepSpeedPlugin:
        """One of several plugins.

        Raises:
            ValueError: there is none of that name.
        """
        several = self.deepspeed_plugins or {}
        if name not in several:
            raise ValueError(f"there is no DeepSpeedPlugin {name!r}: there are {', '.join(several) or 'none'}")
        return several[name]

    def select_deepspeed_plugin(self, name: str) -> None:
        """Have what is prepared from now on trained by that one of several plugins.

        Raises:
            ValueError: there is none of that name.
        """
        chosen = self.get_deepspeed_plugin(name)
        for plugin in (self.deepspeed_plugins or {}).values():
            plugin._unselect()
        chosen.select(_from_accelerator_state=True)
        self.strategy.plugin = chosen  # type: ignore[attr-defined]

    @property
    def is_fsdp2(self) -> bool:
        """Whether the model is sharded by FSDP2."""
        return self.distributed_type == topology.DistributedType.FSDP

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forget the latest Accelerator's, which cannot prepare any more (for tests).

        Args:
            reset_partial_state: forget the processes too.
        """
        AcceleratorState._shared_state.clear()
        division.forget()
        if reset_partial_state:
            PartialState._reset_state()

    def __repr__(self) -> str:
        return f"{super().__repr__()}Mixed precision type: {self.mixed_precision}\n"


def _missing(state: PartialState, name: str) -> AttributeError:
    """What to say of an attribute that is not there: perhaps the state was reset under the script."""
    cls = type(state)
    if not vars(state) and (name == "_place" or hasattr(cls, name) or name in AcceleratorState.__annotations__):
        return AttributeError(
            f"`{cls.__name__}` object has no attribute `{name.lstrip('_')}` any more. This happens if "
            f"`{cls.__name__}._reset_state()` was called: create an Accelerator or PartialState again."
        )
    return AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")
