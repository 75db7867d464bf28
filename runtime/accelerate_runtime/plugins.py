"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any

_TRUE, _FALSE = {"1", "true", "yes", "y", "on", "t"}, {"0", "false", "no", "n", "off", "f", ""}


def flag_from_env(name: str, default: bool = False) -> bool:
    """A yes/no environment variable.

    Raises:
        ValueError: it is set to something that is neither.
    """
    text = os.environ.get(name)
    if text is None:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"environment variable {name}={text!r} is neither true nor false")


class KwargsHandler:
    """Base of the dataclasses that carry keyword arguments to an object of torch."""

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their default."""
        changed = {}
        for f in fields(self):  # type: ignore[arg-type]
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if getattr(self, f.name) != default:
                changed[f.name] = getattr(self, f.name)
        return changed


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Arguments of `torch.nn.parallel.DistributedDataParallel`."""

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False


@dataclass
class GradScalerKwargs(KwargsHandler):
    """Arguments of `torch.amp.GradScaler`, used with `mixed_precision="fp16"`."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class AutocastKwargs(KwargsHandler):
    """Arguments of `torch.autocast`."""

    enabled: bool = True
    cache_enabled: bool | None = None


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Arguments of `torch.distributed.init_process_group`.

    The default backend, "nccl", means the one that fits the device (gloo on CPU). `timeout` is a timedelta; None is
    torch's own default (30 minutes for gloo).
    """

    backend: str | None = "nccl"
    init_method: str | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and not isinstance(self.timeout, timedelta):
            raise TypeError(f"InitProcessGroupKwargs(timeout={self.timeout!r}): pass a datetime.timedelta")


@dataclass
class DataLoaderConfiguration:
    """How prepared loaders split their batches between processes.

    Args:
        split_batches: the loader's batch size is the global one, and each batch is split between the processes; it must
            be divisible by their number. Otherwise each process gets batches of the loader's size.
        even_batches: where the last batches don't go round, samples from the epoch's start complete them, so that every
            process sees as many batches of as many samples.
        non_blocking: move batches to the device asynchronously (with pinned memory).

    The other fields are known, and refused where they ask for what this version does not do.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False

    def __post_init__(self) -> None:
        for name, harmless in _NOT_YET_IN_LOADERS.items():
            if getattr(self, name) not in harmless:
                raise NotImplementedError(
                    f"DataLoaderConfiguration({name}={getattr(self, name)!r}) is not supported in this version of "
                    f"accelerate_runtime; leave it at {harmless[0]!r}."
                )


_NOT_YET_IN_LOADERS: dict[str, tuple[Any, ...]] = {
    "dispatch_batches": (None, False),
    "use_seedable_sampler": (False,),
    "data_seed": (None,),
    "use_stateful_dataloader": (False,),
}


@dataclass
class ProjectConfiguration:
    """Where a project keeps its files. `logging_dir` defaults to `project_dir`."""

    project_dir: str | None = None
    logging_dir: str | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | None = None) -> None:
        """Set `project_dir`, and `logging_dir` where it is not set."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients are accumulated under `accelerator.accumulate()`.

    Args:
        num_steps: micro-batches per optimizer step, 1 or more.
        adjust_scheduler: a prepared scheduler counts the micro-batches in between, without changing the rate.
        sync_with_dataloader: the last batch of a loader ends the window, however full it is.
        sync_each_batch: exchange gradients after each micro-batch (saves memory on some strategies, costs time).
    """

    num_steps: int = field(default=1)
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False

    def __post_init__(self) -> None:
        self.num_steps = check_steps(self.num_steps)


def check_steps(value: Any) -> int:
    """A number of accumulation steps.

    Raises:
        ValueError: it is not a whole number of 1 or more.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"gradient_accumulation_steps={value!r}: must be a whole number, 1 or more")
    return value
