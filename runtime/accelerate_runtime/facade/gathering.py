"""Numbers of all processes: gather, reduce, pad."""

from __future__ import annotations

from typing import Any

from .. import collectives, metrics
from .settings import Settings


class Gathering(Settings):
    """The part of an Accelerator that brings the processes' results together."""

    _triggered = False

    def gather(self, tensor: Any) -> Any:
        """Every process's tensors, joined along the first dimension; see `accelerate_runtime.utils.gather`."""
        return collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Every process's results for the current batch, without those of padding, in the order of the dataset.

        Args:
            input_data: tensors of one row per sample, nested; or objects. Of what is one number a process, that of a
                process whose whole batch is padding is left out too; where a batch is partly padding, such a number is
                an error, since it counts the padding in (in Accelerate it passes).
            use_gather_object: gather lists of picklable objects, one item per sample.
        """
        return metrics.gather_for_metrics(input_data, self.gradient_state, self._strategy.data_place, use_gather_object)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The tensors' "sum", "mean" or "max" over the processes (or "none"), times `scale`, on every process."""
        return collectives.reduce(tensor, reduction, scale)

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
        """The tensors, each padded along `dim` to the longest of any process."""
        return collectives.pad_across_processes(tensor, dim, pad_index, pad_first)

    def set_trigger(self) -> None:
        """Raise a flag that `check_trigger` shows to every process (one saw a NaN, say, or ran out of time)."""
        self._triggered = True

    def check_trigger(self) -> bool:
        """Whether any process has called `set_trigger` since the last check; afterwards the flag is down.

        To be called on every process.
        """
        mine, self._triggered = self._triggered, False
        return collectives.any_process(mine)
