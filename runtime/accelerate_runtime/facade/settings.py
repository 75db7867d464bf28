"""What a script may ask an Accelerator, and set, beside its process's place."""

from __future__ import annotations

from typing import NoReturn

from ..accumulation import GradientState
from ..plugins import DataLoaderConfiguration, FP8BackendType, ProjectConfiguration, check_steps
from ..precision import Precision, SharedScaler
from ..preparation import Prepared
from ..state import ProcessControl
from ..strategies import Strategy


class Settings(ProcessControl):
    """The Accelerator's properties."""

    gradient_state: GradientState
    dataloader_config: DataLoaderConfiguration
    project_configuration: ProjectConfiguration
    _precision: Precision
    _prepared: Prepared
    _strategy: Strategy

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
        return self.dataloader_config.split_batches

    @property
    def even_batches(self) -> bool:
        """May be set, for loaders prepared afterwards."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        self.dataloader_config.even_batches = value

    @property
    def dispatch_batches(self) -> bool | None:
        return self.dataloader_config.dispatch_batches

    @property
    def non_blocking(self) -> bool:
        return self.dataloader_config.non_blocking

    @property
    def project_dir(self) -> str | None:
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | None:
        return self.project_configuration.logging_dir

    def __getattr__(self, name: str) -> NoReturn:
        if name in _LATER:
            raise NotSupported(f"Accelerator.{name} is not supported in this version of accelerate_runtime.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class NotSupported(NotImplementedError, AttributeError):
    """A part of the API that this version does not have; `hasattr` says so too."""


_LATER = frozenset(
    [
        "save_state",
        "load_state",
        "save_model",
        "register_for_checkpointing",
        "skip_first_batches",
        "register_save_state_pre_hook",
        "register_load_state_pre_hook",
        "init_trackers",
        "log",
        "get_tracker",
        "trackers",
        "set_trigger",
        "check_trigger",
        "join_uneven_inputs",
        "trigger_sync_in_backward",
        "profile",
        "maybe_context_parallel",
        "verify_device_map",
        "lomo_backward",
    ]
)
