"""Where we are in an accumulation window, and which prepared loader is being read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .plugins import GradientAccumulationPlugin

if TYPE_CHECKING:
    from .data.loader import Pass


class GradientState:
    """Shared by an Accelerator and what it prepared.

    `passes` lists the loaders being iterated; the last one gave the latest batch. A pass removes itself however it ends
    (also by `break`), so that one loader's end never disturbs another's.
    """

    def __init__(self, plugin: GradientAccumulationPlugin | None = None) -> None:
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
        return self.plugin.adjust_scheduler

    @property
    def sync_with_dataloader(self) -> bool:
        return self.plugin.sync_with_dataloader

    @property
    def sync_each_batch(self) -> bool:
        return self.plugin.sync_each_batch

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
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
        if self.plugin.sync_with_dataloader and self.end_of_dataloader:
            self.step, self.sync_gradients = 0, True
        else:
            self.step += 1
            self.sync_gradients = self.step % self.plugin.num_steps == 0
        return self.sync_gradients

    def __repr__(self) -> str:
        return (
            f"GradientState(num_steps={self.num_steps}, sync_gradients={self.sync_gradients}, "
            f"end_of_dataloader={self.end_of_dataloader}, remainder={self.remainder})"
        )
