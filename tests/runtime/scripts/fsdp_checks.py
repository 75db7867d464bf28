"""Sharded models (FSDP2) on two processes: they train as one process does on all the data, whatever the options."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import (
    Accelerator,
    DistributedDataParallelKwargs,
    DistributedType,
    ParallelismConfig,
    load_checkpoint_in_model,
)
from accelerate_runtime.checkpointing.layout import CheckpointError
from accelerate_runtime.local_sgd import LocalSGD
from accelerate_runtime.utils import (
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    merge_fsdp_weights,
)

warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Reader(nn.Module):
    """Three blocks between an embedding and a head that shares its weights; one buffer is in no file."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x).mean(1) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def reader(seed: int = 0) -> Reader:
    torch.manual_seed(seed)
    return Reader()


DRAWN = torch.Generator().manual_seed(4)
TEXTS, LABELS = torch.randint(0, 20, (48, 5), generator=DRAWN), torch.randint(0, 20, (48,), generator=DRAWN)


@functools.cache
def alone() -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Losses and gradient norms of each step, and the weights afterwards, of plain torch on one process."""
    model = reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for _ in range(2):
        for x, y in zip(TEXTS.split(16), LABELS.split(16), strict=True):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.4).item())
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, norms, model.state_dict()


class Training:
    """A training on both processes, of the same steps as `alone`."""

    def __init__(self, steps: int = 1, seed: int = 0, together: bool = True, **options: Any) -> None:
        options = {"auto_wrap_policy": "transformer_based_wrap"} | options
        accumulation = GradientAccumulationPlugin(
            num_steps=steps, sync_each_batch=options.pop("sync_each_batch", False)
        )
        self.accelerator = Accelerator(
            gradient_accumulation_plugin=accumulation,
            mixed_precision=options.pop("mixed_precision", None),
            parallelism_config=options.pop("parallelism", None),
            kwargs_handlers=[options.pop("scaling", GradScalerKwargs())],
            fsdp_plugin=FullyShardedDataParallelPlugin(**options),
        )
        model = reader(seed)
        self.norms: list[float] = []
        self.listed = list(model.parameters())
        optimizer: Any = torch.optim.AdamW(self.listed, lr=0.01)
        loader: Any = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8 // steps)
        prepare = self.accelerator.prepare
        if together:
            self.model, self.optimizer, self.loader = prepare(model, optimizer, loader)
        else:
            self.optimizer, self.loader, self.model = prepare(optimizer), prepare(loader), prepare(model)

    def epoch(self, parameters: Any = None) -> list[float]:
        """The losses of each step, over both processes."""
        accelerator, losses, window = self.accelerator, [], []
        for x, y in self.loader:
            with accelerator.accumulate(self.model):
                loss = nn.functional.cross_entropy(self.model(x), y)
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(parameters or self.model.parameters(), 0.4)
                self.optimizer.step()
                self.optimizer.zero_grad()
            window.append(accelerator.reduce(loss.detach(), "mean").item())
            if accelerator.sync_gradients:
                losses.append(sum(window) / len(window))
                window = []
                self.norms.append(norm.item())
        return losses

    def weights(self) -> dict[str, torch.Tensor]:
        return self.accelerator.get_state_dict(self.model)


def like_alone(training: Training, parameters: Any = None, tolerance: float = 1e-5) -> None:
    """The training has the losses, the norms and the weights of `alone`."""
    losses, norms, weights = alone()
    assert training.epoch(parameters) + training.epoch(parameters) == pytest.approx(losses, rel=tolerance)
    assert training.norms == pytest.approx(norms, rel=tolerance)
    found = training.weights()
    assert list(found) == (list(weights) if me == 0 else [])
    for name, weight in found.items():
        torch.testing.assert_close(weight, weights[name], rtol=tolerance, atol=tolerance)


def check_sharded_models_train_as_one_process_does() -> None:
    training = Training()
    accelerator, model = training.accelerator, training.model
    assert (accelerator.distributed_type, accelerator.is_fsdp2) == (DistributedType.FSDP, True)
    assert isinstance(model, Reader)
    assert accelerator.unwrap_model(model) is model
    assert model.head.weight is model.embedding.weight
    weight = model.blocks[0].wide.weight
    assert isinstance(weight, DTensor)
    like_alone(training)
    moments = training.optimizer.optimizer.state[weight]
    assert weight.to_local().shape == moments["exp_avg"].to_local().shape == (12, 8)


def check_order_and_lists_of_before_do_not_matter() -> None:
    training = Training(seed=me, together=False)  # all start as the main process does
    assert all(mine is not old for mine, old in zip(training.model.parameters(), training.listed, strict=True))
    like_alone(training, parameters=training.listed)
    with pytest.raises(RuntimeError, match=r"was given a parameter of before prepare\(\)"):
        sum(parameter.square().sum() for parameter in training.listed)


def check_every_way_of_sharding() -> None:
    for options in (
        {"sharding_strategy": "SHARD_GRAD_OP"},
        {"sharding_strategy": "NO_SHARD", "auto_wrap_policy": "no_wrap"},
        {"reshard_after_forward": False, "auto_wrap_policy": "size_based_wrap", "min_num_params": 300},
        {"cpu_offload": True, "transformer_cls_names_to_wrap": ["Block"]},
        {"activation_checkpointing": True, "activation_checkpointing_offload": True},
        {"parallelism": ParallelismConfig(dp_shard_size=2)},
    ):
        like_alone(Training(**options))


def check_windows_of_sharded_models_are_global_batches() -> None:
    for options in (
        {},
        {"reshard_after_forward": False},
        {"sync_each_batch": True},
    ):
        training = Training(steps=4, **options)
        like_alone(training)


def check_mixed_precision_gathers_in_the_lower_type() -> None:
    seen = []
    for mode, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        training = Training(mixed_precision=mode, scaling=GradScalerKwargs(init_scale=256.0))
        training.model.blocks[1].wide.register_forward_pre_hook(lambda part, _: seen.append(part.weight.dtype))
        losses, _, _ = alone()
        assert training.epoch() + training.epoch() == pytest.approx(losses, rel=0.03)
        assert {*seen} == {dtype}
        seen.clear()
        assert training.model.blocks[1].wide.weight.dtype == torch.float32


def check_only_the_main_process_needs_the_weights() -> None:
    for place in ("cpu", "meta"):
        with torch.device("cpu" if me == 0 else place):
            model = reader(seed=me)
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=True))
        model = accelerator.prepare(model)
        assert (model.scale.item(), model.scale.device.type) == (0.5, "cpu")
        found = accelerator.get_state_dict(model)
        for name, weight in found.items():
            assert torch.equal(weight, reader().state_dict()[name])
    with torch.device("meta"):
        bare = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()).prepare(bare)
    numbers = everyone(bare[0].weight.full_tensor().tolist())
    assert numbers[0] == numbers[1] != torch.zeros(4, 4).tolist()
    with torch.device("meta"):
        own = Scaled()
    with pytest.raises(ValueError, match=r"Scaled has no reset_parameters\(\)"):
        Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()).prepare(own)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(2))


def check_parts_that_are_not_trained() -> None:
    model, head = reader(), nn.Linear(8, 8)
    for parameter in model.blocks[0].parameters():
        parameter.requires_grad_(False)
    before = model.blocks[0].wide.weight.detach().clone()
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", ignored_modules=r"blocks\.2")
    accelerator = Accelerator(fsdp_plugin=plugin)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(trained, lr=0.01, foreach=None))
    assert not isinstance(model.blocks[2].wide.weight, DTensor)
    for _ in range(2):
        accelerator.backward(nn.functional.cross_entropy(model(TEXTS[:4]), LABELS[:4]))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    after = model.blocks[0].wide.weight.full_tensor()
    assert torch.equal(after, before)
    assert accelerator.prepare_model(head, evaluation_mode=True) is head
    assert not isinstance(head.weight, DTensor)


def check_states_in_shards_go_everywhere() -> None:
    folder = FOLDER / "shards"
    training = Training()
    training.epoch()
    training.accelerator.save_state(folder / "now")
    training.accelerator.save_state(folder / "later", async_save=True)
    rest = training.epoch()
    weights = training.weights()
    training.accelerator.save_state(folder / "end")  # waits for the one before
    for name in ("now", "later"):
        other = Training(seed=1)
        other.accelerator.load_state(folder / name)
        assert other.epoch() == rest  # bit for bit: as many processes
        assert all(torch.equal(weight, weights[key]) for key, weight in other.weights().items())
    training.accelerator.load_state(folder / "now")  # into the same objects
    assert training.epoch() == rest

    if me == 0:
        merge_fsdp_weights(folder / "end", folder / "merged")
        plain = reader(1)
        load_checkpoint_in_model(plain, folder / "merged", strict=True)
        assert all(torch.equal(weight, plain.state_dict()[key]) for key, weight in weights.items())
        with pytest.raises(CheckpointError, match="holds no model"):
            merge_fsdp_weights(folder / "end" / "optimizer_0", folder / "merged")

    whole = Training(state_dict_type="FULL_STATE_DICT", auto_wrap_policy="no_wrap")
    whole.accelerator.load_state(folder / "now")
    whole.accelerator.save_state(folder / "whole")
    assert whole.epoch() == pytest.approx(rest, rel=1e-5)
    assert (folder / "whole" / "model.safetensors").is_file()
    again = Training(seed=1)
    again.accelerator.load_state(folder / "whole")
    assert again.epoch() == pytest.approx(rest, rel=1e-5)
    copies = Accelerator(), reader(1)
    optimizer = torch.optim.AdamW(copies[1].parameters(), lr=0.01)
    model, optimizer, loader = copies[0].prepare(copies[1], optimizer, DataLoader(TensorDataset(TEXTS, LABELS), 8))
    for name in ("now", "whole"):
        copies[0].load_state(folder / name)
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            copies[0].backward(loss)
            copies[0].clip_grad_norm_(model.parameters(), 0.4)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(copies[0].reduce(loss.detach(), "mean").item())
        assert losses == pytest.approx(rest, rel=1e-5)


def check_states_are_those_of_the_shards_after_an_evaluation() -> None:
    for name, options in {"blocks": {}, "all": {"reshard_after_forward": False}}.items():
        training = Training(**options)
        training.epoch()
        with torch.no_grad():
            training.model(TEXTS[:4])  # no backward frees what this has gathered
        training.accelerator.save_state(FOLDER / f"evaluated-{name}")
        rest = training.epoch()
        other = Training(seed=1, **options)
        with torch.no_grad():
            other.model(TEXTS[:4])
        other.accelerator.load_state(FOLDER / f"evaluated-{name}")
        assert other.epoch() == rest


def check_damaged_shards_are_named() -> None:
    folder = FOLDER / "damaged-shards"
    training = Training()
    training.epoch()
    training.accelerator.save_state(folder)
    shard = folder / "pytorch_model_fsdp_0" / "__1_0.distcp"
    if me == 0:
        numbers = bytearray(shard.read_bytes())
        numbers[-5] ^= 1
        shard.write_bytes(numbers)
    training.accelerator.wait_for_everyone()
    with pytest.raises(CheckpointError, match=r"__1_0\.distcp is damaged"):
        training.accelerator.load_state(folder)
    training.accelerator.wait_for_everyone()
    if me == 0:
        shard.unlink()
    training.accelerator.wait_for_everyone()
    with pytest.raises(CheckpointError, match=r"__1_0\.distcp is missing"):
        training.accelerator.load_state(folder)


def check_an_open_window_is_saved_only_if_it_can_be() -> None:
    for together in (False, True):
        training = Training(steps=3, sync_each_batch=together)
        x, y = TEXTS[me::2][:4], LABELS[me::2][:4]

        def micro_batch(training: Training = training, x: Any = x, y: Any = y) -> None:
            with training.accelerator.accumulate(training.model):
                training.accelerator.backward(nn.functional.cross_entropy(training.model(x), y))
                training.optimizer.step()
                training.optimizer.zero_grad()

        micro_batch()
        folder = FOLDER / f"open-{together}"
        if not together:
            with pytest.raises(CheckpointError, match="its gradients are not exchanged yet"):
                training.accelerator.save_state(folder)
            continue
        training.accelerator.save_state(folder)
        micro_batch()
        micro_batch()
        weights = training.weights()
        other = Training(steps=3, sync_each_batch=True, seed=1)
        other.accelerator.load_state(folder)
        micro_batch(other)
        micro_batch(other)
        assert all(torch.equal(weight, weights[name]) for name, weight in other.weights().items())


def check_scripts_files_of_sharded_models_are_whole() -> None:
    training = Training()
    training.epoch()
    accelerator = training.accelerator
    saved = {"model": training.weights(), "optimizer": training.optimizer.state_dict()}
    assert bool(saved["optimizer"]["state"]) == (me == 0)
    accelerator.save(saved, FOLDER / "script.pt")
    with pytest.raises(ValueError, match=r"shards.*get_state_dict"):
        accelerator.save(training.model.state_dict(), FOLDER / "shards.pt")
    rest = training.epoch()
    accelerator.wait_for_everyone()
    loaded = torch.load(FOLDER / "script.pt")
    plain = reader(1)
    plain.load_state_dict(loaded["model"])
    torch.optim.AdamW(plain.parameters(), lr=0.01).load_state_dict(loaded["optimizer"])
    other = Training(seed=1)
    other.model.load_state_dict(loaded["model"])
    other.optimizer.load_state_dict(loaded["optimizer"])
    assert other.epoch() == rest
    accelerator.save_model(training.model, FOLDER / "exported")
    accelerator.wait_for_everyone()
    assert (FOLDER / "exported" / "model.safetensors").is_file()


def check_methods_of_sharded_models_run() -> None:
    model = WithMethod()
    expected = model.features(torch.ones(2, 4)).detach()
    model = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()).prepare(model)
    features = model.features(torch.ones(2, 4))
    torch.testing.assert_close(features.detach(), expected)
    features.sum().backward()
    assert isinstance(model.body.weight.grad, DTensor)
    if me == 0:
        assert model.size() == 2  # gathers nothing: it may be called on one process


def check_contexts_that_need_whole_models_are_refused() -> None:
    training = Training()
    joined = training.accelerator.join_uneven_inputs([training.model])
    with pytest.raises((TypeError, ValueError), match="join_uneven_inputs"), joined:
        pass
    with pytest.raises(NotImplementedError, match="LocalSGD averages models that processes hold whole"):
        LocalSGD(training.accelerator, training.model, local_sgd_steps=2)


class WithMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def size(self) -> int:
        return len([*self.children()])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.body(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


def check_what_differs_between_processes_is_named() -> None:
    for options, told in (
        ({"reshard_after_forward": me == 0}, "reshard_after_forward is True on process 0, False on process 1"),
        ({"mixed_precision": ["no", "bf16"][me]}, "mixed_precision is no on process 0, bf16 on process 1"),
    ):
        with pytest.raises(ValueError, match=told):
            Training(**options)
    plugin = FullyShardedDataParallelPlugin() if me == 0 else None
    with pytest.raises(ValueError, match="the strategy is fsdp on process 0, ddp on process 1"):
        Accelerator(fsdp_plugin=plugin).prepare(reader())
    with pytest.raises(ValueError, match=r"weight is \(3, 2\) on process 0, \(4, 2\) on process 1"):
        Accelerator().prepare(nn.Linear(2, 3 + me))


class Odd(nn.Module):
    """Parameters without dimensions and without elements, one smaller than the number of processes, and BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(1))
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x)) * self.scale + self.shift


def check_odd_parameters_and_buffers_train_as_under_ddp() -> None:
    drawn = torch.Generator().manual_seed(2 + me)
    batches = [torch.randn(6, 4, generator=drawn) for _ in range(6)]
    ends = []
    for plugin in (None, FullyShardedDataParallelPlugin()):
        handler = DistributedDataParallelKwargs(find_unused_parameters=True)
        accelerator = Accelerator(fsdp_plugin=plugin, gradient_accumulation_steps=3, kwargs_handlers=[handler])
        model = Odd()
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.05))
        for x in batches:
            with accelerator.accumulate(model):
                accelerator.backward((model(x) - 1).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            seen = model(torch.ones(2, 4)).tolist()
        assert everyone(seen)[0] == everyone(seen)[1]  # the main process's running statistics
        ends.append((seen, accelerator.get_state_dict(model)))
    torch.testing.assert_close(torch.tensor(ends[0][0]), torch.tensor(ends[1][0]), rtol=1e-5, atol=1e-6)
    for name, value in ends[1][1].items():
        torch.testing.assert_close(value, ends[0][1][name], rtol=1e-5, atol=1e-6)


def check_numbers_of_shards_are_those_of_the_whole() -> None:
    training = Training()
    x, y = TEXTS[me * 8 :][:8], LABELS[me * 8 :][:8]
    training.accelerator.backward(nn.functional.cross_entropy(training.model(x), y))
    model = reader()
    nn.functional.cross_entropy(model(TEXTS[:16]), LABELS[:16]).backward()
    for mine, whole in zip(training.model.parameters(), model.parameters(), strict=True):
        assert mine.grad.norm().item() == pytest.approx(whole.grad.norm().item(), rel=1e-4)
        assert float(mine.grad.abs().max()) == pytest.approx(float(whole.grad.abs().max()), rel=1e-4)
        assert mine.grad.pow(2).sum().item() == pytest.approx(whole.grad.pow(2).sum().item(), rel=1e-4)


def check_what_optimizers_cannot_do_is_refused() -> None:
    for kind in (torch.optim.LBFGS, torch.optim.Adafactor):
        model = nn.Linear(4, 2)
        with pytest.raises(ValueError, match=f"{kind.__name__}, which works on whole parameters"):
            Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()).prepare(model, kind(model.parameters()))
    training = Training()
    bias = training.model.blocks[0].wide.bias
    group = training.optimizer.param_groups[0]
    group["params"] = [parameter for parameter in group["params"] if parameter is not bias]
    pairs = zip(training.listed, training.model.parameters(), strict=True)
    training.optimizer.add_param_group({"params": next(old for old, new in pairs if new is bias), "lr": 0.5})
    assert training.optimizer.param_groups[1]["params"][0] is bias


def check_weights_that_are_drawn_after_prepare_are_those_of_one_process() -> None:
    model = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()).prepare(nn.Linear(4, 6))
    alone = nn.Linear(4, 6)
    for fill in (nn.init.normal_, nn.init.xavier_uniform_, nn.init.trunc_normal_, nn.init.kaiming_normal_):
        drawn = []
        for one in (model, alone):
            torch.manual_seed(3)
            fill(one.weight)
            drawn.append(one.weight.detach())
        assert torch.equal(drawn[0].full_tensor(), drawn[1])
