"""Inference by a pipeline over the processes: `prepare_pippy`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .collectives import broadcast_object_list
from .facade.parallelism import build_mesh
from .plugins.parallelism import ParallelismConfig
from .plugins.pipeline import TorchPipelineParallelConfig
from .state import PartialState
from .strategies import StrategySetup
from .structures import send_to_device

if TYPE_CHECKING:
    from .strategies.pipeline.running import PipelinedForward
    from .strategies.pipeline.strategy import PipelineParallel


def prepare_pippy(
    model: nn.Module,
    split_points: str | Sequence[str] = "auto",
    no_split_module_classes: Iterable[str] | None = None,
    example_args: tuple[Any, ...] | None = (),
    example_kwargs: dict[str, Any] | None = None,
    num_chunks: int | None = None,
    gather_output: bool = False,
) -> nn.Module:
    """Cut a model into stages, one for each process, for inference. Every process calls this, and the model.

    The model's forward, in place, cuts the main process's inputs into chunks, which go through the stages; the other
    processes' inputs are not looked at. Nothing is padded, and nothing is kept for a backward.

    Args:
        split_points: "auto" balances the number of parameters; else for each process but the first the name of the
            module that begins its stage.
        no_split_module_classes: names of classes of modules inside of which the model must not be cut.
        example_args, example_kwargs: inputs such as forward will get. The model is not traced, so they are not needed;
            with them it is tried at once whether the stages can be run.
        num_chunks: into how many parts a batch is cut; by default as many as processes.
        gather_output: give every process the output; else the last one has it, and the others get None.

    Returns:
        `model`, of which this process keeps its stage, on its device. `accelerator.prepare` does not train it.

    Raises:
        ValueError: it cannot be cut so; the message says what to pass.
        RuntimeError: a stage cannot be run from what the one before it computes.
    """
    place = PartialState()._place
    if place.num_processes == 1:
        return model.to(place.device).eval()
    points = None if split_points == "auto" else [split_points] if isinstance(split_points, str) else [*split_points]
    handler = TorchPipelineParallelConfig("gpipe", num_chunks or place.num_processes, points)
    config = ParallelismConfig(
        dp_replicate_size=1,
        dp_shard_size=1,
        tp_size=1,
        cp_size=1,
        sp_size=1,
        pp_size=place.num_processes,
        pp_handler=handler,
    )
    from .strategies.pipeline.layout import lay_out
    from .strategies.pipeline.running import PipelinedForward
    from .strategies.pipeline.strategy import PipelineParallel

    strategy = PipelineParallel(StrategySetup(place, {}, parallelism=config, mesh=build_mesh(config, place)))
    cuts = lay_out(model, place.num_processes, handler.split_points, handler.at_end or ()).cuts
    _check_cuts(model, cuts, set(no_split_module_classes or ()))
    strategy.cut(model.eval())
    running = model.forward
    assert isinstance(running, PipelinedForward)
    running.tells_all = gather_output
    if example_args or example_kwargs:
        with torch.no_grad():
            running.entries_for(*_of_main_process(example_args or (), example_kwargs or {}, place.device))
    model.forward = _Inference(running, strategy, place.device)
    model.hf_split_points = list(cuts)  # type: ignore[assignment]
    return model


def _check_cuts(model: nn.Module, cuts: Iterable[str], unsplit: set[str]) -> None:
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    for cut in cuts:
        around = [name for name in kinds if cut.startswith(f"{name}.") and kinds[name] in unsplit]
        if around:
            raise ValueError(
                f"prepare_pippy(no_split_module_classes=...): {cut!r}, which begins a stage, is inside of "
                f"{around[0]!r}, a {kinds[around[0]]}: choose split_points, or start fewer processes"
            )


class _Inference:
    """Stands in for a model's forward.

    Args:
        strategy: kept, so that it lets go of process groups before they end.
    """

    def __init__(self, running: PipelinedForward, strategy: PipelineParallel, device: torch.device) -> None:
        self._running, self._strategy, self._device = running, strategy, device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _of_main_process(args, kwargs, self._device)
        with torch.no_grad():
            return self._running(*args, **kwargs)


def _of_main_process(args: Any, kwargs: Any, device: torch.device) -> tuple[Any, Any]:
    """The inputs that the main process has."""
    inputs = [send_to_device((args, kwargs), "cpu") if PartialState().is_main_process else None]
    ((args, kwargs),) = send_to_device(broadcast_object_list(inputs), device)
    return args, kwargs
