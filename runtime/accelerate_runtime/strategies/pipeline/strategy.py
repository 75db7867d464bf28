"""Pipeline parallelism as a strategy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ... import topology, waiting
from ...compilation import is_compiled_module
from ...plugins.pipeline import TorchPipelineParallelConfig
from ...same_batches import check_first_inputs
from ...versions import is_torch_version
from ..alike import check_alike
from ..base import Strategy, StrategySetup
from ..recomputing import recompute
from ..sharding import Replaced
from . import gradients as gradients_, splitting, states
from .gradients import Gradients
from .layout import lay_out
from .running import PipelinedForward, Schedule
from .shares import Share
from .stage import Stages

_TORCH = "2.13"


class PipelineParallel(Strategy):
    """A model is cut into stages along its depth; each process holds one of them (interleaved: several).

    A prepared model's forward cuts the batch into micro-batches and sends them through the stages; all processes of a
    pipeline get the output of the last one.
    """

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        config, mesh = setup.parallelism, setup.mesh
        if not is_torch_version(">=", _TORCH):
            raise RuntimeError(f"pipeline parallelism needs torch {_TORCH} or newer; this is {torch.__version__}")
        if config is None or mesh is None or not config.pp_enabled:
            raise ValueError(
                "strategy='pipeline' needs to know how many stages there are: pass "
                "Accelerator(parallelism_config=ParallelismConfig(pp_size=...))"
            )
        assert config.pp_handler is not None
        self.handler: TorchPipelineParallelConfig = config.pp_handler
        others = [kind for kind in config.active_mesh_dims if kind not in ("pp", "dp_replicate")]
        if others:
            size = getattr(config, f"{others[0]}_size")
            raise NotImplementedError(
                f"ParallelismConfig(pp_size={config.pp_size}, {others[0]}_size={size}): "
                "a pipeline goes together with dp_replicate_size only; leave the others at 1."
            )
        if setup.mixed_precision == "fp8":
            raise NotImplementedError(
                "pipeline parallelism does not go together with mixed_precision='fp8'; use 'bf16'"
            )
        if setup.mixed_precision == "fp16" and self.handler.schedule != "gpipe":
            raise NotImplementedError(
                f"TorchPipelineParallelConfig(schedule={self.handler.schedule!r}) runs backwards before the script has "
                "scaled the loss, which mixed_precision='fp16' needs: use schedule='gpipe', or 'bf16'."
            )
        self._pipeline = mesh["pp"].get_group()
        self._copies = config.joint_meshes["dp"].get_group() if config.dp_replicate_enabled else None
        self._rank, self._ranks = dist.get_rank(self._pipeline), dist.get_world_size(self._pipeline)
        self._stages_each = self.handler.stages_per_process if self.handler.schedule == "interleaved" else 1
        self._shares: weakref.WeakKeyDictionary[nn.Module, Share] = weakref.WeakKeyDictionary()
        self._gradients: weakref.WeakKeyDictionary[nn.Module, Gradients] = weakref.WeakKeyDictionary()
        self._adopted: weakref.WeakKeyDictionary[torch.optim.Optimizer, states.WholeState] = weakref.WeakKeyDictionary()
        _alive.add(self)
        topology.before_shutdown(_let_go)

    # Preparing

    def move(self, model: nn.Module) -> None:
        """Nothing yet: only this process's stages go to the device."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model` with this process's stages only, in place; its forward runs the pipeline.

        Raises:
            ValueError: it cannot be cut; the message says what to pass.
        """
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model.to(self.place.device)
        self.cut(model)
        check_first_inputs(model, self.division)
        return model

    def cut(self, model: nn.Module) -> None:
        """Leave `model` this process's stages, in place, and have its forward run the pipeline.

        Raises:
            ValueError: as `wrap`.
        """
        if is_compiled_module(model) or any(part._compiled_call_impl is not None for part in model.modules()):
            raise NotImplementedError(
                "pipeline parallelism does not go together with torch.compile: leave dynamo_backend, dynamo_plugin "
                "out, and pass prepare() the model as it was made."
            )
        check_alike("pipeline", self.setup, model)
        handler = self.handler
        stages = self._ranks * self._stages_each
        layout = lay_out(model, stages, handler.split_points, handler.at_end or ())
        told_by, same = splitting.tell(model, layout, self._ranks)
        order = [name for name, _ in model.named_parameters()]
        share = Share(
            self._rank,
            self._ranks,
            self._pipeline,
            self._copies,
            0 in dist.get_process_group_ranks(self._pipeline),
            self.place.device,
            told_by,
            same,
            order,
        )
        tied = splitting.tied_stages(model, layout)
        mine = list(range(self._rank, stages, self._ranks))
        elsewhere, covers = splitting.split(model, layout, mine, share, self.place.device)
        self._join_tied(share, tied)
        if handler.activation_checkpointing:
            modules = dict(model.named_modules())
            recompute((modules[name] for name in layout.blocks if layout.stage_of[name] in mine), offload=False)
        forward = model.forward
        running = Stages(model, forward, layout, elsewhere, covers, self.place.device)
        gradients = Gradients(share, self.setup.mixed_precision == "fp16")
        number = handler.num_microbatches or 2 * self._ranks
        sums = handler.loss_reduction == "sum"
        schedule = Schedule(handler.schedule, number, stages, sums, handler.loss_fn)
        model.forward = PipelinedForward(model, running, schedule, share, gradients, self._sharing_buffers(model))
        states.guard(model, share)
        self._shares[model], self._gradients[model] = share, gradients

    def _join_tied(self, share: Share, tied: dict[str, list[int]]) -> None:
        """Make the groups of the processes that share a parameter; all processes call it."""
        by_name = {share.own_names[id(parameter)]: parameter for parameter in share.parameters}
        pipelines = self._all_pipelines()
        groups: dict[tuple[int, ...], Any] = {}
        for name, stages in tied.items():
            members = tuple(sorted({stage % self._ranks for stage in stages}))
            if len(members) == 1:
                continue
            if members not in groups:
                made = [dist.new_group([ranks[member] for member in members]) for ranks in pipelines]
                groups[members] = made[self._pipeline_number(pipelines)]
            if name in by_name:
                share.tied.append((by_name[name], groups[members]))
                if self._rank != members[0]:
                    share.counted_elsewhere.append(by_name[name])

    def _all_pipelines(self) -> list[list[int]]:
        mesh = self.setup.mesh
        names = list(mesh.mesh_dim_names)
        order = [index for index, name in enumerate(names) if name != "pp"] + [names.index("pp")]
        found: list[list[int]] = mesh.mesh.permute(order).reshape(-1, self._ranks).tolist()
        return found

    def _pipeline_number(self, pipelines: list[list[int]]) -> int:
        return next(index for index, ranks in enumerate(pipelines) if self.place.process_index in ranks)

    def _sharing_buffers(self, model: nn.Module) -> Callable[[], None]:
        """Have buffers that training changes be those of the first copy, before the first forward after training."""
        buffers = [buffer for buffer in model.buffers() if buffer.numel()]
        if self._copies is None or not buffers:
            return lambda: None
        first = dist.get_process_group_ranks(self._copies)[0]
        changed = False

        def share() -> None:
            nonlocal changed
            if changed:
                for buffer in buffers:
                    numbers = buffer.contiguous()
                    dist.broadcast(numbers, first, group=self._copies)
                    buffer.copy_(numbers)
            changed = torch.is_grad_enabled() and model.training

        return share

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have `optimizer` train what this process has of the parameters that it was made with.

        Raises:
            ValueError: it works on all parameters at once.
        """
        if optimizer in self._adopted or not self._shares:
            return
        own = {id_ for share in self._shares.values() for id_ in share.own_names}
        listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not any(isinstance(parameter, Replaced) or id(parameter) in own for parameter in listed):
            return
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError(
                "prepare() was given LBFGS, which works on all parameters at once, of which a pipeline has a part on "
                "each process. Use another optimizer, or train without a pipeline."
            )
        self._adopted[optimizer] = states.WholeState(optimizer, list(self._shares.values()))

    def current(self, parameters: Iterable[Any]) -> list[Any]:
        """Those of the parameters that this process has."""
        return [parameter for parameter in parameters if not isinstance(parameter, Replaced)]

    # Training

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which a backward leaves gradients to the copies of this stage's own."""
        return self._exchanging(model, False)

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which backward exchanges gradients."""
        return self._exchanging(model, True)

    @contextmanager
    def _exchanging(self, model: nn.Module, whether: bool) -> Iterator[None]:
        gradients = self._gradients.get(model)
        if gradients is None:
            yield
            return
        before, gradients.exchanging = gradients.exchanging, whether
        try:
            yield
        finally:
            gradients.exchanging = before

    def total_norm(self, parameters: list[nn.Parameter], norm_type: float) -> torch.Tensor:
        """The norm over the gradients of all stages."""
        shares = list(self._shares.values())
        return waiting.together("clip_grad_norm_", gradients_.total_norm, shares, parameters, norm_type)

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip to the norm over the gradients of all stages; returns that norm before."""
        norm = self.total_norm(parameters, norm_type)
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    # Files

    def progress(self) -> Any:
        """How many forwards each model had: they decide what is drawn at random."""
        return [_forward_of(model).forwards for model in self._shares]

    def restore_progress(self, progress: Any) -> None:
        """Go back to where `progress` was taken."""
        for model, number in zip(self._shares, progress, strict=False):
            _forward_of(model).forwards = number

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The whole state dict, on the CPU of the main process; elsewhere an empty one."""
        share = self._shares.get(model)
        if share is None:
            return model.state_dict()
        return waiting.for_whole("get_state_dict", states.whole_state, model, share)

    def reading(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which `model.state_dict()` gives this process's part."""
        share = self._shares.get(model)
        return super().reading(model) if share is None else states.reading(share)

    def part_of_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """The part of an optimizer's whole state that is for this process's parameters."""
        whole = self._adopted.get(optimizer)
        return state if whole is None else whole.part_of(state)

    def let_go(self) -> None:
        """Let go of process groups, before they end."""
        for share in self._shares.values():
            share.pipeline = share.copies = None
            share.tied.clear()
        self._pipeline = self._copies = None


def _forward_of(model: nn.Module) -> PipelinedForward:
    forward = model.forward
    assert isinstance(forward, PipelinedForward)
    return forward


_alive: weakref.WeakSet[PipelineParallel] = weakref.WeakSet()


def _let_go() -> None:
    for strategy in list(_alive):
        strategy.let_go()
