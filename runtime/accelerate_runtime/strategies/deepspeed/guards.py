"""What would go wrong in silence where a script reads or loads weights of a model that an engine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ... import pieces

if TYPE_CHECKING:
    from .engine import EngineModel


def guard(model: EngineModel) -> None:
    """Have `state_dict` of a model sharded by ZeRO-3 (or of a part) say that it holds shards, and `load_state_dict`
    reach what the optimizer works on.

    The hooks are functions: a copy of the model shares them, while objects would be copied with all that they know.
    """
    flags: dict[str, Any] = model.__dict__
    engine, parts = model.engine, list[Any](model.module.modules())
    if not engine.zero_optimization_partition_weights():

        def note(*_: Any) -> None:
            flags["loaded"] = True

        for part in parts:
            part.register_load_state_dict_post_hook(note)
        return

    def refuse(part: nn.Module, *_: Any) -> None:
        if not flags["engine_reads"] and _holds_shards(part):
            raise RuntimeError(
                "state_dict() was called on a model of which ZeRO-3 has a part on each process: use "
                "accelerator.get_state_dict(model), called on every process"
            )

    pieces.keep_out_of_files(model.module)
    for parameter in model.module.parameters():
        pieces.keep_out_of_files(parameter)
    for part in parts:
        part.register_state_dict_post_hook(refuse)
        part.register_load_state_dict_pre_hook(_refuse_loading)
    own = engine.module_state_dict

    def module_state_dict(*args: Any, **kwargs: Any) -> Any:
        flags["engine_reads"] = True
        try:
            return own(*args, **kwargs)
        finally:
            flags["engine_reads"] = False

    engine.module_state_dict = module_state_dict


def _refuse_loading(part: nn.Module, *_: Any) -> None:
    if _holds_shards(part):
        raise RuntimeError(
            "load_state_dict() was called on a model of which ZeRO-3 has a part on each process: call that of the "
            "prepared model, on every process, or load before prepare()"
        )


def _holds_shards(part: nn.Module) -> bool:
    return any(hasattr(parameter, "ds_id") for parameter in part.parameters())
