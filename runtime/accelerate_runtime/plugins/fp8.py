"""Recipes of `mixed_precision="fp8"`: which engine computes in 8 bits, and how. Passed as `kwargs_handlers`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..environment import get_int_from_env, parse_flag_from_env
from .base import KwargsHandler

if TYPE_CHECKING:
    from torch import nn

_PREFIX = "ACCELERATE_FP8_"


@dataclass
class AORecipeKwargs(KwargsHandler):
    """fp8 by torchao (`pip install torchao`): the inputs of linear layers are cast to 8 bits as they come.

    Args:
        config: a `torchao.float8.Float8LinearConfig`. None makes one of the next two options; it also has the products
            emulated (in float32 arithmetic on values rounded to 8 bits) where the device has none of its own, as CPUs.
        module_filter_func: called with each linear module and its name; returns whether to convert it. By default all
            whose sizes are multiples of 16 are, but for the model's first and last, which need the precision.
        pad_inner_dim: pad products to multiples of 16; None reads ACCELERATE_FP8_PAD_INNER_DIM (default true).
        enable_fsdp_float8_all_gather: FSDP gathers weights in 8 bits; None reads
            ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER (default true). Without FSDP there is nothing to gather.
    """

    config: Any = None
    module_filter_func: Callable[[nn.Module, str], bool] | None = None
    pad_inner_dim: bool | None = None
    enable_fsdp_float8_all_gather: bool | None = None

    def __post_init__(self) -> None:
        if self.config is None:
            if self.pad_inner_dim is None:
                self.pad_inner_dim = parse_flag_from_env(_PREFIX + "PAD_INNER_DIM", True)
            if self.enable_fsdp_float8_all_gather is None:
                self.enable_fsdp_float8_all_gather = parse_flag_from_env(
                    _PREFIX + "ENABLE_FSDP_FLOAT8_ALL_GATHER", True
                )
        elif self.pad_inner_dim is not None or self.enable_fsdp_float8_all_gather is not None:
            raise ValueError(
                "AORecipeKwargs: pad_inner_dim and enable_fsdp_float8_all_gather are part of `config`; set them there."
            )


@dataclass
class TERecipeKwargs(KwargsHandler):
    """fp8 by NVIDIA's TransformerEngine (`pip install "transformer_engine[pytorch]"`; GPUs only).

    Linear and LayerNorm modules become TransformerEngine's, which keep a history of each tensor's largest value and
    scale by it. An option left at None reads its environment variable, else has the default named here.

    Args:
        use_autocast_during_eval: also compute in 8 bits when the model is in eval mode (USE_AUTOCAST_DURING_EVAL, no).
        margin: of the scaling factor (MARGIN, 0).
        interval: steps between two scaling factors (INTERVAL, 1); newer TransformerEngines know only 1.
        fp8_format: "HYBRID", "E4M3" or "E5M2" (FORMAT, "HYBRID").
        amax_history_len: how many largest values are kept (AMAX_HISTORY_LEN, 1024).
        amax_compute_algo: "max" or "most_recent" of them counts (AMAX_COMPUTE_ALGO, "most_recent").
        override_linear_precision: whether the products of forward, of the inputs' and of the weights' gradients stay in
            higher precision (OVERRIDE_FPROP, OVERRIDE_DGRAD, OVERRIDE_WGRAD; none).
        use_mxfp8_block_scaling: scale blocks of 32 values instead (USE_MXFP8_BLOCK_SCALING, no); needs a Blackwell GPU.
    """

    use_autocast_during_eval: bool | None = None
    margin: int | None = None
    interval: int | None = None
    fp8_format: str | None = None
    amax_history_len: int | None = None
    amax_compute_algo: str | None = None
    override_linear_precision: tuple[bool, bool, bool] | None = None
    use_mxfp8_block_scaling: bool | None = None

    def __post_init__(self) -> None:
        if self.use_autocast_during_eval is None:
            self.use_autocast_during_eval = parse_flag_from_env(_PREFIX + "USE_AUTOCAST_DURING_EVAL")
        if self.margin is None:
            self.margin = get_int_from_env([_PREFIX + "MARGIN"], 0)
        if self.interval is None:
            self.interval = get_int_from_env([_PREFIX + "INTERVAL"], 1)
        if self.amax_history_len is None:
            self.amax_history_len = get_int_from_env([_PREFIX + "AMAX_HISTORY_LEN"], 1024)
        self.fp8_format = _choice("fp8_format", self.fp8_format, "FORMAT", ("HYBRID", "E4M3", "E5M2"))
        self.amax_compute_algo = _choice(
            "amax_compute_algo", self.amax_compute_algo, "AMAX_COMPUTE_ALGO", ("most_recent", "max")
        )
        if self.override_linear_precision is None:
            flags = [parse_flag_from_env(f"{_PREFIX}OVERRIDE_{name}") for name in ("FPROP", "DGRAD", "WGRAD")]
            self.override_linear_precision = (flags[0], flags[1], flags[2])
        if self.use_mxfp8_block_scaling is None:
            self.use_mxfp8_block_scaling = parse_flag_from_env(_PREFIX + "USE_MXFP8_BLOCK_SCALING")


@dataclass
class MSAMPRecipeKwargs(KwargsHandler):
    """Known, and refused: MS-AMP is maintained no longer, and does not work with the versions of torch that we need."""

    opt_level: str | None = None

    def __post_init__(self) -> None:
        raise NotImplementedError(
            "fp8 by MS-AMP is not supported: MS-AMP is maintained no longer and does not work with torch >= 2.9. "
            "Pass AORecipeKwargs() (pip install torchao) or TERecipeKwargs() instead."
        )


def _choice(field: str, given: str | None, name: str, allowed: tuple[str, ...]) -> str:
    """The value of `allowed` that was meant, in whatever case; by default the first."""
    value = given if given is not None else os.environ.get(_PREFIX + name, allowed[0])
    for known in allowed:
        if value.lower() == known.lower():
            return known
    raise ValueError(f"TERecipeKwargs({field}={value!r}): allowed are {', '.join(map(repr, allowed))}")
