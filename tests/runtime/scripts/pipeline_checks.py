"""Pipelines of two processes: they train as one process does, whatever the schedule and the shape of the model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, ParallelismConfig, division
from accelerate_runtime.utils import GradScalerKwargs, MegatronLMPlugin, TorchPipelineParallelConfig


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(24, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.narrow(torch.relu(self.wide(self.norm(x)))))


class Reader(nn.Module):
    """Four blocks between an embedding and a head that shares its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        x = self.embedding(x).mean(1)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits if labels is None else {"loss": cross_entropy(logits, labels), "logits": logits}


DRAWN = torch.Generator().manual_seed(4)
TEXTS, LABELS = torch.randint(0, 20, (44, 5), generator=DRAWN), torch.randint(0, 20, (44,), generator=DRAWN)
NUMBERS = torch.randn(12, 8, generator=DRAWN)


def made(kind: Callable[[], nn.Module]) -> Any:
    torch.manual_seed(1)
    return kind()


def pipeline(asked: dict[str, Any] | None = None, **others: Any) -> Accelerator:
    """An accelerator of a pipeline over both processes; `asked` are the arguments of its handler."""
    handler = TorchPipelineParallelConfig(**{"num_microbatches": 4, **(asked or {})})
    return Accelerator(parallelism_config=ParallelismConfig(pp_size=2, pp_handler=handler), **others)


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters in two groups."""
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if "norm" not in name]},
        {"params": [p for name, p in named if "norm" in name], "lr": 0.02},
    ]


@functools.cache
def alone(accumulate: int) -> tuple[list[float], list[float], dict[str, torch.Tensor], dict[str, Any]]:
    """Losses, gradient norms, weights and states of plain torch on one process."""
    model = made(Reader)
    optimizer = torch.optim.AdamW(groups(model), lr=0.01)
    losses, norms = [], []
    for step, (x, y) in enumerate(zip(TEXTS.split(8), LABELS.split(8), strict=True), 1):
        loss = cross_entropy(model(x), y)
        (loss / accumulate).backward()
        losses.append(loss.item())
        if step % accumulate == 0:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.4).item())
            optimizer.step()
            optimizer.zero_grad()
    return losses, norms, model.state_dict(), optimizer.state_dict()


def trained(accelerator: Accelerator, loss_of: Callable[..., torch.Tensor], prepare_first: bool = False) -> Any:
    """The training of `alone` in a pipeline, compared with it; returns the prepared model and optimizer."""
    steps = accelerator.gradient_accumulation_steps
    model = made(Reader)
    if prepare_first:
        model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(groups(model), lr=0.01)
    loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, norms = [], []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = loss_of(model, x, y)
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.4)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        norms += [norm.item()] if accelerator.sync_gradients else []
    expected = alone(steps)
    assert losses == pytest.approx(expected[0], rel=1e-5)
    assert norms == pytest.approx(expected[1], rel=1e-5)
    weights, state = accelerator.get_state_dict(model), optimizer.state_dict()
    if me == 0:
        torch.testing.assert_close(weights, expected[2], rtol=1e-4, atol=1e-6)
        assert weights["head.weight"] is weights["embedding.weight"]
        torch.testing.assert_close(state["state"], expected[3]["state"], rtol=1e-3, atol=1e-6)
    assert [group["params"] for group in state["param_groups"]] == [g["params"] for g in expected[3]["param_groups"]]
    return model, optimizer


def of_script(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(x), y)


def of_model(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    output: dict[str, torch.Tensor] = model(x, labels=y)
    assert not output["logits"].requires_grad
    return output["loss"]


def check_a_pipeline_trains_as_one_process_does() -> None:
    model, _ = trained(pipeline(), of_script)
    held = everyone({name for name, _ in model.named_parameters()})
    assert held[0] & held[1] == set()  # the tied weight has another name in each
    assert {"embedding.weight", "blocks.0.wide.bias"} <= held[0]
    assert {"head.weight", "blocks.3.wide.bias"} <= held[1]
    trained(pipeline({"activation_checkpointing": True}, gradient_accumulation_steps=2), of_script)
    trained(pipeline({"split_points": ["blocks.1"], "num_microbatches": 3}), of_script, prepare_first=True)


def check_schedules_that_make_the_loss_inside() -> None:
    trained(pipeline({"schedule": "1f1b"}), of_model)
    trained(pipeline({"schedule": "1f1b"}, gradient_accumulation_steps=2), of_model, prepare_first=True)
    trained(pipeline({"schedule": "interleaved"}, gradient_accumulation_steps=2), of_model)
    trained(pipeline({"schedule": "1f1b", "loss_fn": cross_entropy}), lambda model, x, y: model(x, target=y) * 2 / 2)
    sums = functools.partial(cross_entropy, reduction="sum")
    asked = {"schedule": "1f1b", "loss_fn": sums, "loss_reduction": "sum"}
    trained(pipeline(asked), lambda model, x, y: model(x, target=y) / len(x))


def check_1f1b_needs_a_loss_inside() -> None:
    model = pipeline({"schedule": "1f1b"}).prepare(made(Reader))
    if me == 0:  # the last stage tells; the first waits for it
        with pytest.raises(ValueError, match="loss_fn is for the schedules"):
            TorchPipelineParallelConfig(loss_fn=cross_entropy)
    with torch.no_grad():
        assert model(TEXTS[:8]).shape == (8, 20)
    with pytest.raises(NotImplementedError, match=r"'1f1b'.*mixed_precision='fp16' needs: use schedule='gpipe'"):
        pipeline({"schedule": "1f1b"}, mixed_precision="fp16")


def check_megatron_lms_plugin_clips_before_each_step() -> None:
    plugin = MegatronLMPlugin(pp_degree=2, num_micro_batches=4, gradient_clipping=0.4)
    accelerator, model = Accelerator(megatron_lm_plugin=plugin), made(Reader)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(groups(model), lr=0.01))
    for x, y in zip(TEXTS.split(8), LABELS.split(8), strict=True):
        accelerator.backward(of_script(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
    weights = accelerator.get_state_dict(model)
    if me == 0:
        torch.testing.assert_close(weights, alone(1)[2], rtol=1e-4, atol=1e-6)


def check_evaluation_gives_the_output_on_all_processes() -> None:
    whole = made(Reader).eval()
    model = pipeline().prepare(made(Reader)).eval()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for size in (8, 5, 2):
                torch.testing.assert_close(model(TEXTS[:size]), whole(TEXTS[:size]))
            found = model(TEXTS[:7], labels=LABELS[:7])
            torch.testing.assert_close(found, whole(TEXTS[:7], labels=LABELS[:7]))


def check_states_go_from_a_pipeline_to_others_and_back() -> None:
    accelerator = pipeline()
    model, optimizer = trained(accelerator, of_script)
    accelerator.save_state(FOLDER / "pipeline")
    later = [of_script(model, TEXTS[:8], LABELS[:8])]
    accelerator.backward(later[0])
    optimizer.step()
    later.append(of_script(model, TEXTS[:8], LABELS[:8]))
    for asked in ({}, {"schedule": "interleaved"}, None):  # None: DDP
        other = Accelerator() if asked is None else pipeline(asked)
        fresh = Reader()
        loader = DataLoader(TensorDataset(TEXTS, LABELS), batch_size=8)
        fresh, its, _ = other.prepare(fresh, torch.optim.AdamW(groups(fresh), lr=0.5), loader)
        other.load_state(FOLDER / "pipeline")
        if asked == {"schedule": "interleaved"}:
            with torch.no_grad():
                assert of_script(fresh, TEXTS[:8], LABELS[:8]).item() == pytest.approx(later[0].item(), rel=1e-6)
            continue
        other.backward(of_script(fresh, TEXTS[:8], LABELS[:8]))
        its.step()
        assert of_script(fresh, TEXTS[:8], LABELS[:8]).item() == pytest.approx(later[1].item(), rel=1e-6)
    whole = everyone(accelerator.get_state_dict(model))[0]
    model.load_state_dict({name: value + 1 for name, value in whole.items()})
    again = everyone(accelerator.get_state_dict(model))[0]
    assert again["blocks.0.wide.bias"].equal(whole["blocks.0.wide.bias"] + 1)
    assert again["blocks.3.wide.bias"].equal(whole["blocks.3.wide.bias"] + 1)
    with pytest.raises(RuntimeError, match=r"call accelerator\.get_state_dict\(model\) on every process"):
        model.state_dict()


def check_gradients_of_an_open_window_are_saved() -> None:
    def start() -> tuple[Accelerator, Any, Any]:
        accelerator = pipeline(gradient_accumulation_steps=2)
        model = made(Reader)
        return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def step(accelerator: Accelerator, model: Any, optimizer: Any, part: slice) -> None:
        with accelerator.accumulate(model):
            accelerator.backward(of_script(model, TEXTS[part], LABELS[part]))
            optimizer.step()
            optimizer.zero_grad()

    first = start()
    step(*first, slice(0, 8))
    first[0].save_state(FOLDER / "open")
    step(*first, slice(8, 16))
    second = start()
    second[0].load_state(FOLDER / "open")
    step(*second, slice(8, 16))
    for mine, its in zip(first[1].parameters(), second[1].parameters(), strict=True):
        assert torch.equal(mine, its)


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = Block(), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return self.norm(self.a(x * mask + shift))


class Counting(nn.Module):
    """BatchNorm, a buffer of its own, and blocks that share a value that is computed of parameters before them."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(8))
        self.first = nn.BatchNorm1d(8)
        self.blocks = nn.ModuleList(Wide() for _ in range(2))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.seen += 1
        shift, mask = (self.bias * 2).tanh(), (x > 0).float()
        x = self.first(x)
        for block in self.blocks:
            x = block(x, mask, shift=shift) + shift
        return {"x": x, "parts": [x.argmax(-1), None], "name": "counting"}


def check_buffers_and_values_that_cross_the_cut() -> None:
    whole, accelerator = made(Counting), pipeline({"num_microbatches": 3})
    model = accelerator.prepare(made(Counting))
    found = model(NUMBERS)
    parts = [whole(part) for part in NUMBERS.split(4)]
    assert (found["name"], found["parts"][1]) == ("counting", None)
    assert found["parts"][0].equal(torch.cat([part["parts"][0] for part in parts]))
    torch.testing.assert_close(found["x"], torch.cat([part["x"] for part in parts]))
    accelerator.backward(found["x"].square().mean())
    torch.cat([part["x"] for part in parts]).square().mean().backward()
    expected = dict(whole.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-4, atol=1e-6)
    state = accelerator.get_state_dict(model)
    if me == 0:
        torch.testing.assert_close(state, whole.state_dict())
        assert state["seen"] == 3


def check_fp16_skips_a_step_on_all_stages() -> None:
    handler = GradScalerKwargs(init_scale=2.0**20)
    accelerator = pipeline(mixed_precision="fp16", kwargs_handlers=[handler])
    model = made(Reader)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    skipped = []
    for factor in (1e6, 1e-3):  # the first overflows somewhere
        accelerator.backward(of_script(model, TEXTS[:8], LABELS[:8]) * factor)
        optimizer.step()
        optimizer.zero_grad()
        skipped.append(optimizer.step_was_skipped)
    assert everyone(skipped) == [[True, False]] * 2
    assert everyone(accelerator.scaler.get_scale()) == [2.0**19] * 2


def check_losses_that_are_sums_of_items() -> None:
    accelerator = pipeline(gradient_accumulation_steps=2)
    model, whole = accelerator.prepare(made(Reader)), made(Reader)
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    cross_entropy(whole(TEXTS[:11]), LABELS[:11]).backward()
    for part in (slice(0, 8), slice(8, 11)):
        with accelerator.accumulate(model):
            loss = cross_entropy(model(TEXTS[part]), LABELS[part], reduction="sum")
            accelerator.backward(loss, num_items=len(LABELS[part]))
            if accelerator.sync_gradients:
                accelerator.unscale_gradients()
                expected = dict(whole.named_parameters(remove_duplicate=False))
                for name, parameter in model.named_parameters():
                    torch.testing.assert_close(parameter.grad, expected[name].grad)
            optimizer.step()


def check_stages_draw_apart_and_the_processes_alike() -> None:
    torch.manual_seed(3)
    model = pipeline({"num_microbatches": 1}).prepare(nn.Sequential(Drops(), Drops()))
    ones = torch.ones(64, 8)
    first, second = model(ones), model(ones)
    masks = everyone([(tensor != 0).flatten().tolist() for tensor in (first, second)])
    assert masks[0] == masks[1]
    assert masks[0][0] != masks[0][1]
    assert first.ne(0).float().mean().item() == pytest.approx(0.25, abs=0.08)  # of two masks alike it would be a half
    mine = torch.rand(3).tolist()
    torch.manual_seed(3)
    assert torch.rand(3).tolist() == mine  # the process's own numbers go on as if nothing had been drawn
    division.forget()  # what comes after this file is of other accelerators


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.dropout = nn.Parameter(torch.ones(8)), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x * self.scale)
