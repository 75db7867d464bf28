"""Context parallelism on two processes, each with half of every sequence: they train as one with whole ones does."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from both import FOLDER, everyone, me
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, ParallelismConfig
from accelerate_runtime.utils import TorchContextParallelConfig

warnings.filterwarnings("ignore", "FSDP2-wrapped module")

LENGTH, WORDS, SAMPLES = 16, 20, 48
TEXTS = torch.randint(0, WORDS, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(4))


class Writer(nn.Module):
    """Guesses each next word; of two query heads to a key's where `grouped`."""

    def __init__(self, grouped: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Embedding(LENGTH, 16)
        self.queries, self.rest = nn.Linear(16, 16), nn.Linear(16, 16 if grouped else 32)
        self.grouped, self.out, self.head = grouped, nn.Linear(16, 16), nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(places)
        queries, keys, values = (
            part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in (self.queries(x), *self.rest(x).chunk(2, -1))
        )
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=self.grouped)
        return self.head(x + self.out(seen.transpose(1, 2).flatten(2)))


class Batch:
    """Inputs, labels and places of a batch of texts."""

    def __init__(self, texts: torch.Tensor) -> None:
        self.inputs, self.labels = texts[:, :-1].contiguous(), texts[:, 1:].contiguous()
        self.places = torch.arange(LENGTH).expand_as(self.inputs).contiguous()

    @property
    def buffers(self) -> list[torch.Tensor]:
        return [self.inputs, self.labels, self.places]

    def loss(self, model: nn.Module, reduction: str = "mean") -> torch.Tensor:
        logits = model(self.inputs, self.places)
        return functional.cross_entropy(logits.flatten(0, 1), self.labels.flatten(), reduction=reduction)


def model_and_optimizer(grouped: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Writer(grouped)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


@functools.cache
def alone(grouped: bool = False) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of plain torch on one process."""
    model, optimizer = model_and_optimizer(grouped)
    losses, norms = [], []
    for texts in TEXTS.split(8):
        loss = Batch(texts).loss(model)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms


def accelerated(rotation: str = "allgather", **options: Any) -> Accelerator:
    config = ParallelismConfig(cp_size=2, cp_handler=TorchContextParallelConfig(rotation))
    return Accelerator(cpu=True, parallelism_config=config, **options)


def check_losses_and_norms_are_those_of_whole_sequences() -> None:
    for rotation, steps, grouped in (("allgather", 1, False), ("alltoall", 2, False), ("allgather", 1, True)):
        losses, norms = trained(rotation, steps, grouped)
        assert losses == pytest.approx(alone(grouped)[0], rel=1e-5)
        assert norms == pytest.approx(alone(grouped)[1], rel=1e-5)


def trained(rotation: str, steps: int, grouped: bool) -> tuple[list[float], list[float]]:
    """Losses and norms of each step, on two processes."""
    accelerator = accelerated(rotation, gradient_accumulation_steps=steps)
    model, optimizer = model_and_optimizer(grouped)
    loader = DataLoader(TensorDataset(TEXTS), batch_size=8 // steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, norms, window = [], [], []
    for (texts,) in loader:
        batch = Batch(texts)
        whole = batch.inputs.clone()
        with accelerator.accumulate(model), accelerator.maybe_context_parallel(batch.buffers, [1, 1, 1]):
            assert batch.inputs.shape == (8 // steps, LENGTH // 2)
            loss = batch.loss(model)
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        assert torch.equal(batch.inputs, whole)
        window.append(accelerator.gather(loss.detach()).mean().item())
        assert window[-1] == pytest.approx(accelerator.reduce(loss.detach(), "mean").item())
        if accelerator.sync_gradients:
            losses.append(sum(window) / len(window))
            norms.append(norm.item())
            window = []
    return losses, norms


def check_sums_over_tokens_are_divided_by_all_of_them() -> None:
    accelerator = accelerated()
    model, optimizer, loader = accelerator.prepare(
        *model_and_optimizer(), DataLoader(TensorDataset(TEXTS), batch_size=8)
    )
    losses = []
    for (texts,) in loader:
        batch = Batch(texts)
        with accelerator.maybe_context_parallel(batch.buffers, [1, 1, 1]):
            loss = batch.loss(model, "sum")
            accelerator.backward(loss, num_items=batch.labels.numel())
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "sum").item() / texts[:, 1:].numel())
    assert losses == pytest.approx(alone()[0], rel=1e-5)


def check_bf16_is_near() -> None:
    accelerator = accelerated(mixed_precision="bf16")
    model, optimizer, loader = accelerator.prepare(
        *model_and_optimizer(), DataLoader(TensorDataset(TEXTS), batch_size=8)
    )
    losses = []
    for (texts,) in loader:
        batch = Batch(texts)
        with accelerator.maybe_context_parallel(batch.buffers, [1, 1, 1]):
            loss = batch.loss(model)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    assert losses == pytest.approx(alone()[0], rel=5e-3)


def check_both_have_the_same_batches_and_one_state_goes_on_without_splitting() -> None:
    accelerator = accelerated()
    model, optimizer, loader = accelerator.prepare(
        *model_and_optimizer(), DataLoader(TensorDataset(TEXTS), batch_size=8, shuffle=True)
    )
    for number, (texts,) in enumerate(loader):
        assert len({str(theirs) for theirs in everyone(texts.tolist())}) == 1
        batch = Batch(texts)
        with accelerator.maybe_context_parallel(batch.buffers, [1, 1, 1]):
            loss = batch.loss(model)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if number == 2:
            accelerator.save_state(FOLDER / "split")
        last = accelerator.reduce(loss.detach(), "mean").item()
    accelerator.free_memory()

    copies = Accelerator(cpu=True)
    model, optimizer, loader = copies.prepare(
        *model_and_optimizer(), DataLoader(TensorDataset(TEXTS), batch_size=4, shuffle=True)
    )
    copies.load_state(FOLDER / "split")
    for (texts,) in loader:
        loss = Batch(texts).loss(model)
        copies.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert copies.reduce(loss.detach(), "mean").item() == pytest.approx(last, rel=1e-5)


def check_what_would_train_on_parts_alone_is_refused() -> None:
    accelerator = accelerated()
    batch = Batch(TEXTS[:4])
    queries = torch.randn(4, 2, LENGTH // 2, 4)
    attend = functools.partial(functional.scaled_dot_product_attention, queries, queries, queries)
    split = functools.partial(accelerator.maybe_context_parallel, batch.buffers, [1, 1, 1])
    with pytest.raises(RuntimeError, match="nothing called torch.nn.functional.scaled_dot_product"), split():  # noqa: RUF043
        attend(is_causal=True)  # the function as it was before
    for arguments in ({}, {"attn_mask": torch.ones(8, 8).tril().bool()}):
        with pytest.raises(ValueError, match="causal attention only"), split():
            functional.scaled_dot_product_attention(queries, queries, queries, **arguments)
    assert functional.scaled_dot_product_attention is attend.func
    assert batch.inputs.shape == (4, LENGTH)
    for buffers, dims, told in (
        ([torch.zeros(4, 10)], [1], r"buffers\[0\] of shape \[4, 10\].*multiple of 4"),
        ([torch.zeros(4, 8)], [], "1 buffers and 0 buffer_seq_dims"),
    ):
        with pytest.raises(ValueError, match=told), accelerator.maybe_context_parallel(buffers, dims):
            pass


def check_ranks_are_told_and_the_next_accelerator_divides_as_ever() -> None:
    accelerator = accelerated()
    assert accelerator.context_parallel_rank == me
    assert accelerator.is_fsdp2
    assert accelerator.gather(torch.ones(3)).shape == (3,)  # each sample once
    assert Accelerator(cpu=True).gather(torch.ones(3)).shape == (6,)
