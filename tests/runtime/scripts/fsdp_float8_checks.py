"""fp8 by torchao with FSDP: the numbers of torchao and fully_shard used raw, weights sent in 8 bits, plain files."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from both import FOLDER, accelerator, everyone, me
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin
from accelerate_runtime.meshes import hold, make_mesh
from accelerate_runtime.strategies.fsdp import _groups
from accelerate_runtime.utils import AORecipeKwargs, set_seed

STEPS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.middle, self.head = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(torch.relu(self.middle(x)))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(5)
    whole = [(torch.randn(16, 16, generator=drawn), torch.randint(0, 4, (16,), generator=drawn)) for _ in range(STEPS)]
    return [(x[me::2], y[me::2]) for x, y in whole]


def fresh(gather: bool = True, **options: Any) -> Any:
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", **options)
    recipe = AORecipeKwargs(enable_fsdp_float8_all_gather=gather)
    return Accelerator(mixed_precision="fp8", fsdp_plugin=plugin, kwargs_handlers=[recipe])


def prepared(accelerator: Any) -> tuple[Any, Any]:
    set_seed(2)
    model = Net()
    return accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))  # type: ignore[no-any-return]


def train(accelerator: Any, model: Any, optimizer: Any, steps: slice = slice(None)) -> list[float]:
    losses = []
    for x, y in batches()[steps]:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def raw(gather: bool) -> list[float]:
    """The same by torchao and fully_shard, without this library."""
    from torchao.float8 import (
        Float8LinearConfig,
        convert_to_float8_training,
        precompute_float8_dynamic_scale_for_fsdp,
    )

    set_seed(2)
    model = Net()
    mesh = make_mesh("cpu", (2,), ("dp_shard",))  # lets go of its groups before the interpreter ends
    config = Float8LinearConfig(emulate=True, pad_inner_dim=True, enable_fsdp_float8_all_gather=gather)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name not in ("first", "head"))
    inner = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = make_mesh("cpu", (2,), ("dp_shard",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=inner)
    fully_shard(model, mesh=mesh, mp_policy=inner, reshard_after_forward=False)
    for group in _groups(model):
        hold(group.mesh_info)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        loss = nn.functional.cross_entropy(out.float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if gather:
            precompute_float8_dynamic_scale_for_fsdp(model)
        losses.append(loss.item())
    return losses


def _check_numbers() -> None:
    for gather in (True, False):
        one = fresh(gather)
        model, optimizer = prepared(one)
        seen: list[str] = []
        model.blocks[0].up.register_forward_pre_hook(
            lambda layer, _, seen=seen: seen.append(type(layer.weight).__name__)
        )
        losses = train(one, model, optimizer)
        assert losses == raw(gather), (losses, raw(gather))
        assert all(("Float8" in name) == gather for name in seen), seen
        assert len(seen) == STEPS
        one.free_memory()


def _check_scales_are_those_of_the_weights() -> None:
    """They are computed once for each change: by a step, by loading, in place; and not where nothing has changed."""
    one = fresh()
    model, optimizer = prepared(one)
    x = batches()[0][0]
    weight = model.blocks[0].up.weight._local_tensor

    def scale() -> float:
        largest = max(everyone(float(weight._tensor.abs().max())))
        told = float(weight._precomputed_scale)
        assert abs(told - torch.finfo(torch.float8_e4m3fn).max / largest) < 1e-3 * told
        return told

    model(x)
    first, kept = scale(), weight._precomputed_scale
    model(x)
    assert weight._precomputed_scale is kept, "computed again, though nothing changed"
    train(one, model, optimizer, slice(1))
    model(x)
    assert scale() != first
    one.save_state(FOLDER / "float8")
    before = model(x)
    with torch.no_grad():
        model.blocks[0].up.weight.mul_(16)
    assert not torch.equal(model(x), before)
    sixteenth = scale()
    one.load_state(FOLDER / "float8")
    assert torch.equal(model(x), before)
    assert abs(scale() / sixteenth - 16) < 1e-3
    model.load_state_dict({name: 2 * value for name, value in whole_state(one, model).items()})
    model(x)
    scale()
    one.free_memory()


def whole_state(one: Any, model: Any) -> dict[str, torch.Tensor]:
    """The whole weights, on every process."""
    state = one.get_state_dict(model)
    assert all(type(value) is torch.Tensor for value in state.values()), {type(v) for v in state.values()}
    return everyone(state)[0]  # type: ignore[no-any-return]


def _check_files_are_plain() -> None:
    """States go on where they were left, in shards or whole, and others load them without fp8."""
    for kind in ("SHARDED_STATE_DICT", "FULL_STATE_DICT"):
        one = fresh(state_dict_type=kind)
        model, optimizer = prepared(one)
        train(one, model, optimizer, slice(2))
        one.save_state(FOLDER / kind)
        wanted, names = train(one, model, optimizer, slice(2, None)), list(whole_state(one, model))
        again = fresh()
        model, optimizer = prepared(again)
        again.load_state(FOLDER / kind)
        assert train(again, model, optimizer, slice(2, None)) == wanted
        assert all(
            isinstance(value, DTensor) and type(value._local_tensor) is torch.Tensor
            for name, value in model.state_dict().items()
            if "blocks" in name
        )
        plain = Accelerator(mixed_precision="no")
        model = plain.prepare_model(Net(), evaluation_mode=True)
        assert list(model.state_dict()) == names
        one.free_memory()
        again.free_memory()


def _check_a_model_without_memory_and_modules_left_whole() -> None:
    one = fresh(ignored_modules="blocks.1")
    set_seed(2)
    with torch.device("cpu" if me == 0 else "meta"):
        model = Net()
    model = one.prepare(model)
    kept = model.blocks[1].up.weight
    assert type(kept) is nn.Parameter
    assert not kept.is_meta
    assert "WithDynamicFloat8" in type(model.blocks[0].up.weight._local_tensor).__name__
    assert torch.isfinite(model(batches()[0][0])).all()
    set_seed(2)
    weights = whole_state(one, model)
    assert all(torch.equal(weights[name], value) for name, value in Net().state_dict().items())
    one.free_memory()


if importlib.util.find_spec("torchao") is not None:
    check_float8_numbers = _check_numbers
    check_float8_scales = _check_scales_are_those_of_the_weights
    check_float8_files = _check_files_are_plain
    check_float8_without_memory = _check_a_model_without_memory_and_modules_left_whole
else:
    accelerator.print("torchao is not installed: fp8 with FSDP is not checked")
