"""The names for DeepSpeed, where Accelerate's users look for them."""

from __future__ import annotations

from ..plugins.deepspeed import get_active_deepspeed_plugin as get_active_deepspeed_plugin
from ..plugins.zero_config import HfDeepSpeedConfig as HfDeepSpeedConfig
from ..strategies.deepspeed.dummies import DummyOptim as DummyOptim, DummyScheduler as DummyScheduler
