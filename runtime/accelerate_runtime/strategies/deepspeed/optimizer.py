"""The optimizer and the scheduler that `prepare` returns under DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ... import pieces, waiting
from ...accumulation import GradientState
from ...optimizer import AcceleratedOptimizer
from ...scheduler import AcceleratedScheduler
from .dummies import DummyOptim

if TYPE_CHECKING:
    from .engine import EngineModel
    from .states import WholeOptimizer


class EngineOptimizer(AcceleratedOptimizer):
    """Steps the engine where the script steps, and says what came of it.

    `param_groups` are those that are really stepped: their rates may be read and set. What they hold as parameters are
    DeepSpeed's flat pieces.

    Args:
        model: gives the prepared model whose parameters these are, None where there is none yet.
        whole: gives the optimizer as an unsharded one has it; its engine is made.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_state: GradientState,
        model: Callable[[], EngineModel | None],
        whole: Callable[[], WholeOptimizer],
    ) -> None:
        super().__init__(optimizer, gradient_state)
        self._model, self._whole = model, whole
        self._skipped = False

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take the engine's step, unless an accumulation window is still open."""
        if closure is not None:
            raise ValueError("optimizer.step(closure): DeepSpeed's engine cannot run a closure; call backward() before")
        state = self.gradient_state
        if state.managed and not state.sync_gradients:
            return
        self._stepped, self._stepped_at = True, state.backwards
        model = self._model()
        if model is not None and model.pending:  # else torch's optimizers would do nothing, either
            self._skipped = model.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients that no step has used; inside an accumulation window that is still to be stepped, keep
        them."""
        state = self.gradient_state
        if state.managed and not self._stepped and self._cleared_at != state.backwards:
            return
        self._stepped, self._cleared_at = False, state.backwards
        self._others_at = state.backwards - state.counted
        model = self._model()
        if model is not None:
            model.discard()

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was left out because gradients were not finite."""
        return self._skipped

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused."""
        raise NotImplementedError(
            "add_param_group() after prepare(): DeepSpeed shards the groups that there are when it starts; add it "
            "before"
        )

    @property
    def whole(self) -> Any:
        """The optimizer as an unsharded one has it."""
        return self._whole()

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as torch's optimizer has it on one process; elsewhere than on the main one, without tensors.
        Call it on every process."""
        if pieces.wanted_in_shards():
            raise RuntimeError(
                "torch.distributed.checkpoint does not know the parts of ZeRO: use accelerator.save_state(), or "
                "accelerator.get_state_dict(model) and optimizer.state_dict() on every process."
            )
        return waiting.for_whole("optimizer.state_dict()", self.whole.state_dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load such a state, of which every process takes its part."""
        self.whole.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"EngineOptimizer({self.optimizer!r})"


class EngineScheduler(AcceleratedScheduler):
    """The scheduler of DeepSpeed's config, which the engine steps with the optimizer."""

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the engine has stepped it."""


def groups_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The optimizer's groups as they are now, for DeepSpeed to make an optimizer of (DummyOptim)."""
    if isinstance(optimizer, DummyOptim) and len(optimizer.param_groups) == 1:
        return list(optimizer.param_groups[0]["params"])
    return [dict(group) for group in optimizer.param_groups]
