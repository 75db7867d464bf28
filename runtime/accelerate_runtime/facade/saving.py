"""Models and files: unwrapping, state dicts, saving."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from ..models import out_of_wrappers, unwrap
from .settings import Settings


class Saving(Settings):
    """The part of an Accelerator that writes and reads files."""

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """The model that was prepared.

        Args:
            keep_fp32_wrapper: False also takes autocast off its forward, in place.
            keep_torch_compile: False also takes a `torch.compile` wrapper of the script's own off (`prepare` compiles
                without one).
        """
        engine = self._strategy.unwrap
        return unwrap(model, lambda one: out_of_wrappers(engine(one)), keep_fp32_wrapper, keep_torch_compile)

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """The model's state dict, with the names it had before it was prepared. Call it on every process.

        Args:
            unwrap: False gives the names of the prepared model instead.
        """
        return self._strategy.state_dict(self.unwrap_model(model, keep_torch_compile=False) if unwrap else model)

    def save(self, obj: Any, f: str | os.PathLike[str], safe_serialization: bool = False) -> None:
        """`torch.save(obj, f)`, on the main process only (with `save_on_each_node`, on the first of each machine)."""
        if safe_serialization:
            raise NotImplementedError(
                "save(safe_serialization=True) is not supported in this version of accelerate_runtime; leave it out."
            )
        each = self.project_configuration.save_on_each_node
        if self.is_local_main_process if each else self.is_main_process:
            torch.save(obj, f)
