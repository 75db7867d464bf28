"""Mixed precision: autocast around a prepared model's forward, loss scaling for fp16, fp8 by an engine."""

from .forward import convert_outputs_to_fp32, convert_to_fp32, unwrap_forward
from .fp8 import choose_recipe
from .mode import Precision, check_mode
from .scaling import Share, SharedScaler

__all__ = [
    "Precision",
    "Share",
    "SharedScaler",
    "check_mode",
    "choose_recipe",
    "convert_outputs_to_fp32",
    "convert_to_fp32",
    "unwrap_forward",
]
