"""How pipeline parallelism is done: `ParallelismConfig(pp_size=..., pp_handler=...)`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..environment import parse_flag_from_env

if TYPE_CHECKING:
    import torch

SCHEDULES = ("gpipe", "1f1b", "interleaved")

_PREFIX = "PARALLELISM_CONFIG_PP_"


@dataclass
class TorchPipelineParallelConfig:
    """How a model is cut into stages, and how these work together. It is ours; Accelerate does not have it.

    A field that is None is read from PARALLELISM_CONFIG_PP_ and its name in capitals, else it has its default.

    Args:
        schedule: "gpipe" (the default): all micro-batches forward, and backward where the script calls it; the script
            makes the loss. "1f1b": a micro-batch's backward follows its forward as soon as it can, which keeps fewer
            activations; "interleaved": the same, where each process holds several stages, and waits less. In these two
            the model makes the loss, or `loss_fn` does.
        num_microbatches: into how many micro-batches a batch is cut; the default is twice the number of processes
            (`pp_size`).
        split_points: for each stage but the first, the name of the module that begins it, such as "blocks.4"; None
            finds the blocks of a model and balances the number of parameters.
        at_end: names of modules and parameters that the last stage uses, though the model has them before its blocks.
        loss_fn: `loss_fn(output, target)`, where the model does not make the loss: training calls
            `model(inputs, target=...)` and gets the loss.
        loss_reduction: what a loss is that the model (or `loss_fn`) makes: "mean" over the samples (the default: those
            of the micro-batches are averaged, by their numbers of samples), or "sum".
        activation_checkpointing: compute the blocks' activations again in backward instead of keeping them.
        stages_per_process: with "interleaved", how many stages each process holds; 2 by default.

    Raises:
        ValueError: a value that is none of these.
    """

    schedule: str = None  # type: ignore[assignment]
    num_microbatches: int = None  # type: ignore[assignment]
    split_points: list[str] | None = None
    at_end: list[str] | None = None
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None
    loss_reduction: str = None  # type: ignore[assignment]
    activation_checkpointing: bool = None  # type: ignore[assignment]
    stages_per_process: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.schedule = str(self._read("schedule", "gpipe")).lower()
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r}: allowed are {', '.join(SCHEDULES)}")
        self.loss_reduction = self._read("loss_reduction", "mean")
        if self.loss_reduction not in ("mean", "sum"):
            raise ValueError(f"loss_reduction={self.loss_reduction!r}: allowed are 'mean' and 'sum'")
        if self.activation_checkpointing is None:
            self.activation_checkpointing = parse_flag_from_env(f"{_PREFIX}ACTIVATION_CHECKPOINTING")
        self.num_microbatches = self._number("num_microbatches", 0)
        self.stages_per_process = self._number("stages_per_process", 2 if self.schedule == "interleaved" else 1)
        if (self.schedule == "interleaved") != (self.stages_per_process > 1):
            raise ValueError(
                f"schedule={self.schedule!r} with stages_per_process={self.stages_per_process}: 'interleaved' needs "
                "2 or more, the others 1"
            )
        self.split_points = self._names("split_points")
        self.at_end = self._names("at_end")
        if self.loss_fn is not None and not callable(self.loss_fn):
            raise ValueError(f"loss_fn={self.loss_fn!r}: pass a function of the output and the target")
        if self.loss_fn is not None and self.schedule == "gpipe":
            raise ValueError(
                "loss_fn is for the schedules '1f1b' and 'interleaved': with 'gpipe' the script makes the loss"
            )

    def _read(self, name: str, default: Any) -> Any:
        value = getattr(self, name)
        return value if value is not None else os.environ.get(f"{_PREFIX}{name.upper()}") or default

    def _number(self, name: str, default: int) -> int:
        value = self._read(name, default)
        if value == 0 and default == 0 and getattr(self, name) is None:
            return 0  # not known yet: it follows from the number of processes
        text = str(value)
        if isinstance(value, bool) or not text.isdigit() or int(text) < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number, 1 or more")
        return int(text)

    def _names(self, name: str) -> list[str] | None:
        value = self._read(name, None)
        if isinstance(value, str):
            value = [one.strip() for one in value.split(",") if one.strip()]
        if value is not None and not all(isinstance(one, str) for one in value):
            raise ValueError(f"{name}={value!r}: must be names of modules")
        return list(value) if value else None
