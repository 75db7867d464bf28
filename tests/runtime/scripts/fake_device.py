"""A device that is not here: torch knows the kind `npu`, of which there are two, and its tensors lie on the CPU.

Selecting such a device, its collectives, autocast and generators work as with a real one; what a kernel would compute
is computed by the CPU's. `use()` must be called before anything asks torch which accelerator there is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

NAME, BACKEND, COUNT = "npu", "hccl", 2


class Module:
    """What stands at `torch.npu`."""

    chosen = 0
    seeds: list[int] = []  # noqa: RUF012
    states: dict[int, torch.Tensor] = {}  # noqa: RUF012

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return COUNT

    @classmethod
    def current_device(cls) -> int:
        return cls.chosen

    @classmethod
    def set_device(cls, index: int) -> None:
        cls.chosen = index

    @staticmethod
    def get_device_name(index: int) -> str:
        return "Fake NPU"

    @staticmethod
    def is_bf16_supported() -> bool:
        return True

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        cls.seeds.append(seed)
        for index in range(COUNT):
            cls.states[index] = torch.tensor([seed])

    @classmethod
    def get_rng_state(cls) -> torch.Tensor:
        return cls.states[cls.chosen]

    @classmethod
    def set_rng_state(cls, state: torch.Tensor) -> None:
        cls.states[cls.chosen] = state

    @classmethod
    def get_rng_state_all(cls) -> list[torch.Tensor]:
        return [cls.states[index] for index in range(COUNT)]

    @classmethod
    def set_rng_state_all(cls, states: list[torch.Tensor]) -> None:
        cls.states.update(enumerate(states))


class _OnTheCPU(TorchFunctionMode):
    """Whoever asks for the device gets memory of the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        moved = [_to_cpu(value) for value in args]
        return func(*moved, **{name: _to_cpu(value) for name, value in (kwargs or {}).items()})


def _to_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == NAME else value


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


def use() -> None:
    """Have torch know the device, for the rest of this process."""
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, Module)
    Module.manual_seed_all(0)
    dist.Backend.register_backend(BACKEND, _gloo, devices=[NAME, "cpu"])
    plain = DistributedDataParallel.__init__

    def without_ids(self: Any, module: Any, device_ids: Any = None, **kwargs: Any) -> None:
        assert device_ids == [Module.chosen], "DistributedDataParallel was not told of the device"
        plain(self, module, **kwargs)

    DistributedDataParallel.__init__ = without_ids  # type: ignore[method-assign]
    torch.accelerator.empty_cache = lambda: None
    torch.accelerator.get_memory_info = lambda index=None: (1000 + index, 2000)  # type: ignore[assignment]
    _OnTheCPU().__enter__()
