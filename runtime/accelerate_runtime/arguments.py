"""Checks of the Accelerator's arguments: what works is taken, what is known but does not work yet is refused."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .environment import number_from_env, parse_flag_from_env
from .plugins import (
    DataLoaderConfiguration,
    GradientAccumulationPlugin,
    KwargsHandler,
    ProjectConfiguration,
    RNGType,
    TorchDynamoPlugin,
    check_steps,
)
from .precision import check_mode, choose_recipe

if TYPE_CHECKING:
    from .plugins.deepspeed import DeepSpeedPlugin
    from .plugins.megatron import MegatronLMPlugin
    from .plugins.parallelism import ParallelismConfig
    from .precision.fp8 import Recipe
    from .tracking.running import RunningTrackers

Handlers = dict[type[KwargsHandler], KwargsHandler]
H = TypeVar("H", bound=KwargsHandler)
_FP8_RECIPES = ("AORecipeKwargs", "TERecipeKwargs")
_HANDLERS = (  # by name: those that few scripts use are not built for all
    "AutocastKwargs",
    "DistributedDataParallelKwargs",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "ProfileKwargs",
    *_FP8_RECIPES,
)


def refuse_unsupported(given: dict[str, Any], call: str = "Accelerator") -> None:
    """Raise NotImplementedError for the first argument of `call` that is set."""
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(
                f"{call}({name}={_short(value)}) is not supported in this version of accelerate_runtime, which "
                "trains on one process or with DistributedDataParallel; leave the argument out."
            )


_PLUGINS = {"fsdp_plugin": "FullyShardedDataParallelPlugin"}  # by name: few scripts use them


def read_plugins(given: dict[str, Any]) -> dict[str, Any]:
    """The plugins of engines, by the engine's name.

    Raises:
        TypeError: one is of another class.
    """
    for name, plugin in given.items():
        if plugin is not None and all(kind.__name__ != _PLUGINS[name] for kind in type(plugin).__mro__):
            raise TypeError(f"{name}={_short(plugin)}: pass a {_PLUGINS[name]}")
    return {name.removesuffix("_plugin"): plugin for name, plugin in given.items()}


def read_megatron(plugin: Any, parallelism: ParallelismConfig | None) -> MegatronLMPlugin | None:
    """The plugin that asks for tensor and pipeline parallelism: the argument, or what the launcher says; else None.

    Raises:
        NotImplementedError: it is of another class, or asks for what this version does not have.
        ValueError: sizes of a mesh are asked for beside it, by a `parallelism_config` or by the launcher.
    """
    by_launcher = parse_flag_from_env("ACCELERATE_USE_MEGATRON_LM")
    if plugin is None and not by_launcher:
        return None
    if plugin is not None and all(kind.__name__ != "MegatronLMPlugin" for kind in type(plugin).__mro__):
        refuse_unsupported({"megatron_lm_plugin": plugin})
    here = "the launcher's --use_megatron_lm (ACCELERATE_USE_MEGATRON_LM)" if plugin is None else "megatron_lm_plugin"
    if parallelism is not None:
        raise ValueError(f"{here} and parallelism_config ask for the same: leave one out")
    if parse_flag_from_env("ACCELERATE_USE_PARALLELISM_CONFIG"):
        raise ValueError(
            f"{here} and the launcher's parallelism_config (ACCELERATE_USE_PARALLELISM_CONFIG) ask for the same: leave "
            "one out"
        )
    if plugin is None:
        from .plugins.megatron import MegatronLMPlugin

        return MegatronLMPlugin()
    found: MegatronLMPlugin = plugin
    return found


def read_deepspeed(
    plugin: DeepSpeedPlugin | None, several: dict[str, DeepSpeedPlugin] | None, strategy: str | None, others: Any
) -> dict[str, DeepSpeedPlugin]:
    """The plugins for DeepSpeed by name, the one in use first; none where nobody asks for it.

    Args:
        others: the plugins of other engines: one of them wins over what a launcher says.

    Raises:
        TypeError: one is of another class.
        ValueError: both arguments are given.
    """
    if plugin is not None and several is not None:
        raise ValueError("pass deepspeed_plugin or deepspeed_plugins, not both")
    if isinstance(plugin, dict):
        plugin, several = None, plugin
    asked = strategy or os.environ.get("ACCELERATE_STRATEGY")
    by_launcher = parse_flag_from_env("ACCELERATE_USE_DEEPSPEED") and not any(
        one is not None for one in others.values()
    )
    if plugin is None and several is None and asked != "deepspeed" and not by_launcher:
        return {}
    from .plugins.deepspeed import DeepSpeedPlugin

    if several is None:
        several = {"default": DeepSpeedPlugin() if plugin is None else plugin}
    if not isinstance(several, dict) or not several:
        raise TypeError(f"deepspeed_plugins={_short(several)}: pass a dict of DeepSpeedPlugin objects by name")
    for one in several.values():
        if not isinstance(one, DeepSpeedPlugin):
            raise TypeError(f"deepspeed_plugin={_short(one)}: pass a DeepSpeedPlugin")
        one._unselect()
    next(iter(several.values())).select(_from_accelerator_state=True)
    return several


def read_mixed_precision(given: Any, deepspeed: DeepSpeedPlugin | None = None) -> str:
    """The precision asked for: the argument, else ACCELERATE_MIXED_PRECISION, else DeepSpeed's config, else "no".

    Raises:
        ValueError: DeepSpeed's config says another one.
    """
    said = None if given is None else str(getattr(given, "value", given))
    if said is None:
        said = os.environ.get("ACCELERATE_MIXED_PRECISION") or None
        if deepspeed is not None and said in (None, "no"):  # launch configs say "no" where nobody has chosen
            said = deepspeed.precision()
    mode = check_mode("no" if said is None else said)
    if deepspeed is not None and mode != "fp8":
        deepspeed.set_mixed_precision(mode)
    return mode


def read_accumulation(steps: Any, plugin: GradientAccumulationPlugin | None) -> GradientAccumulationPlugin:
    """How to accumulate: the plugin, or a number of steps, over which ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins."""
    if plugin is not None:
        if steps != 1:
            raise ValueError(f"pass gradient_accumulation_steps={steps!r} or gradient_accumulation_plugin, not both")
        return plugin
    told = number_from_env("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", 1)
    return GradientAccumulationPlugin(num_steps=check_steps(steps if told is None else told))


def read_handlers(handlers: Iterable[Any] | None) -> Handlers:
    """The `kwargs_handlers` by class.

    Raises:
        TypeError: one is of no class that this version knows.
        ValueError: two are of one class.
    """
    found: Handlers = {}
    for handler in handlers or ():
        if not isinstance(handler, KwargsHandler) or type(handler).__name__ not in _HANDLERS:
            raise TypeError(
                f"kwargs_handlers: {_short(handler)} is not supported; allowed are objects of {', '.join(_HANDLERS)}"
            )
        if type(handler) in found:
            raise ValueError(f"kwargs_handlers: two objects of {type(handler).__name__}; pass one")
        found[type(handler)] = handler
    return found


def handler_of(handlers: Handlers, kind: type[H]) -> H | None:
    """The handler of that class, if there is one."""
    found = handlers.get(kind)
    return found if isinstance(found, kind) else None


def read_fp8_recipe(mode: str, handlers: Handlers) -> Recipe | None:
    """The recipe of `mixed_precision="fp8"`: the handler, else what environment and installation say.

    Raises:
        ValueError: there is a recipe without fp8, or there are two.
        ImportError: no engine is installed.
    """
    given: list[Any] = [handler for kind, handler in handlers.items() if kind.__name__ in _FP8_RECIPES]
    if mode != "fp8":
        if given:
            raise ValueError(
                f"kwargs_handlers: {type(given[0]).__name__} is a recipe of fp8, but mixed_precision is {mode!r}; "
                "pass mixed_precision='fp8', or leave the recipe out."
            )
        return None
    if len(given) > 1:
        raise ValueError("kwargs_handlers: AORecipeKwargs and TERecipeKwargs are two recipes of fp8; pass one")
    return given[0] if given else choose_recipe()


def read_loader_config(config: DataLoaderConfiguration | None, **shortcuts: bool | None) -> DataLoaderConfiguration:
    """The loader configuration, with the constructor's own `split_batches` and `even_batches` honoured."""
    if config is not None and not isinstance(config, DataLoaderConfiguration):
        raise TypeError(f"dataloader_config={_short(config)}: pass a DataLoaderConfiguration")
    asked = {name: value for name, value in shortcuts.items() if value is not None}
    if config is None:
        return DataLoaderConfiguration(**asked)
    for name, value in asked.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"{name}={value} was passed beside dataloader_config, whose {name} is {not value}; pass one"
            )
    return dataclasses.replace(config)


def read_project(project_dir: str | os.PathLike[str] | None, config: Any) -> ProjectConfiguration:
    """The project's folders; `project_dir` fills a config that has none."""
    if config is None:
        return ProjectConfiguration(project_dir=None if project_dir is None else str(Path(project_dir)))
    if not isinstance(config, ProjectConfiguration):
        raise TypeError(f"project_config={_short(config)}: pass a ProjectConfiguration")
    if project_dir is not None and config.project_dir is None:
        config.set_directories(str(project_dir))
    return config


def read_trackers(log_with: Any, logging_dir: str | None) -> RunningTrackers | None:
    """The trackers asked for, checked and not yet started; None without any. See `tracking.filter_trackers`."""
    if log_with is None:
        return None
    from .tracking.registry import filter_trackers
    from .tracking.running import RunningTrackers

    return RunningTrackers(filter_trackers(log_with, logging_dir), logging_dir)


def read_rng_types(given: Iterable[Any] | None) -> tuple[str, ...]:
    """The random states to share at each pass."""
    kinds = tuple(str(getattr(kind, "value", kind)) for kind in (given if given is not None else ("generator",)))
    for kind in kinds:
        if kind not in RNGType:
            raise ValueError(f"rng_types: {kind!r} is not one of {', '.join(RNGType.list())}")
    return kinds


def read_dynamo(backend: Any, plugin: TorchDynamoPlugin | None) -> TorchDynamoPlugin:
    """How models are compiled: the plugin, or a backend, or what ACCELERATE_DYNAMO_BACKEND and its kind say."""
    if plugin is None:
        return TorchDynamoPlugin(backend=backend)
    if backend is not None:
        raise ValueError(f"pass dynamo_backend={_short(backend)} or dynamo_plugin, not both")
    if not isinstance(plugin, TorchDynamoPlugin):
        raise TypeError(f"dynamo_plugin={_short(plugin)}: pass a TorchDynamoPlugin")
    return plugin


def read_parallelism(given: ParallelismConfig | None, tensor_plugin: Any = None) -> ParallelismConfig | None:
    """How processes are spread over kinds of parallelism: the argument, or what the launcher's environment says.

    Args:
        tensor_plugin: a TorchTensorParallelPlugin, of old.

    Raises:
        NotImplementedError: it asks for what this version does not have.
    """
    if tensor_plugin is not None:
        given = _of_tensor_plugin(tensor_plugin, given)
    if given is None and not parse_flag_from_env("ACCELERATE_USE_PARALLELISM_CONFIG"):
        return None
    from .plugins.parallelism import NO_ULYSSES, ParallelismConfig

    if given is None:
        given = ParallelismConfig()
    if not isinstance(given, ParallelismConfig):
        raise TypeError(f"parallelism_config={_short(given)}: pass a ParallelismConfig")
    for kind in given.active_mesh_dims:
        if kind == "sp":
            raise NotImplementedError(f"parallelism_config: sp_size={given.sp_size}: {NO_ULYSSES}")
    together = [kind for kind in ("cp", "tp", "pp") if kind in given.active_mesh_dims]
    if len(together) > 1:
        sizes = " with ".join(f"{kind}_size={getattr(given, kind + '_size')}" for kind in together)
        raise NotImplementedError(f"parallelism_config: {sizes} is not supported here; set all but one of them to 1.")
    return given


def _of_tensor_plugin(plugin: Any, config: ParallelismConfig | None) -> ParallelismConfig:
    from .plugins.parallelism import ParallelismConfig, TorchTensorParallelPlugin

    if not isinstance(plugin, TorchTensorParallelPlugin):
        raise TypeError(f"torch_tp_plugin={_short(plugin)}: pass a TorchTensorParallelPlugin")
    if config is not None:
        raise ValueError("pass torch_tp_plugin or parallelism_config, not both; parallelism_config is the newer one")
    warnings.warn(
        f"torch_tp_plugin is deprecated: pass parallelism_config=ParallelismConfig(tp_size={plugin.tp_size})",
        FutureWarning,
        stacklevel=4,
    )
    return ParallelismConfig(tp_size=plugin.tp_size)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"<{type(value).__name__}>"
