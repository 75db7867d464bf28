"""Layers split over two processes (tensor parallelism): they train as one process does, on the same batches."""

from __future__ import annotations

import copy
import functools
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig, division
from accelerate_runtime.utils import (
    DataLoaderConfiguration,
    TorchTensorParallelConfig,
    TorchTensorParallelPlugin,
    patch_environment,
    set_seed,
)

warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")

WIDTH, HEADS, KEY_HEADS, VOCABULARY = 16, 4, 2, 20


class Attention(nn.Module):
    """Grouped keys, and norms of queries and keys, as in Qwen3."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.num_key_value_heads, self.head_dim = HEADS, KEY_HEADS, WIDTH // HEADS
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, KEY_HEADS * self.head_dim, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = nn.RMSNorm(self.head_dim), nn.RMSNorm(self.head_dim)

    def heads(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        return norm(x.view(*x.shape[:2], -1, self.head_dim)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = self.heads(self.q_proj(x), self.q_norm), self.heads(self.k_proj(x), self.k_norm)
        v = self.heads(self.v_proj(x), nn.Identity())
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


class Narrow(Attention):
    """Counts on all heads being there."""

    def heads(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        count = self.num_heads if x.shape[-1] == self.q_proj.weight.shape[0] else self.num_key_value_heads
        return norm(x.view(*x.shape[:2], count, self.head_dim)).transpose(1, 2)


class Stretched(Attention):
    """Has its heads be as wide as there is room, which is another thing than it says."""

    def heads(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        count = self.num_heads if norm is self.q_norm else self.num_key_value_heads
        return x.view(*x.shape[:2], count, -1).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24)
        self.down_proj = nn.Linear(24, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, attention: type[nn.Module], dropout: float) -> None:
        super().__init__()
        self.norm1, self.self_attn, self.norm2, self.mlp = nn.RMSNorm(WIDTH), attention(), nn.RMSNorm(WIDTH), MLP()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.self_attn(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Decoder(nn.Module):
    """A small language model, whose head shares the embeddings' weights."""

    def __init__(self, attention: type[nn.Module] = Attention, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(7, WIDTH)
        self.layers = nn.ModuleList(Layer(attention, dropout) for _ in range(2))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def decoder(*arguments: Any) -> Decoder:
    torch.manual_seed(0)
    return Decoder(*arguments)


TEXTS = torch.randint(0, VOCABULARY, (12, 8), generator=torch.Generator().manual_seed(4))
BATCHES = TEXTS.split(4)


def loss_of(model: nn.Module, texts: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())


@functools.cache
def alone(dropout: float = 0.0) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Losses and gradient norms of each step, and the weights afterwards, of plain torch."""
    model = decoder(Attention, dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    torch.manual_seed(3)
    for texts in BATCHES:
        loss = loss_of(model, texts)
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms, {name: value.detach() for name, value in model.state_dict().items()}


@contextmanager
def tensor(handler: dict[str, Any] | None = None, **arguments: Any) -> Iterator[Accelerator]:
    """An Accelerator that splits tensors over both processes."""
    config = ParallelismConfig(tp_size=2, tp_handler=TorchTensorParallelConfig(**handler) if handler else None)
    try:
        yield Accelerator(parallelism_config=config, **arguments)
    finally:
        division.forget()  # the checks that follow are of processes with different batches


def trained(accelerator: Accelerator, dropout: float = 0.0, model: nn.Module | None = None) -> tuple[Any, Any, Any]:
    """The losses, norms and weights of the same training."""
    model = decoder(Attention, dropout) if model is None else model
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses, norms = [], []
    torch.manual_seed(3)
    for texts in BATCHES:
        loss = loss_of(model, texts)
        accelerator.backward(loss)
        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms, whole(accelerator, model)


def whole(accelerator: Accelerator, model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict of the main process, on both."""
    state = accelerator.get_state_dict(model)
    return everyone(dict(state))[0]


def expect_as_alone(found: tuple[Any, Any, Any], dropout: float = 0.0) -> None:
    losses, norms, weights = alone(dropout)
    assert found[0] == pytest.approx(losses, rel=1e-5)
    assert found[1] == pytest.approx(norms, rel=1e-5)
    assert found[2].keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(found[2][name], weight, rtol=1e-4, atol=1e-5)


def check_tensors_are_split_by_a_derived_plan() -> None:
    with tensor() as accelerator:
        model = accelerator.prepare(decoder())
        spread = {name: p for name, p in model.named_parameters() if isinstance(p, DTensor)}
        split = {name for name, p in spread.items() if p.to_local().numel() < p.numel()}
        assert {"layers.0.self_attn.q_proj.weight", "layers.1.mlp.down_proj.weight", "embed.weight"} <= split
        assert model.lm_head.weight is model.embed.weight
        assert not isinstance(model.norm.weight, DTensor)
        whole_bytes = sum(p.numel() for p in decoder().parameters())
        held = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in model.parameters())
        assert held < 0.6 * whole_bytes


def check_tensor_parallelism_trains_as_one_process() -> None:
    for handler in (None, {"sequence_parallel": True}, {"loss_parallel": True}):
        with tensor(handler) as accelerator:
            expect_as_alone(trained(accelerator))
    with tensor({"sequence_parallel": True, "loss_parallel": True}) as accelerator:
        expect_as_alone(trained(accelerator))


def check_tensor_parallelism_drops_alike() -> None:
    with tensor() as accelerator:
        expect_as_alone(trained(accelerator, dropout=0.3), dropout=0.3)


def check_tensor_parallelism_in_bf16_with_activations_computed_again() -> None:
    plugin = FullyShardedDataParallelPlugin(activation_checkpointing=True)
    with tensor(mixed_precision="bf16", fsdp_plugin=plugin) as accelerator:
        assert trained(accelerator)[0] == pytest.approx(alone()[0], rel=2e-2)


PLAN: dict[str, Any] = {
    "layers.*.mlp.gate_proj": "colwise",
    "layers.*.mlp.up_proj": ColwiseParallel(),
    "layers.*.mlp.down_proj": RowwiseParallel(),
    "layers.*.self_attn.[qkv]_proj": "colwise",
    "layers.*.self_attn.[qk]_norm": "replicated_with_grad_allreduce",
    "layers.*.self_attn.o_proj": "rowwise",
}


def check_a_copy_of_a_split_model_is_one_of_its_own() -> None:
    with tensor({"sequence_parallel": True}) as accelerator:
        model = accelerator.prepare(decoder())
        average = copy.deepcopy(model)  # before anything has run
        for one in (average, model):
            torch.testing.assert_close(loss_of(one, TEXTS), loss_of(decoder(), TEXTS))
        with torch.no_grad():
            model.embed.weight.mul_(2)
        torch.testing.assert_close(loss_of(average, TEXTS), loss_of(decoder(), TEXTS))


def check_tensor_plans_are_given_or_the_models_own() -> None:
    with tensor({"plan": PLAN}) as accelerator:
        expect_as_alone(trained(accelerator))
    with tensor() as accelerator:
        model = decoder()
        model._tp_plan = {"layers.*.mlp.up_proj": "colwise_rep", "layers.*.mlp.down_proj": "rowwise_rep"}  # type: ignore[assignment]
        expect_as_alone(trained(accelerator, model=model))
        assert isinstance(model.layers[0].mlp.up_proj.weight, DTensor)
        assert not isinstance(model.layers[0].mlp.gate_proj.weight, DTensor)


def refused(told: str, model: nn.Module, **handler: Any) -> None:
    with tensor(handler or None) as accelerator, pytest.raises(ValueError, match=told):
        trained(accelerator, model=model)


def check_tensor_plans_that_would_be_wrong_are_refused() -> None:
    refused(r"self_attn \(Narrow\) cannot be run once its layers are split.*-1 for the number", decoder(Narrow))
    refused("self_attn gives other numbers once its layers are split than whole", decoder(Stretched))
    without = {name: style for name, style in PLAN.items() if "norm" not in name}
    refused(r"got different gradients there.*shapes \(4,\), \(4,\)", decoder(), plan=without)
    refused("embed.weight and lm_head.weight are one parameter", decoder(), plan={"lm_head": "colwise_rep"})
    refused("no part of Decoder is called 'layers.\\*.up'", decoder(), plan={"layers.*.up": "colwise"})
    refused("style 'across' is not known; allowed are colwise,", decoder(), plan={"lm_head": "across"})
    refused("'places' is 3; pass a name", decoder(), plan={"places": 3})
    refused("Column splits a Linear, not Embedding|column splits a Linear", decoder(), plan={"places": "colwise"})
    refused("'places' has width 7|no multiple of", nn.Sequential(nn.Linear(4, 7)), plan={"0": "colwise"})
    refused("nothing was found in Linear that can be split over 2", nn.Linear(2, 2))
    two = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)
    refused("no layer that gives logits", nn.Sequential(*two), loss_parallel=True)
    odd = nn.Sequential(*two, nn.Conv1d(4, 4, 1))
    refused(r"not known how 3 \(Conv1d\)", odd, sequence_parallel=True)
    for mode in ("fp16", "fp8"):
        with pytest.raises(ValueError, match=f"'{mode}' with tp_size > 1"), tensor(mixed_precision=mode):
            pass
    with pytest.raises(ValueError, match="needs dp_shard_size"), tensor(fsdp_plugin=_plugin(cpu_offload=True)):
        pass
    with pytest.raises(ValueError, match="the strategy is fsdp on process 0, tensor on process 1"):
        Accelerator(parallelism_config=ParallelismConfig(tp_size=1 + me, dp_shard_size=2 - me))
    mixed = {"sequence_parallel": True} if me else {}
    with pytest.raises(ValueError, match=r"tp_handler is .* on process 0, .* on process 1"), tensor(mixed):
        pass
    with tensor() as accelerator, pytest.raises(ValueError, match="sharded already"):
        accelerator.prepare(accelerator.prepare(decoder()).layers[0])


def _plugin(**arguments: Any) -> FullyShardedDataParallelPlugin:
    return FullyShardedDataParallelPlugin(**arguments)


def check_tensor_states_go_to_other_processes_and_back() -> None:
    for kind in ("SHARDED_STATE_DICT", "FULL_STATE_DICT"):
        folder = FOLDER / f"tensor-{kind}"
        with tensor(fsdp_plugin=_plugin(state_dict_type=kind), gradient_accumulation_steps=2) as accelerator:
            weights, losses = _half_of_a_window(accelerator, folder)
        assert _rest(kind, folder) == pytest.approx(losses[1:], rel=1e-6), kind
        apart = Accelerator(gradient_accumulation_steps=2)
        model = decoder()
        model, _ = apart.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        with pytest.raises(Exception, match="in the middle of a window of 2 processes with 1 different batches"):
            apart.load_state(folder)
        for name, weight in weights.items():
            torch.testing.assert_close(apart.unwrap_model(model).state_dict()[name], weight)


def _objects(accelerator: Accelerator, seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = Decoder()
    return accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))


def _half_of_a_window(accelerator: Accelerator, folder: Any) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Three of four batches of two windows, a state in the middle of the second, then the last batch."""
    model, optimizer = _objects(accelerator, 0)
    losses = []
    for number, texts in enumerate([*BATCHES, BATCHES[0], BATCHES[1]]):
        with accelerator.accumulate(model):
            loss = loss_of(model, texts)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if number == 2:
            accelerator.save_state(folder)
            weights = whole(accelerator, model)
    return weights, losses[2:]


def _rest(kind: str, folder: Any) -> list[float]:
    with tensor(fsdp_plugin=_plugin(state_dict_type=kind), gradient_accumulation_steps=2) as accelerator:
        model, optimizer = _objects(accelerator, 9)
        accelerator.load_state(folder)
        losses = []
        for texts in (BATCHES[0], BATCHES[1]):
            with accelerator.accumulate(model):
                loss = loss_of(model, texts)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def check_tensor_models_come_from_the_meta_device_and_from_the_main_process() -> None:
    with tensor() as accelerator:
        torch.manual_seed(me)  # other numbers on each process: those of the main one count
        model = accelerator.prepare(Decoder())
        torch.manual_seed(0)
        for name, weight in Decoder().state_dict().items():
            torch.testing.assert_close(whole(accelerator, model)[name], weight, rtol=0, atol=0)
        with torch.device("meta"):
            empty = Decoder()
        empty = accelerator.prepare(empty)
        assert empty.lm_head.weight is empty.embed.weight
        empty.load_state_dict(decoder().state_dict())
        torch.testing.assert_close(loss_of(empty, TEXTS), loss_of(decoder(), TEXTS))
        accelerator.save_model(empty, FOLDER / "tensor-export")
    again = decoder()
    from accelerate_runtime import load_checkpoint_in_model

    nn.init.zeros_(again.embed.weight)
    load_checkpoint_in_model(again, FOLDER / "tensor-export", strict=True)
    torch.testing.assert_close(again.embed.weight, decoder().embed.weight)


class Noisy(Dataset[torch.Tensor]):
    """Draws from all generators."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(1) + random.random() + index


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.rand(5, 1)


def check_processes_of_one_model_get_the_same_batches() -> None:
    for dispatched in (False, True):
        config = DataLoaderConfiguration(dispatch_batches=dispatched)
        with tensor(dataloader_config=config) as accelerator:
            for loader in (
                DataLoader(TensorDataset(torch.arange(5.0)), batch_size=2, shuffle=True),
                DataLoader(Noisy(), batch_size=2, shuffle=True),
                DataLoader(Noisy(), batch_size=2, num_workers=1),
                DataLoader(Stream(), batch_size=2),
            ):
                set_seed(100 + me)  # out of step, as a script's own draws may leave them
                prepared = accelerator.prepare(loader)
                assert len(list(loader)) == 3
                seen = [batch for _ in range(2) for batch in prepared]
                assert len(everyone(seen)) == 2
                assert repr(everyone(seen)[0]) == repr(everyone(seen)[1])
                drawn = everyone(torch.rand(1).item())
                assert drawn[0] == drawn[1]


def check_processes_of_one_model_count_once() -> None:
    with tensor() as accelerator:
        assert accelerator.num_processes == 2
        assert accelerator.tensor_parallel_rank == me
        rows = torch.arange(3)
        assert accelerator.gather(rows).tolist() == [0, 1, 2]
        assert accelerator.gather_for_metrics(["a"]) == ["a"]
        assert accelerator.gather_for_metrics(rows).tolist() == [0, 1, 2]
        assert accelerator.reduce(torch.ones(1)).item() == 1
        assert accelerator.pad_across_processes(rows).tolist() == [0, 1, 2]
        with accelerator.split_between_processes([1, 2, 3]) as part:
            assert part == [1, 2, 3]
        if me == 1:
            accelerator.set_trigger()
        assert accelerator.check_trigger()
        set_seed(5, device_specific=True)
        assert len(set(everyone(torch.rand(1).item()))) == 1
        model: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        accelerator.backward(model(torch.ones(3, 4)).sum(), num_items=3)
        optimizer.step()
        scheduler.step()
        assert scheduler.scheduler.last_epoch == 1
        plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        plain.load_state_dict(before)
        plain(torch.ones(3, 4)).mean().backward()
        for name, value in whole(accelerator, model).items():
            torch.testing.assert_close(value, before[name] - plain.get_parameter(name).grad)


def check_tensor_gradients_are_clipped_by_value_and_by_their_largest() -> None:
    with tensor({"sequence_parallel": True}) as accelerator:
        model = accelerator.prepare(decoder())
        plain = decoder()
        for one in (model, plain):
            loss_of(one, TEXTS).backward()
        largest = accelerator.clip_grad_norm_(model.parameters(), 1e9, norm_type=float("inf"))
        torch.testing.assert_close(largest, nn.utils.clip_grad_norm_(plain.parameters(), 1e9, norm_type=float("inf")))
        accelerator.clip_grad_value_(model.parameters(), 0.01)
        nn.utils.clip_grad_value_(plain.parameters(), 0.01)
        for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
            gradient = ours.grad.full_tensor() if isinstance(ours.grad, DTensor) else ours.grad
            torch.testing.assert_close(gradient, theirs.grad, rtol=1e-4, atol=1e-6, msg=name)


def check_tensor_gradients_beside_whole_ones_are_clipped_by_value() -> None:
    with tensor({"plan": {"0": "colwise", "2": "rowwise"}}) as accelerator:
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 4))
        model = accelerator.prepare(copy.deepcopy(plain))
        for one in (model, plain):
            one(torch.ones(3, 4)).mean().backward()
        accelerator.clip_grad_value_(model.parameters(), 0.01)
        nn.utils.clip_grad_value_(plain.parameters(), 0.01)
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            gradient = ours.grad.full_tensor() if isinstance(ours.grad, DTensor) else ours.grad
            torch.testing.assert_close(gradient, theirs.grad)


def check_a_plugin_of_old_asks_for_tensor_parallelism() -> None:
    with pytest.warns(FutureWarning, match="ParallelismConfig"):
        accelerator = Accelerator(torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2))
    try:
        expect_as_alone(trained(accelerator))
    finally:
        division.forget()


def check_a_launcher_asks_for_megatron_lms_plugin_which_splits_and_clips() -> None:
    said = {"ACCELERATE_USE_MEGATRON_LM": "true", "MEGATRON_LM_TP_DEGREE": 2, "MEGATRON_LM_GRADIENT_CLIPPING": 0.5}
    with patch_environment(**said):
        accelerator = Accelerator()
    try:
        model: Any = decoder()
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        losses = []
        for texts in BATCHES:
            losses.append(loss_of(model, texts))
            accelerator.backward(losses[-1])
            optimizer.step()
            optimizer.zero_grad()
        assert [loss.item() for loss in losses] == pytest.approx(alone()[0], rel=1e-5)
        assert isinstance(model.layers[0].mlp.down_proj.weight, DTensor)
    finally:
        division.forget()
