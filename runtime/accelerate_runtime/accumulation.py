"""Where we are in an accumulation window, and which prepared loader is being read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

from .plugins import GradientAccumulationPlugin

if TYPE_CHECKING:
    from .data.loader import Pass


class GradientState:
    """Shared by an Accelerator and what it prepared. `GradientState()` shows the one of the latest Accelerator.

    `passes` lists the loaders being iterated; the last one gave the latest batch. A pass removes itself however it ends
    (also by `break`), so that one loader's end never disturbs another's.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}
    """The attributes of the latest Accelerator's, which `GradientState()` shows."""

    def __init__(self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> None:
        plugin, latest = gradient_accumulation_plugin, GradientState._shared_state
        if latest and (plugin is None or not latest["claimed"]):
            self.__dict__ = latest
            if plugin is not None:
                self.plugin, self.claimed = plugin, True
            return
        GradientState._shared_state = self.__dict__
        self.claimed = plugin is not None
        """Whether it is an Accelerator's; one that a script made before is taken over by its first."""
        self.plugin = plugin if plugin is not None else GradientAccumulationPlugin()
        self.sync_gradients = True
        self.passes: list[Pass] = []
        self.step = 0
        self.backwards = 0
        """How many times backward() was called."""
        self.counted = 0
        """How many of these named the number of items that their loss is a sum over."""
        self.managed = False
        """Whether accumulate() is in use with windows of several micro-batches; else step and zero_grad always act."""
        self.window_ends: Callable[[Pass], bool] | None = None
        """Inside join_uneven_inputs: whether the latest batch is the last one of some process."""

    @property
    def uncounted(self) -> int:
        """How many times backward() was called without a number of items."""
        return self.backwards - self.counted

    @property
    def num_steps(self) -> int:
        """Micro-batches per optimizer step."""
        return self.plugin.num_steps

    @property
    def adjust_scheduler(self) -> bool:
        """See GradientAccumulationPlugin."""
        return self.plugin.adjust_scheduler

    @property
    def sync_with_dataloader(self) -> bool:
        """See GradientAccumulationPlugin."""
        return self.plugin.sync_with_dataloader

    @property
    def sync_each_batch(self) -> bool:
        """See GradientAccumulationPlugin."""
        return self.plugin.sync_each_batch

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        """The fields of the GradientAccumulationPlugin that differ from their default."""
        return self.plugin.to_kwargs()

    @property
    def active_pass(self) -> Pass | None:
        """The pass that gave the latest batch."""
        return self.passes[-1] if self.passes else None

    @property
    def active_dataloader(self) -> Any:
        """The prepared loader that gave the latest batch, or None."""
        return self.passes[-1].loader if self.passes else None

    @property
    def in_dataloader(self) -> bool:
        """Whether a prepared loader is being read."""
        return bool(self.passes)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the latest batch was its loader's last."""
        return bool(self.passes) and self.passes[-1].at_end

    @property
    def remainder(self) -> int:
        """How many of the latest batch's samples, over all processes, are real where some are padding; else -1."""
        share = self.passes[-1].share if self.passes else None
        return sum(share.real) if share is not None and share.padded else -1

    def open_micro_batch(self) -> bool:
        """Enter the next micro-batch; returns whether an optimizer step ends it."""
        if self.plugin.num_steps > 1:
            self.managed = True
        if self.plugin.sync_with_dataloader and self._closed_by_loader():
            self.step, self.sync_gradients = 0, True
        else:
            self.step += 1
            self.sync_gradients = self.step % self.plugin.num_steps == 0
        return self.sync_gradients

    def state_dict(self) -> dict[str, Any]:
        """Where the accumulation window stands."""
        return {
            "step": self.step,
            "sync_gradients": self.sync_gradients,
            "backwards": self.backwards,
            "counted": self.counted,
            "managed": self.managed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where `state_dict` was taken."""
        self.step, self.sync_gradients = state["step"], state["sync_gradients"]
        self.backwards, self.counted, self.managed = state["backwards"], state["counted"], state["managed"]

    @property
    def is_xla_gradients_synced(self) -> bool:
        """False: this version has no XLA."""
        return False

    @property
    def initialized(self) -> bool:
        """Whether there is one."""
        return bool(GradientState._shared_state)

    @staticmethod
    def _reset_state() -> None:
        """Forget which is the latest (for tests). Accelerators that exist keep theirs."""
        GradientState._shared_state = {}

    def _closed_by_loader(self) -> bool:
        """Whether the latest batch ends its accumulation window, however many micro-batches that has."""
        if self.window_ends is None or not self.passes:
            return self.end_of_dataloader
        return self.managed and self.window_ends(self.passes[-1])

    def __repr__(self) -> str:
        return (
            f"GradientState(num_steps={self.num_steps}, sync_gradients={self.sync_gradients}, "
            f"end_of_dataloader={self.end_of_dataloader}, remainder={self.remainder})"
        )


class MicroBatch:
    """The context of one micro-batch: gradients stay in the process unless a window ends here.

    A class, not a generator: entering and leaving costs a quarter.

    Args:
        no_sync: gives the context in which a model's gradients stay here; without it there is one process.
        models: those that take part.
    """

    __slots__ = ("_models", "_no_sync", "_open", "_state")

    def __init__(
        self,
        state: GradientState,
        no_sync: Callable[[Any], AbstractContextManager[Any]] | None = None,
        models: Sequence[Any] = (),
    ) -> None:
        self._state, self._no_sync, self._models = state, no_sync, models
        self._open: ExitStack | None = None

    def __enter__(self) -> None:
        state = self._state
        if state.open_micro_batch() or self._no_sync is None or state.plugin.sync_each_batch:
            return
        self._open = ExitStack()
        for model in self._models:
            self._open.enter_context(self._no_sync(model))

    def __exit__(self, *problem: Any) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
