"""The model that `prepare` returns under DeepSpeed, and what its engine does at which call of a training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ... import waiting


class EngineModel(nn.Module):
    """The model, trained by a DeepSpeed engine that is made once everything it needs is prepared.

    The engine accumulates gradients over any number of backwards. Where a window ends (a step, or clipping before it)
    they are exchanged, once, and its step is taken where the script steps.

    Attributes, methods and parts of the model are seen through it; so are the engine's.

    Args:
        make: makes the engine; called where it is needed and there is none.
    """

    def __init__(self, module: nn.Module, make: Callable[[], Any]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self.__dict__["_make"] = make
        self.__dict__["engine"] = None
        self.__dict__["pending"] = False  # whether gradients came in that no step has used
        self.__dict__["_finished"] = False  # whether they were exchanged, for the step that comes
        self.__dict__["loaded"] = False  # whether weights were loaded, of which the optimizer does not know
        self.__dict__["engine_reads"] = False  # whether it is the engine that asks for a state dict
        self.__dict__["stepped"] = []  # parameters of the optimizer that ZeRO steps, with gradients or without
        self.__dict__["left_out"] = []  # those that it does not, since they were frozen when it was made
        self.__dict__["clipping"] = 0.0  # of the config, in each step in which the script clips to nothing else

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward, by the engine where there is one or gradients are wanted."""
        if self.engine is None:
            if not torch.is_grad_enabled() and not is_sharded(self.module):
                return self.module(*args, **kwargs)
            self._make()
        if self.loaded:
            self.take_up()
        try:
            return self.engine(*args, **kwargs)
        except RuntimeError as error:
            waiting.explain("the model's forward", error)  # parameters are gathered there
            raise

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        """Add the gradients of `loss` to those of the window."""
        if self.engine is None:
            self._make()
        for parameters, wanted, would in (
            (self.stepped, True, "are frozen now: it would step them all the same, by momentum and weight decay"),
            (self.left_out, False, "are not frozen any more: it would leave them as they are"),
        ):
            if any(parameter.requires_grad != wanted for parameter in parameters):
                raise RuntimeError(
                    f"backward() was called where parameters that ZeRO took up in prepare() {would}. Freeze and "
                    "unfreeze before prepare(), or save_state() and go on with a new Accelerator."
                )
        optimizer = self.engine.optimizer
        if self._finished:
            raise RuntimeError(
                "backward() was called after clip_grad_norm_(), which has closed the window: step first, or clip after "
                "the last backward"
            )
        if self.pending and hasattr(optimizer, "clear_backward_seen_flag"):
            optimizer.clear_backward_seen_flag()  # else ZeRO-3 forgets a backward without a forward of its own before
        self.__dict__["pending"] = True
        try:
            self.engine.backward(loss, retain_graph=retain_graph, scale_wrt_gas=False)
        except RuntimeError as error:
            waiting.explain("backward", error)
            raise

    def finish_window(self) -> None:
        """Exchange what is not exchanged yet, so that the norm can be told and a step be taken."""
        if self._finished:
            return
        self.__dict__["_finished"] = True
        engine = self.engine
        if engine.zero_optimization():
            forget_old_gradients(engine.optimizer)
        engine._running_engine_step = True  # what says to the engine that a window ends
        try:
            if engine.zero_optimization_partition_gradients():
                engine.optimizer.finalize_gradient_accumulation_boundary()
            else:
                engine.allreduce_gradients()
        except RuntimeError as error:
            waiting.explain("the exchange of gradients", error)
            raise
        finally:
            engine._running_engine_step = False

    def global_norm(self) -> torch.Tensor:
        """The norm of the gradients of all processes, a tensor without dimensions; the window is finished."""
        engine = self.engine
        optimizer = engine.optimizer
        if not engine.zero_optimization():
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            if hasattr(optimizer, "fp16_groups"):
                parameters = [parameter for group in optimizer.fp16_groups for parameter in group]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            return nn.utils.get_total_norm(gradients) / self.loss_scale
        if engine.zero_optimization_partition_weights():
            norms = torch.stack([torch.as_tensor(norm).float() for norm in optimizer._get_norm_groups()])
            norm: torch.Tensor = torch.linalg.vector_norm(norms)
        else:
            norm = torch.as_tensor(optimizer.scaled_global_norm())
        return norm.detach() / self.loss_scale

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by (fp16)."""
        return float(getattr(self.engine.optimizer, "loss_scale", None) or 1.0)

    def clip_to(self, max_norm: float) -> None:
        """The norm to which the next step clips; 0 does not."""
        if hasattr(self.engine.optimizer, "clip_grad"):
            self.engine.optimizer.clip_grad = max_norm
        self.engine._config.gradient_clipping = max_norm

    def step(self) -> bool:
        """Take the engine's step; returns whether it was left out because gradients were not finite."""
        engine = self.engine
        if self.loaded:
            self.take_up()
        self.finish_window()
        engine.enable_backward_allreduce = False  # it was done
        finalize = None
        if engine.zero_optimization_partition_gradients():
            finalize = engine.optimizer.finalize_gradient_accumulation_boundary
            engine.optimizer.finalize_gradient_accumulation_boundary = _nothing
        try:
            engine.step()
        except RuntimeError as error:
            waiting.explain("optimizer.step()", error)
            raise
        finally:
            engine.enable_backward_allreduce = engine.dist_backend is not None
            if finalize is not None:
                del engine.optimizer.finalize_gradient_accumulation_boundary
        self.clip_to(self.clipping)
        self.__dict__["pending"] = self.__dict__["_finished"] = False
        return not engine.was_step_applied()

    def discard(self) -> None:
        """Forget the gradients that no step has used."""
        if self.engine is None or not self.pending:
            return
        optimizer = self.engine.optimizer
        if self.engine.zero_optimization():
            optimizer.zero_grad()
            for name in ("averaged_gradients", "all_grad_tensors"):
                for index in getattr(optimizer, name, {}):
                    getattr(optimizer, name)[index] = None
            optimizer.micro_step_id = 0 if self.engine.zero_optimization_partition_weights() else -1
            for name in ("_offload_accumulated_param_ids", "_offload_boundary_param_ids"):
                getattr(optimizer, name, set()).clear()
            if hasattr(optimizer, "reset_cpu_buffers"):
                optimizer.reset_cpu_buffers()
        else:
            self.engine.zero_grad()
        self.__dict__["pending"] = self.__dict__["_finished"] = False

    def take_up(self) -> None:
        """Have the optimizer go on from the weights that were loaded into the model."""
        self.__dict__["loaded"] = False
        refresh = getattr(self.engine.optimizer, "refresh_fp32_params", None)
        if refresh is not None:
            refresh()

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load whole weights, which every process passes, with the prepared model's names or with the model's own."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name.removeprefix("module."): value for name, value in state_dict.items()}
        if self.engine is None:
            return self.module.load_state_dict(state_dict, strict, assign)
        from .wholes import WholeModel

        return WholeModel(self).load_state_dict(state_dict, strict)

    def train(self, mode: bool = True) -> EngineModel:
        """Set the mode of the model and of its engine."""
        super().train(mode)
        if self.engine is not None:
            self.engine.training = mode
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is not None and not name.startswith("_"):
                for owner in (module, self.__dict__.get("engine")):
                    if owner is not None and hasattr(owner, name):
                        return getattr(owner, name)
            raise


def _nothing() -> None:
    pass


def forget_old_gradients(optimizer: Any) -> None:
    """Clear what ZeRO would else step parameters by that had no gradients in this window: those of an earlier one."""
    offloaded = getattr(optimizer, "offload_optimizer", False) or getattr(optimizer, "cpu_offload", False)
    if offloaded:  # gradients of this window come there only now
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
            for flat in getattr(optimizer, name, ()):
                if flat.grad is not None:
                    flat.grad.zero_()
    elif hasattr(optimizer, "fp16_groups"):  # ZeRO-3
        fresh = optimizer._offload_boundary_param_ids
        kept = optimizer._DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition
        if len(fresh) < len(kept):
            for index, partition in kept.items():
                if index not in fresh:
                    partition.zero_()


def is_sharded(module: nn.Module) -> bool:
    """Whether ZeRO-3 holds the parameters."""
    return any(hasattr(parameter, "ds_id") for parameter in module.parameters())


def start_alike(module: nn.Module) -> None:
    """Give buffers the numbers of the main process; parameters get theirs from the engine."""
    if dist.get_world_size() == 1:
        return
    for buffer in module.buffers():
        if buffer.numel():
            numbers = buffer.detach().contiguous()
            dist.broadcast(numbers, 0)
            buffer.detach().copy_(numbers)
