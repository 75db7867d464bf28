"""Making an engine: what DeepSpeed needs around it, and what it must not do on the way."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...environment import parse_flag_from_env
from ...requirements import is_installed
from ...topology import Topology
from ...versions import compare_versions

logger = logging.getLogger(__name__)

LEAST = "0.19.8"
STALE = 600.0
"""Seconds after which a build that nothing was written to is taken for a dead one."""


def require_deepspeed(place: Topology | None = None) -> ModuleType:
    """DeepSpeed, imported.

    Raises:
        ImportError: it is not installed, or too old.
    """
    if not is_installed("deepspeed"):
        raise ImportError(
            "Training by DeepSpeed needs it, and it is not installed: pip install 'accelerate-migrate[deepspeed]'"
        )
    if place is not None and place.device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else it warns that it found nothing better
    import deepspeed

    # it calls what torch 2.13 has new names for, at each step
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+_tensor` is deprecated", FutureWarning)
    if compare_versions("deepspeed", "<", LEAST):
        raise ImportError(
            f"DeepSpeed {deepspeed.__version__} is installed, but {LEAST} or later is needed: "
            f"pip install 'deepspeed>={LEAST}'"
        )
    module: ModuleType = deepspeed
    return module


def join_group(place: Topology) -> None:
    """Give DeepSpeed the process group there is; on one process, a group of its own.

    DeepSpeed would compile an operation for shared memory here, for minutes: it does without.
    """
    import deepspeed.comm

    backend: Any = importlib.import_module("deepspeed.comm.torch")  # as an attribute, that name is torch's

    os.environ.setdefault("LOCAL_RANK", str(place.local_process_index))
    if not dist.is_initialized():
        from torch.distributed import HashStore  # type: ignore[attr-defined, unused-ignore]

        kind = dist.get_default_backend_for_device(place.device)
        dist.init_process_group(kind, store=HashStore(), rank=0, world_size=1)
        _leave_at_exit()
    if deepspeed.comm.is_initialized():
        return
    if parse_flag_from_env("ACCELERATE_DEEPSPEED_COMPILE_COMM"):
        deepspeed.comm.init_distributed(dist_init_required=False, verbose=False)
        return
    own = backend.build_shm_op
    backend.build_shm_op = _builds_nothing
    try:
        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
    finally:
        backend.build_shm_op = own


def _builds_nothing() -> None:
    return None


engines: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that were made."""


def let_go() -> None:
    """Drop the process groups that DeepSpeed and its engines hold: their threads could abort the interpreter's exit."""
    waiting: list[Any] = [sys.modules[name] for name in _HOLDERS if name in sys.modules]
    for engine in list(engines):
        waiting += [engine, *engine.module.parameters()]
    seen: set[int] = set()
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen or not hasattr(holder, "__dict__"):
            continue
        seen.add(id(holder))
        for name, value in list(vars(holder).items()):
            parts = list(value.values()) if isinstance(value, dict) else value
            parts = parts if isinstance(parts, (list, tuple)) else [parts]
            if any(isinstance(part, dist.ProcessGroup) for part in parts):
                vars(holder)[name] = None
            else:  # on into what is DeepSpeed's own
                waiting += [part for part in parts if type(part).__module__.startswith("deepspeed.")]
    if "deepspeed.comm.comm" in sys.modules:
        sys.modules["deepspeed.comm.comm"].cdb = None  # type: ignore[attr-defined]


_HOLDERS = ("deepspeed.utils.groups", "deepspeed.comm.comm", "deepspeed.runtime.zero.partition_parameters")


def _leave_at_exit() -> None:
    import atexit

    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())


@contextmanager
def without_a_step() -> Iterator[None]:
    """A context in which engines are made without stepping the optimizer.

    Without ZeRO, in half precision, DeepSpeed steps the optimizer on zeros to have its states made. Adam counts that
    step, so that its first updates come out too small, and decays weights: losses were 0.1 off after six steps.
    """
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer

    kinds = [FP16_Optimizer, FP16_UnfusedOptimizer]
    own = [kind.initialize_optimizer_states for kind in kinds]
    for kind in kinds:
        kind.initialize_optimizer_states = lambda _: None  # torch's make theirs with their first step
    try:
        yield
    finally:
        for kind, method in zip(kinds, own, strict=True):
            kind.initialize_optimizer_states = method


def sharded_while_made(config: dict[str, Any]) -> AbstractContextManager[Any]:
    """A context in which each part of a model is sharded as soon as it is made (ZeRO-3)."""
    from ... import topology

    place = topology.current()
    deepspeed = require_deepspeed(place)
    join_group(place)
    dtype = torch.float32
    for name, kind in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if config.get(name, {}).get("enabled") is True:
            dtype = kind
    context: AbstractContextManager[Any] = deepspeed.zero.Init(dtype=dtype)
    return context


_sharding: weakref.WeakSet[Any] = weakref.WeakSet()
"""The engines of ZeRO-3 that are in use."""


def keep_while(model: nn.Module, engine: Any) -> weakref.finalize[..., nn.Module]:
    """Let go of `engine` with `model`, or when what is returned is called: its hooks hold it, and gigabytes with it.

    With the last engine of ZeRO-3 goes what DeepSpeed puts in the place of `torch.nn.functional.linear`.
    """
    if engine.zero_optimization_partition_weights():
        _sharding.add(engine)
    finalizer = weakref.finalize(model, _let_go, engine)
    finalizer.atexit = False
    return finalizer


def _let_go(engine: Any) -> None:
    engine.destroy()
    _sharding.discard(engine)
    if not _sharding:
        from deepspeed.runtime.zero.partition_parameters import InsertPostInitMethodToModuleSubClasses as Patched

        torch.nn.functional.linear = getattr(Patched, "linear_bk", torch.nn.functional.linear)


# Operations that are compiled


def wait_for_builds(names: list[str]) -> None:
    """Wait where somebody is compiling the operations `names`; a build that died would be waited for without end.

    Raises:
        RuntimeError: the lock of a build that nothing is written to any more.
    """
    for name in names:
        folder = extensions_folder() / name
        lock, told = folder / "lock", False
        while lock.exists():
            latest = max((path.stat().st_mtime for path in folder.iterdir()), default=time.time())
            if time.time() - latest > STALE:
                raise RuntimeError(
                    f"DeepSpeed's operation {name} is being compiled, says {lock}, but nothing was written there for "
                    f"{(time.time() - latest) / 60:.0f} minutes: the process that compiled it was killed. Remove this "
                    "file (or set TORCH_EXTENSIONS_DIR to another folder) and start again."
                )
            if not told:
                logger.warning("waiting for another process to compile DeepSpeed's operation %s (%s)", name, lock)
                told = True
            time.sleep(0.5)


def extensions_folder() -> Path:
    """Where torch keeps compiled operations."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return Path(named)
    from torch.utils.cpp_extension import get_default_build_root

    kind = "cpu"
    for name, version in (("rocm", torch.version.hip), ("cu", torch.version.cuda)):
        if version is not None:
            kind = f"{name}{version.replace('.', '')}"
            break
    flags = getattr(sys, "abiflags", "")
    return Path(get_default_build_root()) / f"py{sys.version_info.major}{sys.version_info.minor}{flags}_{kind}"


def operations_of(config: dict[str, Any]) -> list[str]:
    """The operations that an engine with this config compiles."""
    optimizer = config.get("optimizer") or {}
    kind = str(optimizer.get("type", "")).lower()
    device = (config.get("zero_optimization") or {}).get("offload_optimizer", {}).get("device", "none")
    offloaded = device not in ("none", None)
    if kind in ("adam", "adamw") and (optimizer.get("params") or {}).get("torch_adam"):
        return []
    names = {
        "adam": ("fused_adam", "cpu_adam"),
        "adamw": ("fused_adam", "cpu_adam"),
        "lamb": ("fused_lamb", "fused_lamb"),
        "lion": ("fused_lion", "cpu_lion"),
        "adagrad": (None, "cpu_adagrad"),
    }.get(kind, (None, None))
    return [name for name in (names[offloaded],) if name is not None]
