"""How DeepSpeed trains a model: `Accelerator(deepspeed_plugin=...)`, or ACCELERATE_DEEPSPEED_… in the environment."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..environment import parse_flag_from_env
from .parallelism import NO_ULYSSES
from .zero_config import AUTO, HfDeepSpeedConfig

STAGES = (0, 1, 2, 3)
_NO_AUTOTP = (
    "tensor parallelism by DeepSpeed (AutoTP) is not supported in this version of accelerate_runtime: use "
    "ParallelismConfig(tp_size=...), without DeepSpeed"
)
DEVICES = ("none", "cpu", "nvme")
_ENV = "ACCELERATE_DEEPSPEED_"
_ZERO = "zero_optimization"
_FIELDS: dict[str, tuple[str, Any]] = {
    "zero_stage": (f"{_ZERO}.stage", 2),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", None),
    "gradient_clipping": ("gradient_clipping", None),
    "offload_optimizer_device": (f"{_ZERO}.offload_optimizer.device", "none"),
    "offload_param_device": (f"{_ZERO}.offload_param.device", "none"),
    "offload_optimizer_nvme_path": (f"{_ZERO}.offload_optimizer.nvme_path", None),
    "offload_param_nvme_path": (f"{_ZERO}.offload_param.nvme_path", None),
    "zero3_save_16bit_model": (f"{_ZERO}.stage3_gather_16bit_weights_on_model_save", False),
}
"""For each field where it stands in DeepSpeed's config, and what it is where nobody says."""
_VARIABLES = {
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
}
_OTHERS_VARIABLES = {"zero3_init_flag": "ZERO3_INIT", "transformer_moe_cls_names": "MOE_LAYER_CLS_NAMES"}


@dataclass
class DeepSpeedPlugin:
    """How DeepSpeed shards and trains a model (ZeRO).

    A field that is None is read from the environment (ACCELERATE_DEEPSPEED_ and its name in capitals), then from the
    config, else it has its default. A value that the config contradicts is an error that names both.

    Args:
        hf_ds_config: DeepSpeed's own config: a dict, the path of a JSON file, or an HfDeepSpeedConfig; the
            environment's is ACCELERATE_DEEPSPEED_CONFIG_FILE. Values that are "auto" are filled in from what is
            prepared.
        gradient_accumulation_steps: micro-batches per optimizer step; also ACCELERATE_GRADIENT_ACCUMULATION_STEPS.
        gradient_clipping: the norm to which each step clips gradients; also ACCELERATE_GRADIENT_CLIPPING.
        zero_stage: what is sharded: 0 nothing, 1 optimizer states, 2 gradients too (the default), 3 parameters too.
        is_train_batch_min: of loaders with different batch sizes, the smallest is the micro-batch; else the largest.
        offload_optimizer_device, offload_param_device: where states and parameters (ZeRO-3) wait: none, cpu or nvme.
        offload_optimizer_nvme_path, offload_param_nvme_path: the folders on the disk, for nvme.
        zero3_init_flag: have transformers shard a model while it is made (ZeRO-3).
        zero3_save_16bit_model: in the config for DeepSpeed's own `save_16bit_model`; `get_state_dict` and `save_model`
            gather weights in any case.
        transformer_moe_cls_names: classes of layers that ZeRO-3 gathers as a whole, with commas between them.
        enable_msamp, msamp_opt_level: refused: there is no MS-AMP here.

    Raises:
        ValueError: a value that cannot be, or two that contradict each other; the message says where both stand.
    """

    hf_ds_config: Any = None
    gradient_accumulation_steps: int | None = None
    gradient_clipping: float | None = None
    zero_stage: int = None  # type: ignore[assignment]
    is_train_batch_min: bool = True
    offload_optimizer_device: str = None  # type: ignore[assignment]
    offload_param_device: str = None  # type: ignore[assignment]
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_init_flag: bool = None  # type: ignore[assignment]
    zero3_save_16bit_model: bool = None  # type: ignore[assignment]
    transformer_moe_cls_names: str | None = None
    enable_msamp: bool | None = None
    msamp_opt_level: str | None = None
    origins: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Where each value of the config that somebody said comes from, by its dotted key."""

    def __post_init__(self) -> None:
        if self.enable_msamp or self.msamp_opt_level is not None:
            raise ValueError("DeepSpeedPlugin(enable_msamp, msamp_opt_level): MS-AMP is not supported; leave them out")
        given = self.hf_ds_config
        if given is None:
            given = os.environ.get(f"{_ENV}CONFIG_FILE") or None
        self._has_config = given is not None
        self.hf_ds_config = HfDeepSpeedConfig({} if given is None else given)
        self.origins.update((key, self.hf_ds_config.source) for key in _keys(self.hf_ds_config.config))
        for name, (key, default) in _FIELDS.items():
            setattr(self, name, self._settle_field(name, key, default))
        for name, variable in _OTHERS_VARIABLES.items():
            if getattr(self, name) is None:
                setattr(self, name, os.environ.get(f"{_ENV}{variable}") or None)
        self.zero3_init_flag = _flag("zero3_init_flag", self.zero3_init_flag) or False
        self._init_enabled = self.zero3_init_flag
        self._selected = False
        self._check()

    def _settle_field(self, name: str, key: str, default: Any) -> Any:
        """The value of a field and of its place in the config, which become the same."""
        value, origin = _read_value(name, getattr(self, name)), f"DeepSpeedPlugin({name}={getattr(self, name)!r})"
        if value is None:
            variable = _VARIABLES.get(name, f"{_ENV}{name.upper()}")
            text = os.environ.get(variable) or None
            value, origin = _read_value(name, text), f"{variable}={text}"
        if value is None and self._config_says(key):
            return _read_value(name, self.get_value(key))
        if value is None:
            as_deepspeed_reads_it = name == "zero_stage" and self._has_config and self.get_value(key) != AUTO
            value, origin = 0 if as_deepspeed_reads_it else default, "the default"
            if value is None or (value == default and name != "zero_stage" and self.get_value(key) != AUTO):
                return value
        self.fill(key, value, origin)
        return value

    def _config_says(self, key: str) -> bool:
        return self.get_value(key) not in (None, AUTO)

    def _check(self) -> None:
        for key, what in (("sequence_parallel_size", NO_ULYSSES), ("tensor_parallel.autotp_size", _NO_AUTOTP)):
            if self.get_value(key) not in (None, 0, 1):
                raise ValueError(f"{self.hf_ds_config.source} says {key}: {self.get_value(key)}: {what}")
        if self.zero_stage not in STAGES:
            raise ValueError(f"zero_stage={self.zero_stage!r}: allowed are 0, 1, 2 and 3")
        for what, least in (("optimizer", 1), ("param", 3)):
            device = getattr(self, f"offload_{what}_device")
            if device not in DEVICES:
                raise ValueError(f"offload_{what}_device={device!r}: allowed are {', '.join(DEVICES)}")
            if device != "none" and self.zero_stage < least:
                raise ValueError(
                    f"offload_{what}_device={device!r} needs zero_stage={least} or more, which is {self.zero_stage}"
                )
            path = getattr(self, f"offload_{what}_nvme_path")
            if device == "nvme" and path in (None, "none"):
                raise ValueError(f"offload_{what}_device='nvme' needs offload_{what}_nvme_path, a folder on the disk")
        steps = self.gradient_accumulation_steps
        if steps is not None and (not isinstance(steps, int) or steps < 1):
            raise ValueError(f"gradient_accumulation_steps={steps!r}: must be a whole number, 1 or more")
        clipping = self.gradient_clipping
        if clipping is not None and not (isinstance(clipping, (int, float)) and clipping >= 0):
            raise ValueError(f"gradient_clipping={clipping!r}: must be a number, 0 or more")

    # The config

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """DeepSpeed's config, as far as it is known."""
        config: dict[str, Any] = self.hf_ds_config.config
        return config

    def get_value(self, ds_key_long: str, default: Any = None) -> Any:
        """What the config says at a dotted key."""
        return self.hf_ds_config.get_value(ds_key_long, default)

    def is_auto(self, ds_key_long: str) -> bool:
        """Whether a value is to be filled in."""
        return bool(self.get_value(ds_key_long) == AUTO)

    def is_zero3_init_enabled(self) -> bool:
        """Whether models are sharded while they are made."""
        return self._init_enabled

    def fill(self, key: str, value: Any, origin: str) -> None:
        """Put a value where the config says nothing or "auto".

        Args:
            origin: where the value comes from, for messages.

        Raises:
            ValueError: the config says something else.
        """
        fill(self.hf_ds_config, self.origins, key, value, origin)

    def fill_match(
        self, ds_key_long: str, mismatches: list[str] | None = None, must_match: bool = True, **kwargs: Any
    ) -> None:
        """Put `kwargs[ds_key_long]` where the config says "auto"; note in `mismatches` where it says something else."""
        mismatches = [] if mismatches is None else mismatches
        said = self.get_value(ds_key_long)
        if said == AUTO:
            if ds_key_long not in kwargs:
                raise ValueError(f"{ds_key_long} is 'auto' in {self.hf_ds_config.source}, and there is no value for it")
            self.hf_ds_config.set_value(ds_key_long, kwargs[ds_key_long])
        elif must_match and said is not None and ds_key_long in kwargs and said != kwargs[ds_key_long]:
            mismatches.append(f"- ds {ds_key_long}={said} vs arg {ds_key_long}={kwargs[ds_key_long]}")

    def deepspeed_config_process(
        self,
        prefix: str = "",
        mismatches: list[str] | None = None,
        config: dict[str, Any] | None = None,
        must_match: bool = True,
        **kwargs: Any,
    ) -> None:
        """Fill all values of the config that are "auto" from `kwargs`, by dotted keys.

        Raises:
            ValueError: the config says something else than `kwargs`.
        """
        mismatches = [] if mismatches is None else mismatches
        for key, value in list((self.deepspeed_config if config is None else config).items()):
            if isinstance(value, dict):
                self.deepspeed_config_process(f"{prefix}{key}.", mismatches, value, must_match, **kwargs)
            else:
                self.fill_match(prefix + key, mismatches, must_match, **kwargs)
        if mismatches and not prefix:
            told = "\n".join(mismatches)
            raise ValueError(f"{self.hf_ds_config.source} contradicts other settings; make them alike:\n{told}")

    def set_mixed_precision(self, mixed_precision: str) -> None:
        """Put the precision into the config.

        Raises:
            ValueError: the config says another.
        """
        for kind in ("fp16", "bf16"):
            enabled = mixed_precision == kind
            if enabled or self.get_value(f"{kind}.enabled") is not None:
                self.fill(f"{kind}.enabled", enabled, f"mixed_precision={mixed_precision!r}")

    def precision(self) -> str | None:
        """The precision that the config says; None where it leaves it to others."""
        for kind in ("fp16", "bf16"):
            if self.get_value(f"{kind}.enabled") is True:
                return kind
        return None

    # Several plugins, and models sharded while they are made

    @property
    def selected(self) -> bool:
        """Whether it is the one in use, of several."""
        return self._selected

    @selected.setter
    def selected(self, value: bool) -> None:
        raise NotImplementedError("select a plugin by accelerator.state.select_deepspeed_plugin(name)")

    def select(self, _from_accelerator_state: bool = False) -> None:
        """Become the one in use; called by `accelerator.state.select_deepspeed_plugin(name)` alone."""
        if not _from_accelerator_state:
            raise ValueError("select a plugin by accelerator.state.select_deepspeed_plugin(name)")
        self._selected = True

    def _unselect(self) -> None:
        self._selected = False

    def set_moe_leaf_modules(self, model: Any) -> None:
        """Have ZeRO-3 gather the layers of `transformer_moe_cls_names` in `model` each as a whole.

        Raises:
            ValueError: the model has no layer of such a class.
        """
        if self.transformer_moe_cls_names is None:
            return
        from deepspeed.utils import set_z3_leaf_modules

        wanted = [name.strip() for name in self.transformer_moe_cls_names.split(",")]
        classes = {type(part).__name__: type(part) for part in model.modules()}
        for name in wanted:
            if name not in classes:
                raise ValueError(f"transformer_moe_cls_names={name!r}: the model has no layer of this class")
        set_z3_leaf_modules(model, [classes[name] for name in wanted])

    @contextmanager
    def zero3_init_context_manager(self, enable: bool = False) -> Iterator[None]:
        """A context in which models are sharded while they are made (ZeRO-3), so that none needs to fit whole anywhere;
        with `enable=False` one in which transformers does not do so either."""
        before, self._init_enabled = self._init_enabled, enable
        try:
            if not enable or self.zero_stage != 3:
                yield
                return
            from ..strategies.deepspeed.making import sharded_while_made

            with sharded_while_made(copy.deepcopy(self.deepspeed_config)):
                yield
        finally:
            self._init_enabled = before

    def compared(self) -> dict[str, Any]:
        """What must be the same on all processes: the fields, and the config by dotted keys."""
        fields = {name: value for name, value in self.to_dict().items() if name != "hf_ds_config"}
        return fields | {key: self.get_value(key) for key in sorted(_keys(self.deepspeed_config))}

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "origins"}


def fill(config: HfDeepSpeedConfig, origins: dict[str, str], key: str, value: Any, origin: str) -> None:
    """See `DeepSpeedPlugin.fill`."""
    said = config.get_value(key)
    if said is not None and said != AUTO and said != value:
        raise ValueError(
            f"{origins.get(key, config.source)} says {key}: {said!r}, but {origin} says {value!r}: make them alike, "
            f'or have the config say "auto" or nothing'
        )
    if said is None or said == AUTO:
        config.set_value(key, value)
        origins[key] = origin


def _keys(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _read_value(name: str, value: Any) -> Any:
    """A value of a field that may be text, as environments and launch configs have it; None says nothing."""
    if value is None or (isinstance(value, str) and value.lower() == AUTO):
        return None
    if name in ("zero_stage", "gradient_accumulation_steps"):
        return int(value) if isinstance(value, str) and value.isdigit() else value
    if name == "gradient_clipping" and isinstance(value, str):
        try:
            return None if value.lower() == "none" else float(value)
        except ValueError:
            return value
    if name == "zero3_save_16bit_model":
        return _flag(name, value)
    if name.endswith("nvme_path"):
        return None if value in ("none", "None") else value
    return str(value) if name.endswith("device") else value


def _flag(name: str, value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(f"{name}={value!r}: must be True or False")
    return text in ("true", "1", "yes")


def asked_for_by_environment() -> bool:
    """Whether a launcher asked for DeepSpeed."""
    return parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")


def get_active_deepspeed_plugin(state: Any) -> DeepSpeedPlugin:
    """The plugin in use, of the state of an Accelerator.

    Raises:
        ValueError: it does not train by DeepSpeed.
    """
    plugin = getattr(state, "deepspeed_plugin", None)
    if plugin is None:
        raise ValueError("get_active_deepspeed_plugin(): this Accelerator has no DeepSpeedPlugin")
    found: DeepSpeedPlugin = plugin
    return found
