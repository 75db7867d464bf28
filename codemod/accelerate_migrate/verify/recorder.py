"""Run a training script and write down what it does: ``python recorder.py --trace FILE [--cuda-on-cpu] SCRIPT ARGS…``.

A trace is JSON lines, flushed one by one, so that a run that dies leaves what it did:

- ``{"event": "backward", "value": 2.3025}``: the sum of the tensor that ``backward()`` started from;
- ``{"event": "step", "optimizer": "SGD", "elements": 7850, "norm": 9.4}``: an optimizer stepped; so many parameters, of
  that norm;
- ``{"event": "save", "file": "net.pt", "elements": 7850, "norm": 9.4, "digest": "…"}``: ``torch.save`` wrote tensors;
  the digest covers their names (less any ``module.``), types, shapes and bytes.

Under a launcher (``WORLD_SIZE`` above 1) each process writes ``FILE.<rank>``.

With ``--cuda-on-cpu`` a script that hard-codes CUDA runs on the CPU: it is told that one GPU is there, and every tensor
it asks to have on it stays where it is. Limits: ``.cuda()`` does not copy, ``tensor.device`` says ``cpu``, and mixed
precision is the CPU's.

This file is run by path in the training environment, which may hold nothing but Python and torch: it imports nothing
else, and torch only when it starts.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def main() -> None:
    """Record one script; it sees the ``sys.argv``, ``sys.path[0]`` and ``__main__`` of a plain run."""
    parser = argparse.ArgumentParser(description="Run a training script and record what it does.")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--cuda-on-cpu", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.cuda_on_cpu:
        redirect_cuda()
    record(_for_this_rank(options.trace))
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path(options.script).resolve().parent)
    runpy.run_path(options.script, run_name="__main__")


def _for_this_rank(path: Path) -> Path:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return path.with_name(f"{path.name}.{os.environ['RANK']}")
    return path


# -- recording ---------------------------------------------------------------------------------------------------------


def record(path: Path) -> None:
    """Write this process's backwards, optimizer steps and saves to ``path`` from now on."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trace = path.open("w", buffering=1, encoding="utf-8")

    def write(event: str, **values: object) -> None:
        trace.write(json.dumps({"event": event, **values}) + "\n")

    def before_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        write("backward", value=sum(float(root.detach().double().sum()) for root in roots))

    def after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        elements, norm = _size(parameters)
        write("step", optimizer=type(optimizer).__name__, elements=elements, norm=norm)

    def before_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        named = list(_tensors(obj))
        elements, norm = _size([tensor for _, tensor in named])
        file = os.path.basename(f) if isinstance(f, (str, os.PathLike)) else ""
        write("save", file=file, elements=elements, norm=norm, digest=_digest(named))

    _call_first(torch.autograd, "backward", before_backward)
    _call_first(torch, "save", before_save)
    register_optimizer_step_post_hook(after_step)


def _call_first(owner: Any, name: str, notice: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def noticed(*args: Any, **kwargs: Any) -> Any:
        notice(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, noticed)


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a nest of dicts, sequences and things with a ``state_dict``, each with its path."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value.detach()
    elif isinstance(value, torch.nn.Module):
        yield from _tensors(value.state_dict(), name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{name}/{str(key).removeprefix('module.')}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{name}/{index}")


def _size(tensors: list[torch.Tensor]) -> tuple[int, float]:
    """How many elements, and their norm."""
    squares = sum(float(tensor.detach().double().pow(2).sum()) for tensor in tensors if not tensor.is_complex())
    return sum(tensor.numel() for tensor in tensors), squares**0.5


def _digest(named: list[tuple[str, torch.Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        dense = tensor.cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(ctypes.string_at(dense.data_ptr(), dense.nbytes))  # numpy need not be there
    return digest.hexdigest()[:32]


# -- a GPU that is the CPU ---------------------------------------------------------------------------------------------


def _is_cuda(device: Any) -> bool:
    if isinstance(device, str):
        return device.split(":")[0] == "cuda"
    return getattr(device, "type", None) == "cuda"


def _on_cpu(device: Any) -> Any:
    """What a ``device=`` argument means here (an index means a GPU)."""
    return "cpu" if type(device) is int or _is_cuda(device) else device


def redirect_cuda() -> None:
    """Make torch claim one GPU, and let everything that is asked for on it happen on the CPU."""
    _redirect_tensors()
    _redirect_queries()
    _redirect_precision()
    _redirect_files_and_generators()
    _redirect_parallel()


def _redirect_tensors() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    stays: set[Any] = {torch.Tensor.cuda, torch.Tensor.pin_memory}

    class CudaOnCpu(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in stays:
                return args[0]
            if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
                args = (args[0], "cpu", *args[2:])
            if func is torch.Tensor.type and len(args) > 1 and isinstance(args[1], str):
                args = (args[0], args[1].replace("torch.cuda.", "torch."), *args[2:])
            args = tuple("cpu" if _is_cuda(arg) else arg for arg in args)
            if "device" in kwargs:
                kwargs["device"] = _on_cpu(kwargs["device"])
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            return func(*args, **kwargs)

    CudaOnCpu().__enter__()  # type: ignore[no-untyped-call]  # for as long as the process lives
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))

    default_device = torch.set_default_device
    torch.set_default_device = lambda device: default_device(_on_cpu(device))


def _redirect_queries() -> None:
    import torch

    generator = torch.default_generator

    class Idle:
        """A stream, an event, a device guard: nothing happens on it, and it is done at once."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def __enter__(self) -> Idle:
            return self

        def __exit__(self, *args: object) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., Any]:
            return lambda *args, **kwargs: 0.0

    def answer(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    answers: dict[str, Callable[..., Any]] = {
        "is_available": answer(True),
        "is_initialized": answer(True),
        "is_bf16_supported": answer(True),
        "device_count": answer(1),
        "current_device": answer(0),
        "get_device_name": answer("the CPU, standing in for a GPU"),
        "get_device_capability": answer((8, 0)),
        "manual_seed": lambda seed: generator.manual_seed(seed),
        "manual_seed_all": lambda seed: generator.manual_seed(seed),
        "initial_seed": lambda: generator.initial_seed(),
        "get_rng_state": lambda device=None: generator.get_state(),
        "set_rng_state": lambda state, device=None: generator.set_state(state),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state_all": lambda states: generator.set_state(states[0]),
    }
    # Each name gets an object of its own: torch's compiler refuses one that stands under two names.
    for name in ("device", "Stream", "Event", "stream", "current_stream", "default_stream"):
        answers[name] = type(name, (Idle,), {})
    for name in ("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats"):
        answers[name] = answer(None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        answers[name] = answer(0)
    for name, function in answers.items():
        setattr(torch.cuda, name, function)
    # torch.manual_seed seeds "the GPUs" as well; on one generator that is a second seeding with the same seed.
    vars(torch.cuda)["default_generators"] = (generator,)


def _redirect_precision() -> None:
    import torch
    import torch.cuda.amp
    from torch.amp import autocast_mode, grad_scaler

    start = autocast_mode.autocast.__init__

    def cpu_autocast(self: Any, device_type: Any = "cuda", dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if _is_cuda(device_type):
            device_type, dtype = "cpu", dtype or torch.float16
        start(self, device_type, dtype, *args, **kwargs)

    scale = grad_scaler.GradScaler.__init__

    def cpu_scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        scale(self, _on_cpu(device), *args, **kwargs)

    _set(autocast_mode.autocast, "__init__", cpu_autocast)
    _set(grad_scaler.GradScaler, "__init__", cpu_scaler)
    _set(torch.cuda.amp, "autocast", functools.partial(autocast_mode.autocast, "cuda"))
    _set(torch.cuda.amp, "GradScaler", functools.partial(grad_scaler.GradScaler, "cpu"))


def _redirect_files_and_generators() -> None:
    import torch
    from torch.utils.data import DataLoader

    load, start, real_generator = torch.load, DataLoader.__init__, torch.Generator

    def cpu_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, "cpu", *args, **kwargs)

    def unpinned(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args[:7], **{**kwargs, "pin_memory": False})

    class OnCpu(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return real_generator(_on_cpu(device))

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real_generator)

    _set(torch, "load", cpu_load)
    _set(torch, "Generator", OnCpu("Generator", (), {}))
    _set(DataLoader, "__init__", unpinned)


def _redirect_parallel() -> None:
    import torch
    import torch.distributed as dist

    class DataParallel(torch.nn.Module):
        """The wrapper's names, and the whole batch on the one device."""

        def __init__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

    _set(torch.nn, "DataParallel", DataParallel)
    _set(torch.nn.parallel, "DataParallel", DataParallel)

    wrap, join = torch.nn.parallel.DistributedDataParallel.__init__, dist.init_process_group

    def unplaced(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **kwargs: Any) -> None:
        wrap(self, module, **kwargs)

    def over_gloo(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_id", None)
        join("gloo", *args, **kwargs)

    _set(torch.nn.parallel.DistributedDataParallel, "__init__", unplaced)
    _set(dist, "init_process_group", over_gloo)


def _set(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute of torch, keeping what its name, signature and documentation say."""
    original = getattr(owner, name)
    if callable(value) and not isinstance(value, (type, functools.partial)):
        value = functools.wraps(original)(value)
    setattr(owner, name, value)


if __name__ == "__main__":
    main()
