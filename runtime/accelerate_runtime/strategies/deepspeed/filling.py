"""DeepSpeed's config, filled in from what a script prepared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ...plugins.deepspeed import DeepSpeedPlugin, fill
from ...plugins.zero_config import AUTO, HfDeepSpeedConfig
from .dummies import DummyOptim, DummyScheduler

_ZERO = "zero_optimization"
_BUCKET = 500_000_000
"""Elements of DeepSpeed's buffer for gradients."""


@dataclass
class Prepared:
    """What a config is filled in from.

    Attributes:
        batch_sizes: of the loaders, on one process.
        split: whether a scheduler's steps are counted as this process makes them.
    """

    model: nn.Module
    optimizer: Optimizer
    scheduler: DummyScheduler | None
    batch_sizes: list[int]
    accumulation: int
    mixed_precision: str
    processes: int
    on_cpu: bool
    split: bool = False
    origins: dict[str, str] = field(default_factory=dict)


def filled(plugin: DeepSpeedPlugin, prepared: Prepared) -> dict[str, Any]:
    """The config of an engine: the plugin's, with everything known.

    Raises:
        ValueError: something contradicts the config, or is missing; the message says where.
    """
    config, origins = HfDeepSpeedConfig(plugin.hf_ds_config), dict(plugin.origins)

    def put(key: str, value: Any, origin: str) -> None:
        fill(config, origins, key, value, origin)

    put("gradient_accumulation_steps", prepared.accumulation, f"gradient_accumulation_steps={prepared.accumulation}")
    _fill_batches(config, origins, plugin, prepared)
    _fill_precision(config, origins, prepared.mixed_precision)
    _default(config, "gradient_clipping", 0.0)
    _fill_optimizer(config, origins, prepared)
    _fill_scheduler(config, origins, prepared)
    _fill_from_hidden_size(config, prepared.model)
    if config.get_value(f"{_ZERO}.reduce_bucket_size") is None:  # memory that a smaller model would never fill
        config.set_value(f"{_ZERO}.reduce_bucket_size", min(_BUCKET, _number_of_elements(prepared.model)))
    _default(config, "zero_allow_untested_optimizer", True)
    if config.get_value("managed_gradient_accumulation") is True:
        raise ValueError(
            f"{config.source} says managed_gradient_accumulation: true, but here windows end where the script steps: "
            "leave it out"
        )
    config.set_value("managed_gradient_accumulation", False)
    if config.get_value(f"{_ZERO}.stage") == 1 and config.get_value(f"{_ZERO}.overlap_comm") is True:
        raise ValueError(
            f"{config.source} says {_ZERO}.overlap_comm: true with stage 1, where gradients are exchanged only when a "
            "window ends: leave it out, or use stage 2"
        )
    left = [key for key, value in _leaves(config.config) if value == AUTO and not key.endswith("replace_method")]
    if left:
        raise ValueError(f"{config.source}: there is nothing to fill in for 'auto' at {', '.join(left)}: say a value")
    return config.config


def _default(config: HfDeepSpeedConfig, key: str, value: Any) -> None:
    if config.get_value(key) in (None, AUTO):
        config.set_value(key, value)


def _fill_batches(
    config: HfDeepSpeedConfig, origins: dict[str, str], plugin: DeepSpeedPlugin, prepared: Prepared
) -> None:
    sizes, key = prepared.batch_sizes, "train_micro_batch_size_per_gpu"
    said, whole = config.get_value(key), config.get_value("train_batch_size")
    windows = prepared.accumulation * prepared.processes
    if not sizes and said in (None, AUTO):
        if whole in (None, AUTO):
            raise ValueError(
                "DeepSpeed needs to know the batch size, and no loader with one was prepared: prepare() the loader "
                f"with the model and the optimizer, or have DeepSpeed's config say {key}"
            )
        sizes = [whole // windows]
    if sizes:
        micro = min(sizes) if plugin.is_train_batch_min else max(sizes)
        micro = said if said in sizes else micro
        fill(config, origins, key, micro, f"the prepared loader, with batch_size={micro},")
    micro = config.get_value(key)
    told = f"{micro} samples x {prepared.accumulation} micro-batches x {prepared.processes} processes"
    fill(config, origins, "train_batch_size", micro * windows, told)


def _fill_precision(config: HfDeepSpeedConfig, origins: dict[str, str], mode: str) -> None:
    for kind in ("fp16", "bf16"):
        enabled = mode == kind
        if enabled or config.get_value(f"{kind}.enabled") is not None:
            fill(config, origins, f"{kind}.enabled", enabled, f"mixed_precision={mode!r}")


def _fill_optimizer(config: HfDeepSpeedConfig, origins: dict[str, str], prepared: Prepared) -> None:
    optimizer, said = prepared.optimizer, config.get_value("optimizer")
    if not isinstance(optimizer, DummyOptim):
        if said is not None:
            raise ValueError(
                f"{config.source} says optimizer: {said.get('type')!r}, but prepare() was given "
                f"{type(optimizer).__name__}: take one out; with the config's, prepare "
                "accelerate_runtime.utils.DummyOptim(model.parameters())"
            )
        if not type(optimizer).__module__.startswith("deepspeed."):  # DeepSpeed would insist on one of its own
            _default(config, "zero_force_ds_cpu_optimizer", False)
        return
    if said is None:
        raise ValueError(
            f"prepare() was given a DummyOptim, but {config.source} says no optimizer: say one there, or prepare one "
            "of torch's"
        )
    known = {"lr": optimizer.lr, "weight_decay": optimizer.weight_decay, **optimizer.kwargs}
    _fill_parameters(config, origins, "optimizer", "DummyOptim", known)
    if prepared.on_cpu and str(said.get("type", "")).lower() in ("adam", "adamw"):
        _default(config, "optimizer.params.torch_adam", True)  # its own would be compiled, for minutes


def _fill_scheduler(config: HfDeepSpeedConfig, origins: dict[str, str], prepared: Prepared) -> None:
    scheduler, said = prepared.scheduler, config.get_value("scheduler")
    if scheduler is None:
        if said is not None:
            raise ValueError(
                f"{config.source} says scheduler: {said.get('type')!r}, but no DummyScheduler was prepared: prepare "
                "accelerate_runtime.utils.DummyScheduler(optimizer) with the model, or take the scheduler out"
            )
        return
    if said is None:
        if scheduler.lr_scheduler_callable is None:
            raise ValueError(
                f"prepare() was given a DummyScheduler, but {config.source} says no scheduler: say one there, or pass "
                "DummyScheduler(lr_scheduler_callable=...)"
            )
        return
    divisor = 1 if prepared.split else prepared.processes
    known = dict(scheduler.kwargs)
    known |= {"warmup_num_steps": math.ceil(scheduler.warmup_num_steps / divisor), "warmup_min_lr": 0}
    if isinstance(prepared.optimizer, DummyOptim):
        known["warmup_max_lr"] = config.get_value("optimizer.params.lr", prepared.optimizer.lr)
    else:
        known["warmup_max_lr"] = prepared.optimizer.param_groups[0]["lr"]
    if scheduler.total_num_steps is not None:
        known["total_num_steps"] = math.ceil(scheduler.total_num_steps / divisor)
    _fill_parameters(config, origins, "scheduler", "DummyScheduler", known)


def _fill_parameters(
    config: HfDeepSpeedConfig, origins: dict[str, str], section: str, maker: str, known: dict[str, Any]
) -> None:
    """Put what `maker` was made with in the place of "auto" in the parameters of `section`."""
    for name, value in (config.get_value(section).get("params") or {}).items():
        if value == AUTO:
            place = f"{section}.params.{name}"
            if name not in known:
                raise ValueError(f"{config.source} says {place}: 'auto', but {maker} was made without {name}")
            config.set_value(place, known[name])
            origins[place] = f"{maker}({name}=...)"


def _fill_from_hidden_size(config: HfDeepSpeedConfig, model: nn.Module) -> None:
    """Buffers of ZeRO in proportion to the width of the model."""
    keys = [
        key
        for key in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
        if config.get_value(f"{_ZERO}.{key}") == AUTO
    ]
    if not keys:
        return
    width = _hidden_size(model)
    if width is None:
        raise ValueError(
            f"{config.source} says 'auto' at {', '.join(f'{_ZERO}.{key}' for key in keys)}, which follow from the "
            "model's width, but the model has no config.hidden_size (or hidden_sizes): say numbers, or leave them out"
        )
    values = {
        "reduce_bucket_size": width * width,
        "stage3_prefetch_bucket_size": int(0.9 * width * width),
        "stage3_param_persistence_threshold": 10 * width,
    }
    for key in keys:
        config.set_value(f"{_ZERO}.{key}", values[key])


def _number_of_elements(model: nn.Module) -> int:
    return sum(int(getattr(parameter, "ds_numel", parameter.numel())) for parameter in model.parameters())


def _hidden_size(model: nn.Module) -> int | None:
    described = getattr(model, "config", None)
    for one in (described, getattr(described, "text_config", None)):
        if getattr(one, "hidden_size", None) is not None:
            return int(one.hidden_size)  # type: ignore[union-attr]
        if getattr(one, "hidden_sizes", None):
            return int(max(one.hidden_sizes))  # type: ignore[union-attr]
    return None


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
