"""What `mixed_precision` means on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from .. import devices
from ..plugins import AutocastKwargs, FP8BackendType, GradScalerKwargs
from ..vocabulary import PRECISIONS
from .forward import wrap_forward
from .fp8 import Engine, Recipe, engine_for
from .scaling import SharedScaler

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


class Precision:
    """What `mixed_precision` means on a device.

    Args:
        mode: "no", "fp16", "bf16" or "fp8"; around fp8 everything else runs in bf16.
        recipe: of fp8.

    Raises:
        ValueError: an unknown mode, or one that the device cannot do.
        ImportError: the engine of fp8 is not installed.
    """

    def __init__(
        self,
        mode: str,
        device: torch.device,
        autocast: AutocastKwargs | None = None,
        scaling: GradScalerKwargs | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.mode = check_mode(mode)
        self.device_type = device.type
        self.kwargs = autocast if autocast is not None else AutocastKwargs()
        self.scaler: SharedScaler | None = None
        self.engine: Engine | None = None
        if mode == "no":
            return
        if not torch.amp.is_autocast_available(device.type):
            raise ValueError(f"mixed_precision={mode!r}: torch has no autocast on {device.type}; use 'no'.")
        if mode in ("bf16", "fp8") and not devices.has_bfloat16(device):
            raise ValueError(
                f"mixed_precision={mode!r}: this {devices.kind_of(device).label} has no bfloat16; use 'fp16' or 'no'."
            )
        if mode == "fp16":
            if not devices.can_scale_gradients(device):
                raise ValueError(
                    f"mixed_precision='fp16': torch cannot scale gradients on {device.type}; use 'bf16' or 'no'."
                )
            self.scaler = SharedScaler(device.type, **(scaling.to_kwargs() if scaling is not None else {}))
        if recipe is not None:
            self.engine = engine_for(recipe, device)

    @property
    def fp8_backend(self) -> FP8BackendType:
        """The engine of fp8."""
        return self.engine.backend if self.engine is not None else FP8BackendType.NO

    def autocast(self, handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """A context in which operations run in the lower precision; without mixed precision, one that does nothing."""
        if self.mode == "no":
            return nullcontext()
        kwargs = handler if handler is not None else self.kwargs
        return torch.autocast(
            self.device_type, dtype=_DTYPES[self.mode], enabled=kwargs.enabled, cache_enabled=kwargs.cache_enabled
        )

    def around_forward(self, training: bool) -> AbstractContextManager[Any]:
        """A context for a prepared model's forward."""
        return self.autocast() if self.engine is None else self._around_engine(self.engine, training)

    @contextmanager
    def _around_engine(self, engine: Engine, training: bool) -> Iterator[None]:
        with self.autocast(), engine.around_forward(training):
            yield

    def apply(self, model: nn.Module) -> nn.Module:
        """Have `model`, which is on its device, compute in this precision: in place, but see `Engine.convert`."""
        if self.mode != "no":
            if self.engine is not None:
                model = self.engine.convert(model)
            wrap_forward(model, self)
        return model


def check_mode(mode: str) -> str:
    """`mode`, if it is one; see `Precision`."""
    if mode not in PRECISIONS:
        *others, last = map(repr, PRECISIONS)
        raise ValueError(f"mixed_precision={mode!r}: allowed are {', '.join(others)} and {last}")
    return mode
