"""What a strategy is: the protocol that every way of spreading training follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from .. import division
from ..accumulation import GradientState
from ..division import Division
from ..optimizer import AcceleratedOptimizer
from ..plugins import GradientAccumulationPlugin, KwargsHandler
from ..precision import SharedScaler
from ..scheduler import AcceleratedScheduler
from ..topology import DistributedType, Topology

if TYPE_CHECKING:
    from ..plugins.parallelism import ParallelismConfig


@dataclass(frozen=True)
class StrategySetup:
    """What an Accelerator makes its strategy of.

    Attributes:
        place: this process's place.
        handlers: the `kwargs_handlers`, by class.
        mixed_precision: "no", "fp16", "bf16" or "fp8".
        plugin: the configuration object that asked for the strategy, if it has one.
        parallelism: the sizes of the device mesh, if the script or the launcher named any.
        mesh: the device mesh of these.
    """

    place: Topology
    handlers: dict[type[KwargsHandler], KwargsHandler]
    mixed_precision: str = "no"
    plugin: Any = None
    parallelism: ParallelismConfig | None = None
    mesh: Any = None


class Strategy(ABC):
    """A thin adapter over an engine that spreads training.

    An Accelerator makes one, and calls it where a script prepares, runs backward, clips and saves. The methods that are
    not abstract do what is right where every process has the whole model.
    """

    distributed_type: ClassVar[DistributedType | None] = None
    """What `accelerator.distributed_type` says; None is that of the processes (MULTI_GPU and its kind)."""

    exchanges: ClassVar[bool] = True
    """Whether there is anything for `no_sync` to leave out."""

    sharded_states: bool = False
    """Whether `save_state` writes models and optimizers in shards, each process its own."""

    scales_losses: ClassVar[bool] = False
    """Whether the engine scales losses of fp16 itself."""

    withheld_advice: str = "or exchange them with each micro-batch: GradientAccumulationPlugin(sync_each_batch=True)"
    """What else than waiting may be done where `withheld` says yes."""

    run_backward: Callable[..., None] | None = None
    """`run_backward(loss, *args, **kwargs)` where the engine computes gradients itself; None is `loss.backward`."""

    deliver: Callable[[Any, torch.device, bool], Any] | None = None
    """`deliver(batch, device, non_blocking)` where bringing its tensors to the device is not enough."""

    def __init__(self, setup: StrategySetup) -> None:
        self.setup = setup
        self.place = setup.place
        self.division = self.divide()

    # Preparing

    def divide(self) -> Division:
        """Which process gets which part of the data; asked once, before anything is prepared.

        By default those that the mesh has work on one model together get the same part.
        """
        return division.of_mesh(self.setup.parallelism, self.setup.mesh, self.place)

    @property
    def data_place(self) -> Topology:
        """Which part of the data this process gets: its index among those with different batches, and their number."""
        return self.division.place

    def move(self, model: nn.Module) -> None:
        """Bring `model` to this process's device, in place."""
        model.to(self.place.device)

    @abstractmethod
    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model`, which is on its device, ready to train (or, with `evaluation`, only to be evaluated)."""

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The model that `wrap` was given."""
        return model

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027  (most have nothing to do)
        """Have `optimizer` train the parameters that `wrap` made of those it was given.

        Called when it is prepared, and again whenever a model is prepared after it.
        """

    def current(self, parameters: Iterable[Any]) -> list[Any]:
        """The parameters that are trained in place of those, which a script may have listed before it prepared."""
        return list(parameters)

    def wrap_optimizer(
        self, optimizer: torch.optim.Optimizer, gradient_state: GradientState, scaler: SharedScaler | None
    ) -> AcceleratedOptimizer:
        """What `prepare` returns for `optimizer`, which was adopted."""
        return AcceleratedOptimizer(optimizer, gradient_state, scaler, self.current)

    def wrap_scheduler(
        self, scheduler: Any, optimizers: list[AcceleratedOptimizer], gradient_state: GradientState, **how: Any
    ) -> AcceleratedScheduler:
        """What `prepare` returns for `scheduler`; `how` are further arguments of AcceleratedScheduler."""
        return AcceleratedScheduler(scheduler, optimizers, gradient_state, **how)

    def see_loader(self, loader: Any) -> None:  # noqa: B027
        """A loader was prepared."""

    def settle_accumulation(self, plugin: GradientAccumulationPlugin) -> GradientAccumulationPlugin:
        """How gradients are accumulated, where the engine's configuration has a say in it."""
        return plugin

    def complete(self) -> None:  # noqa: B027
        """A call of `prepare` has ended: what waited for others can be made."""

    def forget(self) -> None:  # noqa: B027
        """Let go of what was prepared."""

    # Training

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """A context in which a backward leaves gradients in this process."""
        return nullcontext()

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which backward exchanges the gradients of `model`, though its forward ran under `no_sync`."""
        return nullcontext()

    def withheld(self, model: nn.Module) -> bool:
        """Whether the engine keeps gradients of `model` (under `no_sync`) that `parameter.grad` does not show."""
        return False

    def total_norm(self, parameters: list[nn.Parameter], norm_type: float) -> torch.Tensor:
        """The global norm of the parameters' gradients, a tensor without dimensions."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return nn.utils.get_total_norm(gradients, norm_type)

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip gradients to a global norm; returns the norm before, a tensor without dimensions."""
        return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def clip_grad_value(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        """Clip each gradient to [-clip_value, clip_value]."""
        nn.utils.clip_grad_value_(parameters, clip_value)

    # Files

    def settle(self, model: nn.Module) -> None:  # noqa: B027
        """Have the parameters of an (unwrapped) model be those that optimizers train, where a forward left others."""

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The whole state dict of an (unwrapped) model, on the main process at least; all processes call this."""
        return model.state_dict()

    def saved_weights(self, model: nn.Module) -> dict[str, Any]:
        """As `state_dict`, for a training state: the numbers to go on from."""
        return self.state_dict(model)

    def to_load(self, model: nn.Module) -> nn.Module:
        """What the weights of an (unwrapped) model are loaded into: by default it."""
        return model

    def progress(self) -> Any:
        """What of this process's own a state must hold so that training goes on alike; plain values."""
        return None

    def restore_progress(self, progress: Any) -> None:  # noqa: B027  (most have nothing to do)
        """Go back to where `progress` was taken, by the same strategy."""

    def reading(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which the (unwrapped) model's state dict is that of what this process has, to be read into."""
        return nullcontext()

    def part_of_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """What of an optimizer's whole state dict is for the parameters that this process has."""
        return state
