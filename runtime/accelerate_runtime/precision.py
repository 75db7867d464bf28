"""Mixed precision: autocast around a prepared model's forward, and loss scaling for fp16."""

from __future__ import annotations

import types
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from .collectives import map_tensors
from .plugins import AutocastKwargs, GradScalerKwargs

ALLOWED = ("no", "fp16", "bf16", "fp8")
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Precision:
    """What `mixed_precision` means on a device.

    Args:
        mode: "no", "fp16" or "bf16".

    Raises:
        ValueError: an unknown mode, or one that the device cannot do.
        NotImplementedError: "fp8".
    """

    def __init__(
        self,
        mode: str,
        device: torch.device,
        autocast: AutocastKwargs | None = None,
        scaling: GradScalerKwargs | None = None,
    ) -> None:
        self.mode = check_mode(mode)
        self.device_type = device.type
        self.kwargs = autocast if autocast is not None else AutocastKwargs()
        self.scaler: torch.amp.GradScaler | None = None
        if mode == "no":
            return
        if not torch.amp.is_autocast_available(device.type):
            raise ValueError(f"mixed_precision={mode!r}: torch has no autocast on {device.type}; use 'no'.")
        if mode == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise ValueError("mixed_precision='bf16': this GPU has no bfloat16; use 'fp16' or 'no'.")
        if mode == "fp16":
            if not _can_scale(device):
                raise ValueError(
                    f"mixed_precision='fp16': torch cannot scale gradients on {device.type}; use 'bf16' or 'no'."
                )
            self.scaler = torch.amp.GradScaler(device.type, **(scaling.to_kwargs() if scaling is not None else {}))

    def autocast(self, handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """A context in which operations run in the lower precision; without mixed precision, one that does nothing."""
        if self.mode == "no":
            return nullcontext()
        kwargs = handler if handler is not None else self.kwargs
        return torch.autocast(
            self.device_type, dtype=_DTYPES[self.mode], enabled=kwargs.enabled, cache_enabled=kwargs.cache_enabled
        )

    def wrap_forward(self, model: nn.Module) -> None:
        """Have `model.forward` run under autocast and return float32, in place."""
        if self.mode != "no" and not isinstance(model.__dict__.get("forward"), AutocastForward):
            model.forward = AutocastForward(model, self)


def unwrap_forward(model: nn.Module) -> None:
    """Undo `wrap_forward`, in place."""
    wrapped = model.__dict__.get("forward")
    if isinstance(wrapped, AutocastForward):
        if wrapped.own is None:
            del model.__dict__["forward"]
        else:
            model.forward = wrapped.own


def check_mode(mode: str) -> str:
    """`mode`, if this version knows it; see `Precision`."""
    if mode not in ALLOWED:
        raise ValueError(f"mixed_precision={mode!r}: allowed are 'no', 'fp16' and 'bf16'")
    if mode == "fp8":
        raise NotImplementedError(
            "mixed_precision='fp8' is not supported in this version of accelerate_runtime; use 'bf16'."
        )
    return mode


def convert_to_fp32(data: Any) -> Any:
    """A nested structure with its float16 and bfloat16 tensors in float32; everything else is kept."""
    return map_tensors(_to_fp32, data, strict=False)


def _to_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class AutocastForward:
    """Stands in for `model.forward`. Copied with its model; pickled as the plain method, so files do without us."""

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        self.model, self.precision = model, precision
        self.own = model.__dict__.get("forward")
        self.__wrapped__ = model.forward  # what inspect.signature() shows

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision.autocast():
            output = self.own(*args, **kwargs) if self.own else type(self.model).forward(self.model, *args, **kwargs)
        return convert_to_fp32(output)

    def __deepcopy__(self, memo: dict[int, Any]) -> AutocastForward:
        new = AutocastForward.__new__(AutocastForward)
        new.model, new.precision, new.own = memo.get(id(self.model), self.model), self.precision, self.own
        new.__wrapped__ = new.own or types.MethodType(type(new.model).forward, new.model)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, "forward")  # of the class: the file is read into a model that has no other yet


def _can_scale(device: torch.device) -> bool:
    """Whether this build of torch has the kernel that a GradScaler calls, for this kind of device."""
    key = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU"}.get(device.type)
    operator = "aten::_amp_foreach_non_finite_check_and_unscale_"
    return key is None or bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
