"""Backward, accumulation, clipping and precision: what stands in a training loop."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from .. import items, waiting
from ..accumulation import MicroBatch
from ..plugins import AutocastKwargs
from ..precision.scaling import parameters_of
from ..state import AcceleratorState
from .settings import Settings


class Training(Settings):
    """The part of an Accelerator that a training loop calls."""

    def backward(self, loss: torch.Tensor, *args: Any, num_items: items.Number | None = None, **kwargs: Any) -> None:
        """`loss.backward(*args, **kwargs)`, with the loss divided by the accumulation steps and scaled for fp16.

        The mean of micro-batches' mean losses is not the mean over their items where these differ in number (tokens of
        texts, the last batch of an epoch). So that it is, pass the sum of the losses and the number of items instead:

            loss = cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
            accelerator.backward(loss, num_items=(labels != -100).sum())

        Then nothing is divided here. Where the optimizer steps (or the gradients are clipped or unscaled before), they
        are divided by the number of items in all micro-batches since they were cleared, on all processes: each step has
        the gradients of sum of losses / sum of items. `num_items` is ours; Accelerate does not have it.

        Args:
            num_items: how many items (tokens, samples) `loss` is the sum over, on this process: a number, or a tensor
                of one element, which is not waited for.

        Raises:
            ValueError: of the calls before one optimizer step, some name `num_items` and some don't.
        """
        state, scaler = self.gradient_state, self._precision.scaler
        state.backwards += 1
        if num_items is None:
            if state.plugin.num_steps > 1:
                loss = loss / state.plugin.num_steps
            counting: AbstractContextManager[None] | None = None
        else:
            state.counted += 1
            counting = items.counting(items.check_number(num_items), self._prepared.optimizers)
        if scaler is not None:
            loss = scaler.scale(loss)
        if self._strategy.run_backward is not None:
            if num_items is not None:
                raise NotImplementedError(
                    "backward(num_items=...) needs the gradients before the engine has them; pass a mean loss instead"
                )
            self._strategy.run_backward(loss, *args, **kwargs)
            return
        try:  # all in one frame: a call more can be seen in the time of a small model's step
            if counting is None:
                loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]
            else:
                with counting:
                    loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            waiting.explain("backward", error)  # gradients are exchanged there
            raise

    def accumulate(self, *models: nn.Module) -> AbstractContextManager[None]:
        """A micro-batch of an accumulation window: gradients are exchanged, and optimizers step, where it ends.

        Args:
            models: those that take part; without any, all that were prepared.
        """
        if not self._strategy.exchanges:
            return MicroBatch(self.gradient_state)
        return MicroBatch(self.gradient_state, self._strategy.no_sync, models or self._prepared.models)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """A context in which backward leaves the model's gradients in this process."""
        return self._strategy.no_sync(model)

    @staticmethod
    def trigger_sync_in_backward(model: nn.Module) -> AbstractContextManager[None]:
        """A context in which `backward` exchanges the model's gradients, though its forward ran under `no_sync`."""
        return AcceleratorState().strategy.sync_in_backward(model)

    def join_uneven_inputs(
        self, joinables: list[Any], even_batches: bool | None = None
    ) -> AbstractContextManager[None]:
        """A context for a loop over different numbers of batches: processes that have run out keep up with the others.

        Where some have run out, gradients are averaged over those left, as one process would over a smaller batch (in
        Accelerate, and by torch's default, they are divided by all). Accumulation windows end on all processes where
        one of them has its last batch. Afterwards all have the model, the optimizers, the schedulers and the loss scale
        of a process that did every step. Collectives of the script's own (gather, …) must stay outside the loop.

        Args:
            joinables: prepared models, and optimizers that are Joinable.
            even_batches: overrides DataLoaderConfiguration.even_batches for the prepared loaders, in here.

        On one process nothing is done.
        """
        if not self.use_distributed:
            return nullcontext()
        from ..joining import join_uneven_inputs

        return join_uneven_inputs(joinables, even_batches, self._prepared, self.gradient_state, self.device)

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """A context in which operations run in mixed precision, if that was asked for."""
        return self._precision.autocast(autocast_handler)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide the gradients by fp16's loss scale, and by the `num_items` of `backward`; without either, nothing.

        Inside an accumulation window that does not end here, nothing is divided: more gradients are to come.

        Args:
            optimizer: a prepared optimizer or a list of them; None is all.
        """
        if not self._gradients_change_before_use():
            return
        chosen = self._prepared.optimizers if optimizer is None else optimizer
        for one in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            known = self._prepared.find(one)
            if known is None:
                raise ValueError("unscale_gradients() was given an optimizer that was not prepared: prepare() it first")
            known.make_ready()

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Clip the gradients of `parameters` to a global norm, and return the norm before.

        Inside an accumulation window that does not end here, nothing is clipped; the norm is that of what this process
        has gathered so far.
        """
        chosen = self._gradients_of(parameters)
        if self.gradient_state.managed and not self.sync_gradients:
            norm = self._strategy.total_norm(chosen, norm_type)
            return norm if self.scaler is None else norm / self.scaler.get_scale()
        return self._strategy.clip_grad_norm(chosen, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clip each gradient of `parameters` to [-clip_value, clip_value], where an accumulation window ends."""
        chosen = self._gradients_of(parameters)
        if not self.gradient_state.managed or self.sync_gradients:
            self._strategy.clip_grad_value(chosen, clip_value)

    def _gradients_of(self, parameters: Any) -> list[nn.Parameter]:
        """The parameters as a list, their gradients as a step uses them where a window ends."""
        chosen = self._strategy.current([parameters] if isinstance(parameters, torch.Tensor) else parameters)
        if self._gradients_change_before_use():
            wanted = {id(parameter) for parameter in chosen}
            for optimizer in self._prepared.optimizers:
                if any(id(parameter) in wanted for parameter in parameters_of(optimizer)):
                    optimizer.make_ready()
        return chosen

    def _gradients_change_before_use(self) -> bool:
        """Whether gradients are scaled or sums, and a window ends here."""
        state = self.gradient_state
        if self.scaler is None and not state.counted:
            return False
        return state.sync_gradients or not state.managed
