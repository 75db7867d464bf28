"""The state of an optimizer that an engine shards, as an unsharded one has it: for files that every strategy reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...checkpointing.layout import CheckpointError
from .wholes import is_stepped, refuse_disks, set_part

if TYPE_CHECKING:
    from .engine import EngineModel


class WholeOptimizer:
    """Looks like the script's optimizer, over the parameters that it was made with; states are gathered and spread.

    All methods are to be called on every process.

    Args:
        groups: the parameters of each group, as the script made them.
        keep: whether this process gets what is gathered.

    Attributes:
        state: empty: there is no tensor to read into.
    """

    def __init__(
        self, model: EngineModel, optimizer: torch.optim.Optimizer, groups: list[list[Any]], keep: bool
    ) -> None:
        self.model, self.optimizer, self.groups, self.keep = model, optimizer, groups, keep
        self.state: dict[Any, Any] = {}
        refuse_disks(model)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups with today's rates and the script's parameters."""
        pairs = zip(self.optimizer.param_groups, self.groups, strict=True)
        return [{**group, "params": parameters} for group, parameters in pairs]

    def state_dict(self) -> dict[str, Any]:
        """As torch's optimizer gives it; without tensors where the whole is not kept.

        Raises:
            CheckpointError: the optimizer has states that are neither of an element nor of all parameters.
        """
        self._link()
        numbers = iter(range(sum(map(len, self.groups))))
        state: dict[int, dict[str, Any]] = {}
        groups = []
        for group in self.param_groups:
            mine = []
            for parameter in group["params"]:
                mine.append(next(numbers))
                entries = self._gathered(parameter)
                if entries and self.keep:
                    state[mine[-1]] = entries
            groups.append({**group, "params": mine})
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this process's part.

        Raises:
            ValueError: the groups are others.
            CheckpointError: states of parameters that ZeRO steps as one differ in what they have in common.
        """
        saved = state_dict["param_groups"]
        if [len(group["params"]) for group in saved] != [len(group) for group in self.groups]:
            raise ValueError("loaded state dict contains other parameter groups than the optimizer has")
        for mine, theirs in zip(self.optimizer.param_groups, saved, strict=True):
            mine.update({name: value for name, value in theirs.items() if name != "params"})
        numbers = [number for group in saved for number in group["params"]]
        parameters = [parameter for group in self.groups for parameter in group]
        states = [state_dict["state"].get(number) or {} for number in numbers]
        self._prepare_pieces(parameters, states)
        for parameter, entries in zip(parameters, states, strict=True):
            self._take(parameter, entries)

    # Pieces: the flat tensors that ZeRO steps, each of many parameters

    def _piece(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """The flat tensor with this process's part of the parameter; without ZeRO the parameter's own."""
        zero: Any = self.model.engine.optimizer
        found: torch.Tensor
        if not self.model.engine.zero_optimization():
            for lows, highs in zip(getattr(zero, "fp16_groups", []), getattr(zero, "fp32_groups", []), strict=True):
                for low, high in zip(lows, highs, strict=True):
                    if low is parameter:
                        found = high
                        return found
            return parameter
        if not is_stepped(parameter):
            return None
        if self.model.engine.zero_optimization_partition_weights():
            index = zero.grad_position[zero.get_param_id(parameter)][0]
            found = zero.fp32_partitioned_groups_flat[index]
            return found
        for index, group in enumerate(zero.bit16_groups):
            if any(one is parameter for one in group):
                found = zero.single_partition_of_fp32_groups[index]
                return found
        return None

    def _base(self) -> torch.optim.Optimizer:
        engine = self.model.engine
        base: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
        return base

    def _gathered(self, parameter: nn.Parameter) -> dict[str, Any]:
        piece = self._piece(parameter)
        own = {} if piece is None else self._base().state.get(piece, {})
        found: dict[str, Any] = {}
        for name, value in own.items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                found[name] = value.clone() if isinstance(value, torch.Tensor) else value
            elif value.shape == piece.shape:  # type: ignore[union-attr]
                whole = self._get(parameter, name, value)
                if self.keep:
                    found[name] = whole.detach().to("cpu", copy=True)
            else:
                self._refuse(name)
        return found

    def _get(self, parameter: nn.Parameter, name: str, value: torch.Tensor) -> torch.Tensor:
        if not self.model.engine.zero_optimization():
            return value
        from deepspeed.utils import safe_get_full_optimizer_state

        whole: torch.Tensor = safe_get_full_optimizer_state(parameter, name)
        return whole

    def _prepare_pieces(self, parameters: list[nn.Parameter], states: list[dict[str, Any]]) -> None:
        """Have each piece the states that its parameters have, with zeros in what is spread."""
        base, common = self._base(), dict[int, dict[str, Any]]()
        for parameter, entries in zip(parameters, states, strict=True):
            piece = self._piece(parameter)
            if piece is None or not entries:
                continue
            if id(piece) not in common:
                common[id(piece)] = base.state[piece] = {}
            state = common[id(piece)]
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            for name, value in entries.items():
                if isinstance(value, torch.Tensor) and value.dim() and tuple(value.shape) == shape:
                    if name not in state:
                        state[name] = torch.zeros_like(piece.detach(), dtype=value.dtype)
                elif isinstance(value, torch.Tensor) and value.dim():
                    self._refuse(name)
                elif name not in state:
                    state[name] = value.clone() if isinstance(value, torch.Tensor) else value
                elif state[name] != value:
                    raise CheckpointError(
                        f"the optimizer's {name} is {float(value):g} for some parameters and {float(state[name]):g} "
                        "for others, which ZeRO steps as one: the state cannot be loaded into it"
                    )
        self._link()

    def _link(self) -> None:
        """Have each parameter know where its states are. ZeRO-1 and 2 do so with the first step of the first group,
        when others have none yet."""
        zero = self.model.engine.optimizer
        if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()

    def _take(self, parameter: nn.Parameter, entries: dict[str, Any]) -> None:
        piece = self._piece(parameter)
        if piece is None:
            return
        for name, value in entries.items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                continue
            if self.model.engine.zero_optimization():
                set_part(parameter, value, name)
            else:
                self._base().state[piece][name].copy_(value)

    def _refuse(self, name: str) -> None:
        raise CheckpointError(
            f"{type(self._base()).__name__} keeps {name!r}, which is neither of each element nor of all: such states "
            "cannot be put together from ZeRO's pieces. Use DeepSpeed's own model.engine.save_checkpoint()."
        )
