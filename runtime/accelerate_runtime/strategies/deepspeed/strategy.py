"""Data parallelism by DeepSpeed: ZeRO shards optimizer states, gradients and parameters over the processes.

Source: the design of https://www.deepspeed.ai/docs/config-json/
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ... import topology, waiting
from ...accumulation import GradientState
from ...checkpointing.layout import CheckpointError
from ...optimizer import AcceleratedOptimizer
from ...plugins import GradientAccumulationPlugin
from ...plugins.deepspeed import DeepSpeedPlugin
from ...precision import SharedScaler
from ...scheduler import AcceleratedScheduler
from ...topology import DistributedType
from ..alike import check_alike
from ..base import Strategy, StrategySetup
from ..buffers import share_buffers
from ..sharding import NEED_WHOLE_TENSORS
from . import making
from .dummies import DummyOptim, DummyScheduler
from .engine import EngineModel, start_alike
from .filling import Prepared, filled
from .guards import guard
from .optimizer import EngineOptimizer, EngineScheduler, groups_of
from .states import WholeOptimizer
from .wholes import WholeModel, gathered_weights, refuse_disks


class DeepSpeed(Strategy):
    """One model, its optimizer and an engine around them, which is made once both and a batch size are known."""

    distributed_type = DistributedType.DEEPSPEED
    exchanges = False
    scales_losses = True

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self.plugin: DeepSpeedPlugin = setup.plugin or DeepSpeedPlugin()
        if setup.mixed_precision == "fp16" and self.place.device.type == "cpu":
            raise ValueError("mixed_precision='fp16': DeepSpeed has no fp16 on the CPU; use 'bf16' or 'no'")
        if setup.mixed_precision == "fp8":
            raise ValueError("mixed_precision='fp8' is not supported under DeepSpeed; use 'bf16' or 'no'")
        self.deepspeed = making.require_deepspeed(self.place)
        making.join_group(self.place)
        topology.before_shutdown(making.let_go)
        self._models: list[weakref.ref[EngineModel]] = []
        self._model: EngineModel | None = None
        """The one that is trained: whose optimizer was prepared."""
        self._optimizer: torch.optim.Optimizer | None = None
        self._prepared_optimizer: EngineOptimizer | None = None
        self._groups: list[list[nn.Parameter]] = []
        self._scheduler: tuple[DummyScheduler, EngineScheduler] | None = None
        self._batch_sizes: list[int] = []
        self._let_go: Callable[[], Any] = lambda: None
        self._steps: GradientAccumulationPlugin | None = None
        self._split = False

    # Preparing

    def move(self, model: nn.Module) -> None:
        """Nothing yet: the engine does, or has each part elsewhere."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model` in an EngineModel, or, to be evaluated only, on the device."""
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model.to(self.place.device)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 0:
                raise ValueError(
                    f"prepare() was given a model whose parameter {name} has no dimensions, which DeepSpeed cannot "
                    "send: give it one, as in nn.Parameter(torch.ones(1))"
                )
        check_alike("deepspeed", self.setup, model)
        self.plugin.set_moe_leaf_modules(model)
        made = EngineModel(model, self._make)
        self._models.append(weakref.ref(made))
        if self._optimizer is not None and self._model is None:
            self._find_model()
        return made

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, EngineModel) else model

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have the engine step `optimizer`.

        Raises:
            ValueError: there is one already, or it cannot work on parts of parameters.
        """
        if self.plugin.zero_stage and type(optimizer).__name__ in NEED_WHOLE_TENSORS:
            raise ValueError(
                f"prepare() was given {type(optimizer).__name__}, which works on whole parameters, of which ZeRO has a "
                "part on each process. Use another optimizer, or zero_stage=0."
            )
        if self._optimizer is None:
            self._optimizer = optimizer
            self._groups = [list(group["params"]) for group in optimizer.param_groups]
        elif optimizer not in (self._optimizer, getattr(self._prepared_optimizer, "optimizer", None)):
            raise ValueError(
                "prepare() was given a second optimizer: DeepSpeed trains one model with one optimizer for each "
                "Accelerator. Create another Accelerator for the other, or train without DeepSpeed."
            )
        if self._model is None:
            self._find_model()

    def _find_model(self) -> None:
        wanted = {id(parameter) for group in self._groups for parameter in group}
        alive = [model for model in (reference() for reference in self._models) if model is not None]
        owners = [model for model in alive if any(id(parameter) in wanted for parameter in model.parameters())]
        if len(owners) > 1:
            raise ValueError(
                "prepare() was given an optimizer that steps parameters of several models: DeepSpeed trains one for "
                "each Accelerator. Put them into one nn.Module, or train without DeepSpeed."
            )
        self._model = owners[0] if owners else None

    def wrap_optimizer(
        self, optimizer: torch.optim.Optimizer, gradient_state: GradientState, scaler: SharedScaler | None
    ) -> AcceleratedOptimizer:
        """An optimizer that steps the engine."""
        self._prepared_optimizer = EngineOptimizer(optimizer, gradient_state, lambda: self._model, self._whole)
        return self._prepared_optimizer

    def wrap_scheduler(
        self, scheduler: Any, optimizers: list[AcceleratedOptimizer], gradient_state: GradientState, **how: Any
    ) -> AcceleratedScheduler:
        """The script's scheduler as ever; for a DummyScheduler, that of the engine."""
        if not isinstance(scheduler, DummyScheduler):
            return super().wrap_scheduler(scheduler, optimizers, gradient_state, **how)
        if self._model is not None and self._model.engine is not None:
            raise ValueError("prepare() was given a DummyScheduler too late: prepare it together with the optimizer")
        prepared = EngineScheduler(scheduler, optimizers, gradient_state, **how)
        self._scheduler, self._split = (scheduler, prepared), how.get("repeats", 1) == 1
        return prepared

    def see_loader(self, loader: Any) -> None:
        """Note the size of its batches."""
        size = getattr(loader, "batch_size", None)
        if size is None:
            size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        if isinstance(size, int):
            self._batch_sizes.append(size)

    def settle_accumulation(self, plugin: GradientAccumulationPlugin) -> GradientAccumulationPlugin:
        """The windows that DeepSpeed's config asks for, where the script leaves them to it."""
        steps = self.plugin.gradient_accumulation_steps
        if steps is not None and plugin.num_steps != steps:
            if plugin.num_steps != 1 or "gradient_accumulation_steps" not in self.plugin.origins:
                origin = self.plugin.origins.get("gradient_accumulation_steps", "DeepSpeedPlugin")
                raise ValueError(
                    f"{origin} says gradient_accumulation_steps: {steps}, but the Accelerator has "
                    f"gradient_accumulation_steps={plugin.num_steps}: make them alike, or say it in one place"
                )
            plugin.num_steps = steps
        self._steps = plugin
        return plugin

    def complete(self) -> None:
        """Make the engine, if all it needs is there."""
        known = self._batch_sizes or isinstance(self.plugin.get_value("train_micro_batch_size_per_gpu"), int)
        if self._model is not None and self._model.engine is None and known:
            self._make()

    def forget(self) -> None:
        """Let go of all that was prepared, and of the engine's buffers."""
        self._let_go()
        self._model = self._optimizer = self._prepared_optimizer = self._scheduler = None
        self._models.clear()
        self._batch_sizes.clear()

    # The engine

    def _make(self) -> None:
        model, optimizer = self._model, self._optimizer
        if model is None or optimizer is None:
            raise RuntimeError(
                "DeepSpeed trains a model together with its optimizer, which was not prepared: pass both to "
                "prepare(). (A model that is not trained runs under torch.no_grad().)"
            )
        dummy = None if self._scheduler is None else self._scheduler[0]
        config = filled(
            self.plugin,
            Prepared(
                model.module,
                optimizer,
                dummy,
                self._batch_sizes,
                self._steps.num_steps if self._steps is not None else 1,
                self.setup.mixed_precision,
                self.place.num_processes,
                self.place.device.type == "cpu",
                self._split,
            ),
        )
        making.wait_for_builds(making.operations_of(config))
        arguments: dict[str, Any] = {"optimizer": optimizer}
        if isinstance(optimizer, DummyOptim):
            arguments = {"model_parameters": groups_of(optimizer)}
        if dummy is not None and dummy.lr_scheduler_callable is not None:
            arguments["lr_scheduler"] = dummy.lr_scheduler_callable
        start_alike(model.module)
        with making.without_a_step():
            engine, *_ = self.deepspeed.initialize(
                model=model.module, config=config, dist_init_required=False, **arguments
            )
        model.__dict__.update(engine=engine, _make=None)  # which would keep this strategy, and so the model
        self._let_go = making.keep_while(model, engine)
        making.engines.add(engine)
        model.__dict__["clipping"] = float(config["gradient_clipping"])
        if engine.zero_optimization():
            parameters = [parameter for group in self._groups for parameter in group]
            model.__dict__["stepped"] = [parameter for parameter in parameters if parameter.requires_grad]
            model.__dict__["left_out"] = [parameter for parameter in parameters if not parameter.requires_grad]
        engine.training = model.training
        guard(model)
        share_buffers(model.module, self.setup)
        if isinstance(optimizer, DummyOptim) and self._prepared_optimizer is not None:
            self._prepared_optimizer.optimizer = engine.basic_optimizer
            optimizer.param_groups = engine.basic_optimizer.param_groups  # for schedulers that were made with it
        if self._scheduler is not None:
            self._scheduler[1].scheduler = engine.lr_scheduler

    def _made(self, module: nn.Module) -> EngineModel | None:
        """The prepared model of `module`, if it has an engine."""
        model = self._model
        return model if model is not None and model.module is module and model.engine is not None else None

    # Training

    def run_backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        """Backward by the engine.

        Raises:
            NotImplementedError: arguments other than `retain_graph`, or that under ZeRO-3.
        """
        retain = kwargs.pop("retain_graph", None) or False
        if any(argument is not None for argument in args) or any(value is not None for value in kwargs.values()):
            raise NotImplementedError("backward() under DeepSpeed takes a loss of one number, and retain_graph alone")
        if retain and self.plugin.zero_stage == 3:
            raise NotImplementedError(
                "backward(retain_graph=True) under ZeRO-3, which lets go of parameters in backward: add the losses up "
                "and call backward() once"
            )
        if self._model is None:
            raise RuntimeError(
                "backward() was called, but no optimizer is prepared: DeepSpeed trains a model together with it; pass "
                "both to prepare()"
            )
        self._model.backward(loss, retain)

    def withheld(self, model: nn.Module) -> bool:
        """Whether a window is open: its gradients are the engine's."""
        made = self._made(model)
        return made is not None and made.pending

    withheld_advice = ""

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Have the next step clip to the norm over the gradients of all processes; returns that norm before.

        Raises:
            ValueError: another norm, other parameters than the engine's, or another number than the config's.
        """
        model = self._engine_for("clip_grad_norm_")
        if float(norm_type) != 2:
            raise ValueError(f"clip_grad_norm_(norm_type={norm_type}): DeepSpeed's engine clips by the norm 2")
        stepped = {id(parameter) for group in self._groups for parameter in group if parameter.requires_grad}
        if not stepped <= {id(parameter) for parameter in parameters}:
            raise ValueError(
                "clip_grad_norm_() was given some of the parameters: DeepSpeed's engine clips all that its optimizer "
                "steps; pass model.parameters()"
            )
        said = model.clipping
        if said and said != float(max_norm):
            origin = self.plugin.origins.get("gradient_clipping", "DeepSpeedPlugin")
            raise ValueError(
                f"{origin} says gradient_clipping: {said}, but clip_grad_norm_() was given {float(max_norm)}: make "
                "them "
                'alike, or have the config say "auto"'
            )
        if not model.pending:
            return torch.zeros((), device=self.place.device)
        model.finish_window()
        model.clip_to(float(max_norm))
        return model.global_norm()

    def clip_grad_value(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        """Refused."""
        raise NotImplementedError(
            "clip_grad_value_(): DeepSpeed's engine clips by the norm of all gradients; use clip_grad_norm_()"
        )

    def total_norm(self, parameters: list[nn.Parameter], norm_type: float) -> torch.Tensor:
        """Not known inside a window, whose gradients are not exchanged yet: nan."""
        return torch.full((), float("nan"), device=self.place.device)

    def _engine_for(self, what: str) -> EngineModel:
        if self._model is None:
            raise RuntimeError(f"{what}() was called, but no model is prepared together with its optimizer")
        if self._model.engine is None:
            self._make()
        return self._model

    # Files

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The whole state dict, as forward uses it, on the CPU of the main process; elsewhere an empty one.

        Without ZeRO-3 every process has the weights whole: it is the model's own, everywhere.
        """
        made = self._made(model)
        if made is None or not made.engine.zero_optimization_partition_weights():
            return model.state_dict()
        return waiting.for_whole("get_state_dict", gathered_weights, made, self.place.is_main_process)

    def saved_weights(self, model: nn.Module) -> dict[str, Any]:
        """The numbers that the optimizer works on."""
        made = self._made(model)
        if made is None:
            return model.state_dict()
        refuse_disks(made)
        return gathered_weights(made, self.place.is_main_process, full_precision=True)

    def to_load(self, model: nn.Module) -> nn.Module:
        """What spreads the weights that are loaded."""
        made = self._made(model)
        return model if made is None else WholeModel(made)

    def _whole(self) -> WholeOptimizer:
        model = self._engine_for("state_dict")
        if self._prepared_optimizer is None:
            raise CheckpointError("no optimizer is prepared")
        optimizer = self._prepared_optimizer.optimizer
        return WholeOptimizer(model, optimizer, self._groups, self.place.is_main_process)
