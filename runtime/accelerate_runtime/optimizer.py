"""The prepared optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .accumulation import GradientState
from .items import Items, Number, refuse_mixture
from .precision import SharedScaler
from .structures import send_to_device


class AcceleratedOptimizer(torch.optim.Optimizer):
    """An optimizer that knows about gradient accumulation and loss scaling.

    Under `accelerator.accumulate()` it steps only where a window ends. `zero_grad` clears gradients only once they were
    used: it may stand at the top of the loop or at its end, inside or outside the `with`. Everything else is done by
    the wrapped optimizer, which is at `.optimizer`.

    Args:
        scaler: shared by all prepared optimizers.
        current: gives the parameters that are trained in place of those that a script has listed before it prepared.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_state: GradientState,
        scaler: SharedScaler | None = None,
        current: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        # Deliberately not Optimizer.__init__: state, groups and hooks are the wrapped optimizer's.
        self.optimizer = optimizer
        self.gradient_state = gradient_state
        self.scaler = scaler
        self._current = current
        self._share = scaler.share(optimizer) if scaler is not None and scaler.is_enabled() else None
        self._items: Items | None = None
        self._stepped, self._stepped_at = False, -1
        self._cleared_at = gradient_state.backwards
        self._others_at = gradient_state.uncounted

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Step the wrapped optimizer, unless an accumulation window is still open."""
        state = self.gradient_state
        if state.managed and not state.sync_gradients:
            return None
        self._stepped, self._stepped_at = True, state.backwards
        if self._items is not None:
            self._items.divide(self.optimizer, state.uncounted)
            self._items = None
        if self._share is not None:
            return self._share.step(closure)
        if closure is None:
            return self.optimizer.step()
        result = self.optimizer.step(closure)
        if self._items is not None:
            raise ValueError("backward(num_items=...) cannot be called in a closure: step() uses its gradients at once")
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; inside an accumulation window that is still to be stepped, keep them."""
        state = self.gradient_state
        if state.managed and not self._stepped and self._cleared_at != state.backwards:
            return  # gradients came in since, and no step has used them
        self._stepped, self._cleared_at = False, state.backwards
        self._items, self._others_at = None, state.backwards - state.counted
        self.optimizer.zero_grad(set_to_none=set_to_none)
        if self._share is not None:
            self._share.cleared()

    def make_ready(self) -> None:
        """Bring the gradients to what a step uses: divided by the number of items, and by the loss scale; once."""
        if self._items is not None:
            self._items.divide(self.optimizer, self.gradient_state.uncounted)
        if self._share is not None:
            self._share.unscale()

    def count_items(self, number: Number, held: bool) -> None:
        """A backward pass has added the gradients of a loss that is a sum over `number` items.

        Args:
            held: there were gradients before.
        """
        others, items = self.gradient_state.uncounted, self._items
        if items is None:
            if held and not self._stepped and others != self._others_at:
                refuse_mixture()
            self._items = Items(number, others)
        elif items.divided:
            refuse_mixture()
        else:
            items.number += number

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was left out because scaled gradients overflowed."""
        return self._share is not None and self._share.overflowed

    @property
    def has_pending_gradients(self) -> bool:
        """Whether gradients came in that no step has used yet."""
        return self.gradient_state.backwards not in (self._cleared_at, self._stepped_at)

    def progress(self) -> dict[str, Any]:
        """Where this optimizer stands in its window, beside what `state_dict` says."""
        return {
            "stepped": self._stepped,
            "stepped_at": self._stepped_at,
            "cleared_at": self._cleared_at,
            "others_at": self._others_at,
            "items": None if self._items is None else self._items.state(),
            "holds": self._share is not None and self._share.holds,
            "skipped": self.step_was_skipped,
        }

    def restore_progress(self, progress: dict[str, Any]) -> None:
        """Go back to where `progress` was taken."""
        self._stepped, self._cleared_at = progress["stepped"], progress["cleared_at"]
        self._stepped_at, self._others_at = progress["stepped_at"], progress["others_at"]
        self._items = None if progress["items"] is None else Items(*progress["items"])
        if self._share is not None:
            self._share.restore(progress["holds"], progress["skipped"])

    @property
    def whole(self) -> Any:
        """What a saved state is loaded into: the wrapped optimizer, or what looks like one."""
        return self.optimizer

    # What belongs to the wrapped optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's groups of parameters; may be set."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state; may be set."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """The wrapped optimizer's defaults; may be set."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.optimizer.defaults = defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters to the wrapped optimizer."""
        given = param_group["params"]
        listed = [given] if isinstance(given, torch.Tensor) else list(given)
        self.optimizer.add_param_group({**param_group, "params": self._current(listed)})

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's state dict: the same keys as without us."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of the wrapped optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet: being unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"AcceleratedOptimizer({self.optimizer!r})"


def move_state(optimizer: torch.optim.Optimizer) -> None:
    """Bring an optimizer's state (momenta loaded before the model moved) to where its parameters are, in place.

    Counters of steps stay where they are, as torch wants them, unless the optimizer is capturable or fused.
    """
    for group in optimizer.param_groups:
        counters_too = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if isinstance(state, dict):
                for name, value in state.items():
                    if name != "step" or counters_too:
                        state[name] = send_to_device(value, parameter.device)
