"""The facade that a training script sees. It reads its arguments, keeps what it prepared, and delegates."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import arguments, division, strategies, topology
from .accumulation import GradientState
from .checkpointing.hooks import Hooks
from .compilation import compile_model
from .environment import parse_flag_from_env
from .facade.gathering import Gathering
from .facade.parallelism import Parallelism, build_mesh
from .facade.profiling import Profiling
from .facade.saving import Saving
from .facade.tracking import Tracking
from .facade.training import Training
from .models import has_device_map
from .optimizer import AcceleratedOptimizer, move_state
from .plugins import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DynamoBackend,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
)
from .precision import Precision
from .precision.scaling import parameters_of
from .preparation import LOADER, MODEL, OPTIMIZER, ORDER, SCHEDULER, Prepared, kind_of
from .scheduler import AcceleratedScheduler
from .state import AcceleratorState
from .strategies import StrategySetup

if TYPE_CHECKING:
    from .data import DataLoaderShard
    from .plugins.parallelism import ParallelismConfig


class Accelerator(Training, Gathering, Saving, Tracking, Profiling, Parallelism):
    """Trains on whatever the launcher started: `prepare` the objects, and call `backward` instead of `loss.backward`.

    Args:
        device_placement: move models and batches to `accelerator.device`.
        split_batches: see DataLoaderConfiguration.
        mixed_precision: "no", "fp16", "bf16" or "fp8"; None reads ACCELERATE_MIXED_PRECISION.
        gradient_accumulation_steps: micro-batches per optimizer step, for `accumulate()`. The environment variable
            ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins over it.
        cpu: stay on the CPU; so does ACCELERATE_USE_CPU=true.
        dataloader_config, gradient_accumulation_plugin, project_config: see these classes.
        rng_types: random states shared between processes at the start of each epoch.
        log_with: experiment trackers: a name ("tensorboard", "wandb", "mlflow", "comet_ml", "aim", "clearml",
            "dvclive", "swanlab", "trackio", "jsonl"), a LoggerType, a GeneralTracker or a class of such, or a list of
            these; "all" is each whose client library is installed.
        project_dir: the project's folder.
        step_scheduler_with_optimizer: prepared schedulers step with their optimizer; see AcceleratedScheduler.
        kwargs_handlers: at most one object of each of AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs,
            InitProcessGroupKwargs and ProfileKwargs, and one recipe of fp8 (AORecipeKwargs or TERecipeKwargs).
        dynamo_backend, dynamo_plugin: have prepared models compiled by `torch.compile`; see TorchDynamoPlugin. Pass
            one of the two; without either, the environment says.
        megatron_lm_plugin: another way of asking for tensor and pipeline parallelism; see MegatronLMPlugin.
        parallelism_config: how the processes are spread; see ParallelismConfig.
        torch_tp_plugin: deprecated: `ParallelismConfig(tp_size=...)` says the same.
        even_batches: see DataLoaderConfiguration.
        deepspeed_plugin, deepspeed_plugins: see DeepSpeedPlugin; several by name, of which the first is in use until
            `accelerator.state.select_deepspeed_plugin(name)`.
        strategy: how training is spread: "ddp", "fsdp", "deepspeed", or the name of a strategy of somebody's own (see
            `register_strategy`). None reads ACCELERATE_STRATEGY, else it follows from the plugins, the launcher and the
            number of processes. This argument is ours; Accelerate does not have it.

    Raises:
        NotImplementedError: one of the other arguments, which this version does not support, is set.
        TypeError, ValueError: an argument is not what it can be; the message says what can.
        ImportError: a tracker's client library is not installed.
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        rng_types: Iterable[str] | None = None,
        log_with: Any = None,
        project_dir: str | os.PathLike[str] | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Iterable[Any] | None = None,
        dynamo_backend: DynamoBackend | str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugins: Any = None,
        parallelism_config: ParallelismConfig | None = None,
        *,
        even_batches: bool | None = None,
        strategy: str | None = None,
    ) -> None:
        megatron = arguments.read_megatron(megatron_lm_plugin, parallelism_config)
        plugins = arguments.read_plugins({"fsdp_plugin": fsdp_plugin})
        engines = arguments.read_deepspeed(deepspeed_plugin, deepspeed_plugins, strategy, plugins)
        plugins["deepspeed"] = next(iter(engines.values()), None)
        mode = arguments.read_mixed_precision(mixed_precision, plugins["deepspeed"])
        handlers = arguments.read_handlers(kwargs_handlers)
        dynamo = arguments.read_dynamo(dynamo_backend, dynamo_plugin)
        if megatron is not None:
            parallelism_config = megatron.parallelism(topology.world_size())
        parallelism = arguments.read_parallelism(parallelism_config, torch_tp_plugin)
        accumulation = arguments.read_accumulation(gradient_accumulation_steps, gradient_accumulation_plugin)
        self.dataloader_config = arguments.read_loader_config(
            dataloader_config, split_batches=split_batches, even_batches=even_batches
        )
        self.project_configuration = arguments.read_project(project_dir, project_config)
        self._trackers = arguments.read_trackers(log_with, self.logging_dir)
        self.rng_types = arguments.read_rng_types(rng_types)
        self.device_placement = device_placement
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer

        self._place = topology.connect(cpu, arguments.handler_of(handlers, InitProcessGroupKwargs))
        self._precision = Precision(
            mode,
            self._place.device,
            arguments.handler_of(handlers, AutocastKwargs),
            arguments.handler_of(handlers, GradScalerKwargs),
            arguments.read_fp8_recipe(mode, handlers),
        )
        asked = strategies.asked_for_by(strategy, self._place.device)
        name, plugin = strategies.choose(asked, plugins, parallelism, self.num_processes)
        first = not AcceleratorState._shared_state  # later ones may be made by some of the processes
        if self.num_processes > 1 and (first or parallelism is not None):
            from .strategies.alike import check_settings

            check_settings(name, mode, plugin, parallelism, accumulation, self.dataloader_config)
        mesh = build_mesh(parallelism, self._place)
        self._strategy = strategies.find(name)(StrategySetup(self._place, handlers, mode, plugin, parallelism, mesh))
        division.divide(self._strategy.division)
        self._clip_to = 0.0 if megatron is None else megatron.gradient_clipping
        self._prepared = Prepared()
        self._saver = None
        self._registered: list[Any] = []
        self._save_hooks, self._load_hooks = Hooks(), Hooks()
        self._handlers = handlers
        if self._strategy.scales_losses:
            self._precision.scaler = None
        self.gradient_state = GradientState(self._strategy.settle_accumulation(accumulation))
        self.state = AcceleratorState.of_accelerator(
            self._place,
            mixed_precision=mode,
            dynamo_plugin=dynamo,
            parallelism_config=parallelism,
            device_mesh=mesh,
            fsdp_plugin=getattr(self._strategy, "plugin", None) if name in ("fsdp", "tensor") else None,
            deepspeed_plugins=engines if name == "deepspeed" else None,
            megatron_lm_plugin=megatron,
            strategy=self._strategy,
        )

    # Preparing

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Make models, optimizers, loaders and schedulers ready, in any order, in one call or several.

        Args:
            device_placement: for each of `args`, whether to move it to the device (by default as the constructor says).

        Returns:
            The prepared objects in the order given; one alone is returned bare. A thing prepared before gives the same
            prepared object again. None stays None (a scheduler that a script may do without).

        Raises:
            TypeError: something cannot be prepared; the message says what it is and what to do.
        """
        if device_placement is not None and len(device_placement) != len(args):
            raise ValueError(f"device_placement has {len(device_placement)} items for {len(args)} objects to prepare")
        kinds = [
            None if thing is None else kind_of(thing, f"argument {number} of prepare()")
            for number, thing in enumerate(args, 1)
        ]
        if not args:
            raise TypeError("prepare() was called without anything to prepare")
        results: list[Any] = [None] * len(args)
        for kind in ORDER:
            for index, thing in enumerate(args):
                if kinds[index] == kind:
                    moved = None if device_placement is None else device_placement[index]
                    results[index] = self._prepare_as(kind, thing, moved)
        self._strategy.complete()
        return results[0] if len(results) == 1 else tuple(results)

    def _prepare_as(self, kind: str, thing: Any, moved: bool | None) -> Any:
        if kind == MODEL:
            return self.prepare_model(thing, moved)
        if kind == OPTIMIZER:
            return self.prepare_optimizer(thing, moved)
        if kind == LOADER:
            return self.prepare_data_loader(thing, moved)
        return self.prepare_scheduler(thing)

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        """A model on its device, under autocast if precision is mixed, compiled if asked for, wrapped by the strategy.

        Args:
            evaluation_mode: it will not be trained, so it is not wrapped.
        """
        self._expect(MODEL, model, "prepare_model()")
        known: nn.Module | None = self._prepared.find(model)
        if known is not None:
            return known
        dynamo = self.state.dynamo_plugin
        mapped = has_device_map(model)
        if mapped and self.use_distributed and not parse_flag_from_env("ACCELERATE_BYPASS_DEVICE_MAP"):
            raise ValueError(
                "prepare_model() was given a model that its library has spread over several devices (device_map), "
                "which several processes cannot train: load it without device_map, or start one process."
            )
        if not mapped and self._moves(device_placement):
            self._strategy.move(model)
        model = self._precision.apply(model)
        compile_model(model, dynamo)
        wrapped = self._strategy.wrap(model, evaluation_mode)
        for optimizer in self._prepared.optimizers:
            self._strategy.adopt(optimizer.optimizer)
            move_state(optimizer.optimizer)
        self._prepared.remember(model, wrapped, self._prepared.models)
        return wrapped

    def prepare_optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """An optimizer that respects accumulation and loss scaling."""
        self._expect(OPTIMIZER, optimizer, "prepare_optimizer()")
        known: AcceleratedOptimizer | None = self._prepared.find(optimizer)
        if known is not None:
            return known
        self._strategy.adopt(optimizer)
        if self._moves(device_placement):
            move_state(optimizer)
        if self._clip_to:
            optimizer.register_step_pre_hook(self._clip_before_step)
        prepared = self._strategy.wrap_optimizer(optimizer, self.gradient_state, self.scaler)
        self._prepared.remember(optimizer, prepared, self._prepared.optimizers)
        return prepared

    def _clip_before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """MegatronLMPlugin(gradient_clipping=...)."""
        self._strategy.clip_grad_norm(list(parameters_of(optimizer)), self._clip_to, 2.0)  # type: ignore[arg-type]

    def prepare_data_loader(
        self, data_loader: Any, device_placement: bool | None = None, slice_fn_for_dispatch: Any = None
    ) -> DataLoaderShard:
        """A loader that gives this process its part of each epoch, on its device.

        Args:
            slice_fn_for_dispatch: with `dispatch_batches=True`, cuts a process's part out of a batch of all processes:
                called on the main process as `f(batch, slice(start, stop), process_index=i, num_processes=n)`.
        """
        if slice_fn_for_dispatch is not None and not self.dispatch_batches:
            raise ValueError(
                "prepare_data_loader(slice_fn_for_dispatch=...) is used only where batches are dispatched: pass "
                "Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True)), or leave it out."
            )
        from .data import DataLoaderShard, prepare_loader

        self._expect(LOADER, data_loader, "prepare_data_loader()")
        if isinstance(data_loader, DataLoaderShard):
            return data_loader
        known: DataLoaderShard | None = self._prepared.find(data_loader)
        if known is not None:
            return known
        prepared = prepare_loader(
            data_loader,
            self._strategy.division,
            self.gradient_state,
            self.dataloader_config,
            move=self._moves(device_placement),
            rng_types=self.rng_types,
            slice_fn=slice_fn_for_dispatch,
            deliver=self._strategy.deliver,
        )
        self._prepared.remember(data_loader, prepared, self._prepared.loaders)
        self._strategy.see_loader(prepared)
        return prepared

    def prepare_scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """A scheduler that steps when its optimizer did; see AcceleratedScheduler."""
        self._expect(SCHEDULER, scheduler, "prepare_scheduler()")
        known: AcceleratedScheduler | None = self._prepared.find(scheduler)
        if known is not None:
            return known
        prepared = self._strategy.wrap_scheduler(
            scheduler,
            self._prepared.optimizers,
            self.gradient_state,
            repeats=1 if self.split_batches else self._strategy.data_place.num_processes,
            step_with_optimizer=self.step_scheduler_with_optimizer,
        )
        self._prepared.remember(scheduler, prepared, self._prepared.schedulers)
        return prepared

    def _moves(self, asked: bool | None) -> bool:
        return self.device_placement if asked is None else asked

    @staticmethod
    def _expect(kind: str, thing: Any, place: str) -> None:
        found = kind_of(thing, f"the argument of {place}")
        if found != kind:
            raise TypeError(
                f"{place} was given {'an' if found == OPTIMIZER else 'a'} {found}; prepare() takes each kind."
            )

    def free_memory(self, *objects: Any) -> list[None]:
        """Forget everything prepared, release cached memory; returns None for each of `objects`, to assign to them."""
        self._prepared.clear()
        self._strategy.forget()
        self.gradient_state.passes.clear()
        self.gradient_state.step = 0
        from .memory import release_memory

        return release_memory(*objects)

    clear = free_memory

    def end_training(self) -> None:
        """Finish a background save and the trackers, then leave the process group. Call it last; the interpreter's exit
        does the same."""
        with ExitStack() as stack:
            stack.callback(topology.shutdown)
            stack.callback(self._finish_trackers)
            self._finish_saving()

    def __repr__(self) -> str:
        what = f"num_processes={self.num_processes}, mixed_precision={self.mixed_precision!r}"
        return f"Accelerator(device={self.device}, {what})"
