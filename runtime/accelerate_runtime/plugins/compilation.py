"""How models are compiled."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..environment import parse_flag_from_env
from ..vocabulary import DYNAMO_MODES
from .base import KwargsHandler
from .choices import DynamoBackend

_PREFIX = "ACCELERATE_DYNAMO_"


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """How prepared models are compiled by `torch.compile`. A field that is None is read from the environment.

    Args:
        backend: see DynamoBackend, in any case; "no" compiles nothing. From ACCELERATE_DYNAMO_BACKEND.
        mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs". From ACCELERATE_DYNAMO_MODE.
        fullgraph: whether a graph that breaks is an error. From ACCELERATE_DYNAMO_USE_FULLGRAPH.
        dynamic: whether shapes vary; None lets torch find out. From ACCELERATE_DYNAMO_USE_DYNAMIC.
        options: handed to the backend.
        disable: have torch.compile do nothing (for tests).
        use_regional_compilation: compile blocks that repeat one by one, which starts faster. From
            ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION.

    Raises:
        ValueError: `backend` or `mode` is none of these.
    """

    backend: DynamoBackend | str | None = None
    mode: str | None = None
    fullgraph: bool | None = None
    dynamic: bool | None = None
    options: Any = None
    disable: bool = False
    use_regional_compilation: bool | None = None

    def __post_init__(self) -> None:
        backend = self.backend if self.backend is not None else os.environ.get(f"{_PREFIX}BACKEND") or "no"
        try:
            self.backend = DynamoBackend(str(backend).upper())
        except ValueError:
            allowed = ", ".join(name.lower() for name in DynamoBackend.list())
            raise ValueError(f"dynamo backend {str(backend)!r}: allowed are {allowed}") from None
        if self.mode is None:
            self.mode = os.environ.get(f"{_PREFIX}MODE") or "default"
        if self.mode not in DYNAMO_MODES:
            raise ValueError(f"dynamo mode {self.mode!r}: allowed are {', '.join(DYNAMO_MODES)}")
        if self.fullgraph is None:
            self.fullgraph = parse_flag_from_env(f"{_PREFIX}USE_FULLGRAPH")
        if self.dynamic is None and os.environ.get(f"{_PREFIX}USE_DYNAMIC"):
            self.dynamic = parse_flag_from_env(f"{_PREFIX}USE_DYNAMIC")
        if self.use_regional_compilation is None:
            self.use_regional_compilation = parse_flag_from_env(f"{_PREFIX}USE_REGIONAL_COMPILATION")

    @property
    def compiles(self) -> bool:
        """Whether there is anything to do."""
        return self.backend != DynamoBackend.NO

    def to_dict(self) -> dict[str, Any]:
        """All fields, the backend by its name in torch."""
        return {**super().to_dict(), "backend": str(self.backend).lower()}

    def to_kwargs(self) -> dict[str, Any]:
        """Arguments for `torch.compile`: the fields that differ from its defaults."""
        usual = {"mode": "default", "fullgraph": False, "dynamic": None, "options": None, "disable": False}
        kwargs = {name: value for name, value in self.to_dict().items() if name in usual and value != usual[name]}
        return {"backend": str(self.backend).lower(), **kwargs} if self.compiles else kwargs
