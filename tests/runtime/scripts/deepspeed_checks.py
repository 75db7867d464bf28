"""Models trained by DeepSpeed on two processes: as one process does on all the data, whatever ZeRO shards."""

from __future__ import annotations

import copy
import functools
import json
import os
import time
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import (
    Accelerator,
    DistributedDataParallelKwargs,
    DistributedType,
    load_checkpoint_in_model,
)
from accelerate_runtime.checkpointing.layout import CheckpointError
from accelerate_runtime.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler

STAGES = (0, 1, 2, 3)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(7), nn.Linear(7, 21), nn.Linear(21, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Reader(nn.Module):
    """Two blocks between an embedding and a head that shares its weights; sizes that two processes cannot share
    evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(19, 7)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(7, 19, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.register_buffer("shift", torch.tensor(0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x).mean(1) * self.scale + self.shift
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def reader(seed: int = 0) -> Reader:
    torch.manual_seed(seed)
    return Reader()


DRAWN = torch.Generator().manual_seed(4)
TEXTS, LABELS = torch.randint(0, 19, (48, 5), generator=DRAWN), torch.randint(0, 19, (48,), generator=DRAWN)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Two groups: weights, and the rest without decay."""
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.AdamW([{"params": weights}, {"params": others, "weight_decay": 0.0}], lr=0.01)


@functools.cache
def alone() -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Losses and gradient norms of each step, and the weights afterwards, of plain torch on one process."""
    model = reader()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    losses, norms = [], []
    for _ in range(2):
        for x, y in zip(TEXTS.split(16), LABELS.split(16), strict=True):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.4).item())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, norms, model.state_dict()


class Training:
    """A training on both processes, of the same steps as `alone`."""

    def __init__(
        self, steps: int = 1, seed: int = 0, order: str = "mosl", precision: str | None = None, **options: Any
    ):
        self.accelerator = Accelerator(
            mixed_precision=precision,
            gradient_accumulation_steps=steps,
            deepspeed_plugin=DeepSpeedPlugin(**options),
            step_scheduler_with_optimizer=True,
        )
        model = reader(seed)
        optimizer = adamw(model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)  # counts the steps of both processes
        loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8 // steps)
        things: dict[str, Any] = {"m": model, "o": optimizer, "s": scheduler, "l": loader}
        if order == "mosl":
            prepared = dict(zip(order, self.accelerator.prepare(*things.values()), strict=True))
        else:
            prepared = {one: self.accelerator.prepare(things[one]) for one in order}
        self.model, self.optimizer = prepared["m"], prepared["o"]
        self.scheduler, self.loader = prepared["s"], prepared["l"]
        assert self.model.engine.zero_optimization_stage() == self.accelerator.deepspeed_plugin.zero_stage
        self.norms: list[float] = []

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(x), y)

    def epoch(self) -> list[float]:
        """The losses of each step, over both processes."""
        accelerator, losses, window = self.accelerator, [], []
        for x, y in self.loader:
            with accelerator.accumulate(self.model):
                loss = self.loss(x, y)
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(self.model.parameters(), 0.4)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            window.append(accelerator.reduce(loss.detach(), "mean").item())
            if accelerator.sync_gradients:
                losses.append(sum(window) / len(window))
                window = []
                self.norms.append(norm.item())
        return losses

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: weight.clone() for name, weight in self.accelerator.get_state_dict(self.model).items()}


def like_alone(training: Training) -> None:
    """The training has the losses, the norms and the weights of `alone`."""
    losses, norms, weights = alone()
    assert training.epoch() + training.epoch() == pytest.approx(losses, rel=1e-5)
    assert training.norms == pytest.approx(norms, rel=1e-5)
    found = training.weights()
    if me == 0:
        assert list(found) == list(weights)
        for name, weight in found.items():
            torch.testing.assert_close(weight, weights[name], rtol=1e-5, atol=1e-5)


def check_every_stage_trains_as_one_process_does() -> None:
    for stage in STAGES:
        training = Training(zero_stage=stage)
        assert training.accelerator.distributed_type == DistributedType.DEEPSPEED
        assert training.accelerator.deepspeed_plugin.zero_stage == stage
        assert isinstance(training.accelerator.unwrap_model(training.model), Reader)
        like_alone(training)
        assert training.optimizer.param_groups[0]["lr"] == training.scheduler.get_last_lr()[0] == 0.01 * 0.5**3


def check_windows_and_offloading_train_as_one_process_does() -> None:
    for stage in STAGES:
        like_alone(Training(steps=4, zero_stage=stage))
    like_alone(Training(steps=2, zero_stage=2, offload_optimizer_device="cpu"))
    like_alone(Training(steps=2, zero_stage=3, offload_optimizer_device="cpu", offload_param_device="cpu"))
    like_alone(Training(zero_stage=3, hf_ds_config={"zero_optimization": {"stage3_param_persistence_threshold": 0}}))


def check_order_does_not_matter() -> None:
    for order in ("lsom", "mols"):
        like_alone(Training(seed=me, order=order, zero_stage=2))  # all start as the main process does


def check_bf16_keeps_float32_where_the_optimizer_works() -> None:
    losses, norms, _ = alone()
    for stage in STAGES:
        training = Training(precision="bf16", zero_stage=stage)
        assert training.epoch() + training.epoch() == pytest.approx(losses, rel=5e-3), stage
        assert training.norms == pytest.approx(norms, rel=3e-2)
        found = training.weights()
        if me == 0:
            assert {weight.dtype for name, weight in found.items()} == {torch.bfloat16}


def check_several_backwards_make_one_step() -> None:
    for stage in STAGES:
        training = Training(zero_stage=stage)
        accelerator, optimizer = training.accelerator, training.optimizer
        plain = reader()
        theirs = adamw(plain)
        for step in range(3):
            x, y = TEXTS[16 * step :][:16], LABELS[16 * step :][:16]
            mine = slice(8 * me, 8 * me + 8)
            output = training.model(x[mine])
            loss, others = nn.functional.cross_entropy(output, y[mine]), output.square().mean()
            if stage == 3:  # lets go of the parameters in backward
                with pytest.raises(NotImplementedError, match=r"retain_graph=True.* under ZeRO-3"):
                    accelerator.backward(loss, retain_graph=True)
                accelerator.backward(loss + others)
            else:
                accelerator.backward(loss, retain_graph=True)
                accelerator.backward(others)  # of the same forward
            accelerator.backward(training.loss(x[mine], y[mine]) * 0.5)
            optimizer.step()
            optimizer.zero_grad()
            output = plain(x)
            (1.5 * nn.functional.cross_entropy(output, y) + output.square().mean()).backward()
            theirs.step()
            theirs.zero_grad()
        found = training.weights()
        if me == 0:
            for name, weight in plain.state_dict().items():
                torch.testing.assert_close(found[name], weight, rtol=1e-5, atol=1e-5, msg=f"{stage} {name}")


def check_gradients_that_are_cleared_are_forgotten() -> None:
    for options in ({"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3}, OFFLOADED):
        training = Training(**options)
        for _ in range(2):
            training.accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]) * 100)
            training.optimizer.zero_grad()
        like_alone(training)


OFFLOADED = {"zero_stage": 2, "offload_optimizer_device": "cpu"}


def check_steps_that_are_left_out_are_told() -> None:
    for stage in (1, 2, 3):
        training = Training(zero_stage=stage)
        accelerator = training.accelerator
        before = training.weights()
        accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]) * float("inf" if me else 1))
        training.optimizer.step()
        training.scheduler.step()
        training.optimizer.zero_grad()
        assert accelerator.optimizer_step_was_skipped
        assert training.scheduler.scheduler.last_epoch == 0
        assert all(torch.equal(weight, before[name]) for name, weight in training.weights().items())
        like_alone(training)
        assert not accelerator.optimizer_step_was_skipped


def check_clipping_is_what_was_asked_for_or_refused() -> None:
    training = Training(zero_stage=2, gradient_clipping=0.4)
    like_alone(training)
    model, clip = training.model, training.accelerator.clip_grad_norm_
    training.accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]))
    with pytest.raises(ValueError, match=r"DeepSpeedPlugin\(gradient_clipping=0.4\) says .*0.4, but .* was given 1.0"):
        clip(model.parameters(), 1.0)
    with pytest.raises(ValueError, match=r"norm_type=inf"):
        clip(model.parameters(), 0.4, float("inf"))
    with pytest.raises(ValueError, match="some of the parameters"):
        clip(model.blocks.parameters(), 0.4)
    with pytest.raises(NotImplementedError, match="clip_grad_value_"):
        training.accelerator.clip_grad_value_(model.parameters(), 0.4)
    clip(model.parameters(), 0.4)
    with pytest.raises(RuntimeError, match=r"after clip_grad_norm_\(\)"):
        training.accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]))
    with pytest.raises(NotImplementedError, match="num_items"):
        training.accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]), num_items=3)
    ends = []
    for stage in STAGES:  # a config that clips, a script that does not
        training = Training(zero_stage=stage, hf_ds_config={"gradient_clipping": 0.01})
        for x, y in zip(TEXTS.split(16), LABELS.split(16), strict=True):
            training.accelerator.backward(training.loss(x, y))
            training.optimizer.step()
        ends.append(training.weights())
        plain = reader()
        optimizer = adamw(plain)
        for x, y in zip(TEXTS.split(16), LABELS.split(16), strict=True):
            nn.functional.cross_entropy(plain(x), y).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        if me == 0:
            for name, weight in plain.state_dict().items():
                torch.testing.assert_close(ends[-1][name], weight, rtol=1e-4, atol=1e-5)


CONFIG = {
    "train_micro_batch_size_per_gpu": "auto",
    "train_batch_size": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
            "warmup_type": "linear",
        },
    },
}


class Described(Reader):
    class config:
        hidden_size = 7


def check_a_config_says_optimizer_and_scheduler() -> None:
    path = FOLDER / f"ds{me}.json"
    path.write_text(json.dumps(CONFIG))
    accelerator = Accelerator(gradient_accumulation_steps=2, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=path))
    torch.manual_seed(0)
    model = Described()
    optimizer = DummyOptim(model.parameters(), lr=0.02, weight_decay=0.1, betas=[0.8, 0.9])
    scheduler = DummyScheduler(optimizer, total_num_steps=24, warmup_num_steps=8)
    loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    config = model.engine._config
    assert (config.train_micro_batch_size_per_gpu, config.train_batch_size) == (4, 16)
    assert (config.gradient_accumulation_steps, config.zero_config.reduce_bucket_size) == (2, 49)
    group = optimizer.param_groups[0]
    assert type(optimizer.optimizer) is torch.optim.AdamW  # nothing is compiled on a CPU
    assert (group["weight_decay"], list(group["betas"])) == (0.1, [0.8, 0.9])
    rates: list[float] = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                rates.append(group["lr"])
    assert scheduler.get_last_lr()[0] == rates[-1]
    assert len(rates) == 6
    assert rates == pytest.approx([0, 0.005, 0.01, 0.015, 0.02, 0.0175])  # 4 of the 12 steps warm up
    accelerator.save_state(FOLDER / "dummies")
    state = scheduler.state_dict()
    before = copy.deepcopy(state)
    scheduler.load_state_dict({**state, "last_batch_iteration": 1})
    accelerator.load_state(FOLDER / "dummies")
    assert scheduler.state_dict() == before


def check_contradictions_name_both_places() -> None:
    def asked(told: str, steps: int = 1, precision: str | None = None, batch: int = 8, **config: Any) -> None:
        with pytest.raises(ValueError, match=told):  # noqa: PT012  (whichever sees it first)
            plugin = DeepSpeedPlugin(hf_ds_config=config, zero_stage=config.pop("stage", None))
            accelerator = Accelerator(
                deepspeed_plugin=plugin, gradient_accumulation_steps=steps, mixed_precision=precision
            )
            model = reader()
            accelerator.prepare(model, adamw(model), DataLoader(TensorDataset(TEXTS, LABELS), batch_size=batch))

    asked(r"the dict hf_ds_config says zero_optimization.stage: 1, but DeepSpeedPlugin\(zero_stage=2\) says 2",
          stage=2, zero_optimization={"stage": 1})  # fmt: skip
    asked("says gradient_accumulation_steps: 2, but the Accelerator has gradient_accumulation_steps=4", steps=4,
          gradient_accumulation_steps=2)  # fmt: skip
    asked("says bf16.enabled: True, but mixed_precision='no' says False", precision="no", bf16={"enabled": True})
    asked(
        "says train_micro_batch_size_per_gpu: 3, but the prepared loader, with batch_size=8",
        train_micro_batch_size_per_gpu=3,
    )
    asked("says train_batch_size: 8, but 8 samples x 1 micro-batches x 2 processes says 16", train_batch_size=8)
    asked("says optimizer: 'Adam', but prepare.. was given AdamW", optimizer={"type": "Adam"})
    asked("says scheduler: 'WarmupLR', but no DummyScheduler was prepared", scheduler={"type": "WarmupLR"})
    asked("the model has no config.hidden_size", zero_optimization={"stage": 2, "reduce_bucket_size": "auto"})
    asked("nothing to fill in for 'auto' at wall_clock_breakdown", wall_clock_breakdown="auto")
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin())
    model = reader()
    model, _ = accelerator.prepare(model, adamw(model))
    with pytest.raises(ValueError, match="no loader with one was prepared"):
        model(TEXTS[:2])
    with pytest.raises(ValueError, match="second optimizer"):
        accelerator.prepare(torch.optim.SGD(nn.Linear(2, 2).parameters()))
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config={"train_micro_batch_size_per_gpu": 4}))
    model = reader()
    with pytest.raises(ValueError, match=r"DummyOptim, but .* says no optimizer"):
        accelerator.prepare(model, DummyOptim(model.parameters()))
    with pytest.raises(ValueError, match=r"zero_stage is 1 on process 0, 2 on process 1"):
        Training(zero_stage=1 + me)


def check_a_config_says_what_the_script_leaves_to_it() -> None:
    config = {"bf16": {"enabled": True}, "gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": 2}
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
    assert (accelerator.mixed_precision, accelerator.gradient_accumulation_steps) == ("bf16", 4)
    assert accelerator.deepspeed_plugin.zero_stage == 0
    model = reader()
    model, _ = accelerator.prepare(model, adamw(model))
    assert model.engine.train_batch_size() == 16


def check_states_go_on_everywhere() -> None:
    folder = FOLDER / "zero"
    for options in ({"zero_stage": 1}, {"zero_stage": 3}, {"zero_stage": 2, "precision": "bf16"}):
        training = Training(**options)
        training.epoch()
        training.accelerator.save_state(folder / "now", async_save=True)
        rest = training.epoch()
        weights = training.weights()
        training.accelerator.save_state(folder / "end")  # waits for the one before
        other = Training(seed=1, **options)
        other.accelerator.load_state(folder / "now")
        assert other.epoch() == rest  # bit for bit
        assert all(torch.equal(weight, weights[name]) for name, weight in other.weights().items())
        training.accelerator.backward(training.loss(TEXTS[:8], LABELS[:8]) * 100)  # forgotten
        training.accelerator.load_state(folder / "now")  # into the same objects
        assert training.epoch() == rest
        assert (folder / "now" / "model.safetensors").is_file()
    other = Training(seed=1, zero_stage=3)
    plain = Accelerator(), reader(1)
    optimizer = adamw(plain[1])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    model, *_ = plain[0].prepare(plain[1], optimizer, DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8), scheduler)
    plain[0].load_state(folder / "now")
    for weight in plain[0].get_state_dict(model).values():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight.bfloat16().float(), weight, rtol=1e-2, atol=1e-2)


def check_an_open_window_is_not_saved() -> None:
    training = Training(steps=4, zero_stage=2)
    with training.accelerator.accumulate(training.model):
        training.accelerator.backward(training.loss(TEXTS[:2], LABELS[:2]))
        norm = training.accelerator.clip_grad_norm_(training.model.parameters(), 0.4)
    assert norm.isnan()
    with pytest.raises(CheckpointError, match=r"where a window ends \(accelerator.sync_gradients\)\.$"):
        training.accelerator.save_state(FOLDER / "open-zero")


def check_weights_for_the_script_are_whole() -> None:
    for stage in (1, 3):
        training = Training(zero_stage=stage)
        training.epoch()
        accelerator = training.accelerator
        accelerator.save_model(training.model, FOLDER / "zero-exported")
        accelerator.wait_for_everyone()
        plain, found = reader(1), training.weights()
        load_checkpoint_in_model(plain, FOLDER / "zero-exported", strict=True)
        state = training.optimizer.state_dict()
        if me == 0:
            assert all(torch.equal(weight, found[name]) for name, weight in plain.state_dict().items())
            adamw(plain).load_state_dict(state)
            assert len(state["state"]) == len(list(plain.parameters()))
        inner = accelerator.unwrap_model(training.model)
        if stage == 3:
            with pytest.raises(
                RuntimeError, match=r"ZeRO-3 has a part on each process: use accelerator.get_state_dict"
            ):
                inner.state_dict()
            with pytest.raises(RuntimeError, match=r"load_state_dict\(\) was called on a model of which ZeRO-3"):
                inner.load_state_dict(plain.state_dict())
            for data in (inner, training.model, dict(inner.named_parameters())):
                with pytest.raises(ValueError, match=r"torch\.save\(\) was given .*accelerator\.get_state_dict"):
                    torch.save(data, FOLDER / "parts.pt")
                with pytest.raises(ValueError, match=r"save\(\) was given .*accelerator\.get_state_dict"):
                    accelerator.save(data, FOLDER / "parts.pt")
            with pytest.raises(RuntimeError, match=r"parts of ZeRO: use accelerator\.save_state"):
                get_optimizer_state_dict(training.model, training.optimizer)
            assert training.model.engine.module_state_dict()
        else:
            assert torch.equal(inner.state_dict()["scale"], plain.state_dict()["scale"])


def check_weights_that_a_script_loads_are_trained_on() -> None:
    for stage in STAGES:
        training = Training(seed=3, zero_stage=stage)
        training.model.load_state_dict(reader().state_dict())
        like_alone(training)
        if stage < 3:
            training = Training(seed=3, zero_stage=stage)
            training.accelerator.unwrap_model(training.model).load_state_dict(reader().state_dict())
            like_alone(training)


class Odd(nn.Module):
    """What is not trained, not used by each batch, without elements, and changes by itself (BatchNorm)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        x = self.frozen(x)
        return self.head(self.norm(self.left(x) if left else self.right(x)))


def check_odd_parameters_and_buffers_train_as_under_ddp() -> None:
    drawn = torch.Generator().manual_seed(2 + me)
    batches = [torch.randn(6, 4, generator=drawn) for _ in range(6)]
    ends = []
    options: list[Any] = [{"zero_stage": stage} for stage in STAGES]
    options += [{"zero_stage": stage, "offload_optimizer_device": "cpu"} for stage in (1, 2, 3)]
    for one in [None, *options]:
        config = {"train_micro_batch_size_per_gpu": 6}
        plugin = None if one is None else DeepSpeedPlugin(hf_ds_config=config, **one)
        handler = DistributedDataParallelKwargs(find_unused_parameters=True)
        accelerator = Accelerator(deepspeed_plugin=plugin, kwargs_handlers=[handler])
        model = Odd()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(trained, lr=0.05))
        for number, x in enumerate(batches):
            accelerator.backward((model(x, left=number % 2 == 0) - 1).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            seen = model(torch.ones(2, 4), left=True).tolist()
        assert everyone(seen)[0] == everyone(seen)[1]  # the main process's running statistics
        ends.append((seen, accelerator.get_state_dict(model)))
    for one, (seen, found) in zip(options, ends[1:], strict=True):
        torch.testing.assert_close(torch.tensor(seen), torch.tensor(ends[0][0]), rtol=1e-5, atol=1e-6, msg=str(one))
        for name, value in found.items():
            torch.testing.assert_close(value, ends[0][1][name], rtol=1e-5, atol=1e-6)


def check_what_zero_would_train_otherwise_is_refused() -> None:
    plugin = DeepSpeedPlugin(zero_stage=2, hf_ds_config={"train_micro_batch_size_per_gpu": 4})
    accelerator = Accelerator(deepspeed_plugin=plugin)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(ValueError, match="Adafactor, which works on whole parameters"):
        accelerator.prepare(model, torch.optim.Adafactor(model.parameters()))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    parts = accelerator.unwrap_model(model)
    parts[0].requires_grad_(True)
    with pytest.raises(RuntimeError, match="are not frozen any more"):
        accelerator.backward(model(torch.ones(4, 4)).mean())
    parts[0].requires_grad_(False)
    parts[1].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="are frozen now"):
        accelerator.backward(model(torch.ones(4, 4)).mean())


def check_models_are_sharded_while_they_are_made() -> None:
    plugin = DeepSpeedPlugin(zero_stage=3)
    accelerator = Accelerator(deepspeed_plugin=plugin)
    with plugin.zero3_init_context_manager(enable=True):
        model = reader(seed=me)
    assert not plugin.is_zero3_init_enabled()
    assert model.blocks[0].wide.weight.numel() == 0
    loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
    start = accelerator.get_state_dict(model)
    if me == 0:
        assert all(torch.equal(weight, start[name]) for name, weight in reader().state_dict().items())
    for x, y in loader:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    end = accelerator.get_state_dict(model)
    if me == 0:
        assert not torch.equal(start["scale"], end["scale"])


def check_several_plugins_and_models_that_are_not_trained() -> None:
    plugins = {"student": DeepSpeedPlugin(zero_stage=1), "teacher": DeepSpeedPlugin(zero_stage=3)}
    accelerator = Accelerator(deepspeed_plugins=plugins)
    assert accelerator.deepspeed_plugin is plugins["student"]
    teacher = reader(1).requires_grad_(False)
    assert accelerator.prepare(teacher) is teacher
    accelerator.state.select_deepspeed_plugin("teacher")
    assert (accelerator.deepspeed_plugin, plugins["student"].selected) == (plugins["teacher"], False)
    with pytest.raises(ValueError, match="there is no DeepSpeedPlugin 'master': there are student, teacher"):
        accelerator.state.select_deepspeed_plugin("master")
    model = reader()
    loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8)
    model, _, _ = accelerator.prepare(model, adamw(model), loader)
    assert model.engine.zero_optimization_stage() == 3
    plugins["student"].select(_from_accelerator_state=True)
    with pytest.raises(RuntimeError, match="together with its optimizer, which was not prepared"):
        Accelerator(deepspeed_plugin=DeepSpeedPlugin()).prepare(reader())(TEXTS[:2])


def check_a_build_that_died_is_named() -> None:
    from accelerate_runtime.strategies.deepspeed.making import extensions_folder, wait_for_builds

    before = os.environ.get("TORCH_EXTENSIONS_DIR")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(FOLDER / f"extensions{me}")
    try:
        lock = extensions_folder() / "cpu_adam" / "lock"
        lock.parent.mkdir(parents=True)
        wait_for_builds(["cpu_adam", "fused_adam"])
        lock.touch()
        os.utime(lock, (time.time() - 3600,) * 2)
        with pytest.raises(RuntimeError, match=r"cpu_adam.lock, but nothing was written there for 60 minutes.*Remove"):
            wait_for_builds(["cpu_adam"])
    finally:
        os.environ.pop("TORCH_EXTENSIONS_DIR")
        if before is not None:
            os.environ["TORCH_EXTENSIONS_DIR"] = before


def check_workers_may_read_the_data() -> None:
    training = Training(zero_stage=3)
    loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8, num_workers=1)
    training.loader = training.accelerator.prepare(loader)
    like_alone(training)
