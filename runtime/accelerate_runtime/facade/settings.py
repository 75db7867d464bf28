"""What a script may ask an Accelerator, and set, beside its process's place."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from ..accumulation import GradientState
from ..arguments import Handlers, handler_of
from ..plugins import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    FP8BackendType,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProjectConfiguration,
    check_steps,
)
from ..precision import Precision, SharedScaler
from ..preparation import Prepared
from ..state import AcceleratorState, ProcessControl
from ..strategies import Strategy
from ..topology import DistributedType

H = TypeVar("H", bound=KwargsHandler)


class Settings(ProcessControl):
    """The Accelerator's properties."""

    gradient_state: GradientState
    dataloader_config: DataLoaderConfiguration
    project_configuration: ProjectConfiguration
    device_placement: bool
    state: AcceleratorState
    _handlers: Handlers
    _precision: Precision
    _prepared: Prepared
    _strategy: Strategy

    @property
    def distributed_type(self) -> DistributedType:
        """How training is spread."""
        return self.state.distributed_type

    @property
    def mixed_precision(self) -> str:
        """The precision: "no", "fp16", "bf16" or "fp8"."""
        return self._precision.mode

    @property
    def scaler(self) -> SharedScaler | None:
        """The gradient scaler of fp16, else None."""
        return self._precision.scaler

    @property
    def native_amp(self) -> bool:
        """Whether precision is mixed."""
        return self._precision.mode != "no"

    @property
    def fp8_enabled(self) -> bool:
        """Whether precision is fp8."""
        return self._precision.mode == "fp8"

    @property
    def fp8_backend(self) -> FP8BackendType:
        """The engine of fp8; without fp8, `FP8BackendType.NO`."""
        return self._precision.fp8_backend

    @property
    def sync_gradients(self) -> bool:
        """Whether the current micro-batch ends with an optimizer step."""
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self.gradient_state.sync_gradients = value

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches per optimizer step; may be set."""
        return self.gradient_state.plugin.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self.gradient_state.plugin.num_steps = check_steps(steps)

    @property
    def step(self) -> int:
        """Micro-batches since the last window that a loader's end closed."""
        return self.gradient_state.step

    @step.setter
    def step(self, value: int) -> None:
        self.gradient_state.step = value

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether a prepared optimizer's last step was left out because scaled gradients overflowed."""
        return any(optimizer.step_was_skipped for optimizer in self._prepared.optimizers)

    @property
    def split_batches(self) -> bool:
        """See DataLoaderConfiguration."""
        return self.dataloader_config.split_batches

    @property
    def even_batches(self) -> bool:
        """See DataLoaderConfiguration; may be set, for loaders prepared afterwards."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        self.dataloader_config.even_batches = value

    @property
    def dispatch_batches(self) -> bool | None:
        """See DataLoaderConfiguration."""
        return self.dataloader_config.dispatch_batches

    @property
    def use_seedable_sampler(self) -> bool:
        """See DataLoaderConfiguration."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def use_stateful_dataloader(self) -> bool:
        """See DataLoaderConfiguration."""
        return self.dataloader_config.use_stateful_dataloader

    @property
    def non_blocking(self) -> bool:
        """See DataLoaderConfiguration."""
        return self.dataloader_config.non_blocking

    @property
    def project_dir(self) -> str | None:
        """The project's folder."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | None:
        """Where trackers write their files."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """The number of the next state that `save_state` names itself."""
        return self.project_configuration.iteration

    # The handlers of `kwargs_handlers`, None where there is none

    def _handler(self, kind: type[H]) -> H | None:
        return handler_of(self._handlers, kind)

    @property
    def ddp_handler(self) -> DistributedDataParallelKwargs | None:
        """The DistributedDataParallelKwargs of `kwargs_handlers`, or None."""
        return self._handler(DistributedDataParallelKwargs)

    @property
    def scaler_handler(self) -> GradScalerKwargs | None:
        """The GradScalerKwargs of `kwargs_handlers`, or None."""
        return self._handler(GradScalerKwargs)

    @property
    def init_handler(self) -> InitProcessGroupKwargs | None:
        """The InitProcessGroupKwargs of `kwargs_handlers`, or None."""
        return self._handler(InitProcessGroupKwargs)

    @property
    def autocast_handler(self) -> AutocastKwargs | None:
        """The AutocastKwargs of `kwargs_handlers`, or None."""
        return self._handler(AutocastKwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "deepspeed_ulysses_dl_adapter":
            from ..plugins.parallelism import NO_ULYSSES

            raise NotSupported(f"Accelerator.{name}: {NO_ULYSSES}")
        if name in _LATER:
            raise NotSupported(f"Accelerator.{name} is not supported in this version of accelerate_runtime.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class NotSupported(NotImplementedError, AttributeError):
    """A part of the API that this version does not have; `hasattr` says so too."""


_LATER = frozenset(["lomo_backward"])
