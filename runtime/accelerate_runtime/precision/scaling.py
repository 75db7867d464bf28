"""One loss scale for several optimizers (fp16)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch


class SharedScaler(torch.amp.GradScaler):
    """A GradScaler for optimizers that step whenever they like.

    The scale may change only between iterations, once all optimizers have stepped; but where an iteration ends, nobody
    tells us. So the update that a step makes due is done at once if no other optimizer holds gradients of this scale,
    else when the last of them has stepped or was cleared, and at the latest before the next loss is scaled. Gradients
    that wait even longer, for an optimizer that steps less often, are then brought to the new scale.
    """

    def __init__(self, device: str, **kwargs: Any) -> None:
        super().__init__(device, **kwargs)
        self._shares: weakref.WeakSet[Share] = weakref.WeakSet()
        self._due = False

    def share(self, optimizer: torch.optim.Optimizer) -> Share:
        """The part of an optimizer (of torch's, not a prepared one) in this scaler."""
        share = Share(self, optimizer)
        self._shares.add(share)
        return share

    def scale(self, outputs: Any) -> Any:
        """The loss, or a nest of losses, multiplied by the scale."""
        self.settle()
        for share in self._shares:
            share.holds = True
        return super().scale(outputs)

    def note(self) -> None:
        """An optimizer was unscaled or has stepped: an update is due."""
        self._due = True

    def settle_if_free(self) -> None:
        """Do the update that is due, if nobody waits for it."""
        if self._due and not any(share.waits for share in self._shares):
            self.settle()

    def settle(self) -> None:
        """Do the update that is due, and bring gradients that are still to be stepped to the new scale."""
        if not self._due:
            return
        self._due = False
        waiting = [share for share in self._shares if share.waits]
        before = self.get_scale() if waiting else 1.0  # .item(): only where several optimizers make it necessary
        self.update()
        for share in waiting:
            share.rescale(before, self.get_scale())

    def state_dict(self) -> dict[str, Any]:
        """The state of a torch.amp.GradScaler, after the update that is due."""
        self.settle()
        return super().state_dict()

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_shares": weakref.WeakSet()}


class Share:
    """What a scaler knows of one optimizer.

    Attributes:
        holds: a loss was scaled since the gradients were last cleared or used.
        unscaled: they were divided by the scale already, for the step that comes.
    """

    def __init__(self, scaler: SharedScaler, optimizer: torch.optim.Optimizer) -> None:
        self.scaler, self.optimizer = scaler, optimizer
        self.holds = self.unscaled = False
        self._overflow: torch.Tensor | float = 0.0

    @property
    def waits(self) -> bool:
        """Whether there are gradients that a step is still to use."""
        return self.holds and any(True for _ in gradients_of(self.optimizer))

    @property
    def overflowed(self) -> bool:
        """Whether the last step was left out because its gradients were not finite."""
        return bool(self._overflow)

    def unscale(self) -> None:
        """Divide the gradients by the scale, once before each step."""
        if not self.unscaled and self.waits:
            self.scaler.unscale_(self.optimizer)
            self.unscaled = True
            self.scaler.note()

    def step(self, closure: Callable[[], float] | None) -> Any:
        """Unscale and step, unless a gradient is not finite.

        Raises:
            ValueError: there is a `closure`.
        """
        if closure is not None:
            raise ValueError(
                "optimizer.step(closure) cannot be used with mixed_precision='fp16': the gradients that a closure "
                "computes inside of step() would stay scaled. Use 'bf16' or 'no', or an optimizer without a closure."
            )
        if not self.holds:  # no backward since the last step
            self.scaler.settle()
        if not any(True for _ in gradients_of(self.optimizer)):  # a GradScaler would call it an error
            self._overflow = 0.0
            return self.optimizer.step()
        result = self.scaler.step(self.optimizer)
        # a tensor of its own: update() adds up in place; read when somebody asks, for a fused optimizer needs no sync
        self._overflow = sum(self.scaler._found_inf_per_device(self.optimizer).values())
        self.holds = self.unscaled = False
        self.scaler.note()
        self.scaler.settle_if_free()
        return result

    def cleared(self) -> None:
        """The gradients were cleared."""
        self.holds = self.unscaled = False
        self.scaler.settle_if_free()

    def restore(self, holds: bool, overflowed: bool) -> None:
        """Go back to where a program was stopped, once its scaler had settled."""
        self.holds, self.unscaled, self._overflow = holds, False, float(overflowed)

    def rescale(self, before: float, now: float) -> None:
        """The scale has changed while the gradients wait."""
        factor = now if self.unscaled else now / before
        if factor != 1.0:
            for gradient in gradients_of(self.optimizer):
                gradient.mul_(factor)
        self.unscaled = False


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """An optimizer's parameters, group by group."""
    for group in optimizer.param_groups:
        yield from group["params"]


def gradients_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The gradients that an optimizer's parameters have."""
    return (parameter.grad for parameter in parameters_of(optimizer) if parameter.grad is not None)
