"""What a process has of a model once that is cut into stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Share:
    """This process's part of a model.

    Attributes:
        rank, ranks: of this process in its pipeline, and how many there are.
        pipeline: the processes of this pipeline.
        copies: the processes that hold copies of these stages; None where there are none.
        has_main: whether the main process is in this pipeline; then it is its first.
        told_by: for each name of a whole state dict the process that has it.
        same: for each of these names the first name of that tensor.
        order: the names of all parameters, each once, in the order of the whole model.
        parameters: those that are here, each once.
        own_names: their names, by their ids.
        tied: those that other processes use too, with the group of these.
        counted_elsewhere: those of them that an earlier process counts.
        reading: the state dict is asked for by one that knows that it has a part only.
    """

    rank: int
    ranks: int
    pipeline: Any
    copies: Any
    has_main: bool
    device: torch.device
    told_by: dict[str, int]
    same: dict[str, str]
    order: list[str]
    parameters: list[nn.Parameter] = field(default_factory=list)
    own_names: dict[int, str] = field(default_factory=dict)
    tied: list[tuple[nn.Parameter, Any]] = field(default_factory=list)
    counted_elsewhere: list[nn.Parameter] = field(default_factory=list)
    reading: bool = False
