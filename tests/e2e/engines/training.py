"""The training that every engine must do alike: a transformer, a CNN or a writer of texts, with a schedule, clipping,
accumulation, evaluation, and a state in the middle of an epoch.

    python training.py FOLDER CELL...           on one process
    accelerate-runtime launch ... training.py FOLDER CELL...

A cell is `model/engine/precision/accumulation`, such as `transformer/fsdp/no/4`; with `+CELL` after it, it goes on from
the state that another cell left. What each cell does is written to FOLDER by the main process, as JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig
from accelerate_runtime.utils import (
    DeepSpeedPlugin,
    TorchContextParallelConfig,
    TorchPipelineParallelConfig,
    TorchTensorParallelConfig,
    set_seed,
)

GLOBAL_BATCH, SAMPLES, CLASSES = 16, 80, 6


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, -1, x.shape[-1] // self.heads).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, 4), nn.LayerNorm(width)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down_proj(functional.gelu(self.up_proj(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(16, 32), nn.Embedding(8, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, CLASSES)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embedding(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x).mean(1))
        return logits if labels is None else functional.cross_entropy(logits, labels)


class Writer(Transformer):
    """Guesses each next word; where sequences are split, a process has the words at `places`."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, 16)

    def forward(self, words: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU()
        )
        self.head = nn.Linear(8 * 9, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).flatten(1))


def dataset(model: str) -> TensorDataset:
    drawn = torch.Generator().manual_seed(11)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=drawn)
    if model == "cnn":
        return TensorDataset(torch.randn(SAMPLES, 1, 8, 8, generator=drawn) + labels.view(-1, 1, 1, 1), labels)
    if model == "writer":
        texts = (torch.randint(0, 3, (SAMPLES, 9), generator=drawn).cumsum(1) + labels.view(-1, 1)) % 16
        return TensorDataset(texts[:, :-1], texts[:, 1:], torch.arange(8).expand(SAMPLES, 8))
    return TensorDataset((torch.randint(0, 11, (SAMPLES, 8), generator=drawn) + labels.view(-1, 1)) % 16, labels)


MODELS: dict[str, type[nn.Module]] = {"transformer": Transformer, "cnn": CNN, "writer": Writer}


def sequences(batch: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    """What of a batch has a dimension of sequences beside that of samples, and which that is."""
    found = [tensor for tensor in batch if batch[1].ndim == 2]
    return found, [1] * len(found)


ENGINES: dict[str, dict[str, Any]] = {
    "single": {},
    "ddp": {},
    "fsdp": {"fsdp_plugin": {"auto_wrap_policy": "transformer_based_wrap"}},
    "fsdp-grad-op": {"fsdp_plugin": {"sharding_strategy": "SHARD_GRAD_OP"}},
    "fsdp-full-state": {"fsdp_plugin": {"state_dict_type": "FULL_STATE_DICT"}},
    "fsdp-offload": {"fsdp_plugin": {"cpu_offload": True}},
    "fsdp-hybrid": {
        "fsdp_plugin": {"sharding_strategy": "HYBRID_SHARD", "auto_wrap_policy": "transformer_based_wrap"},
        "parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 2},
    },
    "tp": {"parallelism_config": {"tp_size": 2}},
    "tp-sp": {"parallelism_config": {"tp_size": 2, "tp_handler": {"sequence_parallel": True}}},
    "tp-loss": {"parallelism_config": {"tp_size": 2, "tp_handler": {"loss_parallel": True}}},
    "tp-fsdp": {
        "fsdp_plugin": {"auto_wrap_policy": "transformer_based_wrap"},
        "parallelism_config": {"dp_shard_size": 2, "tp_size": 2, "tp_handler": {"sequence_parallel": True}},
    },
    "tp-ddp": {"parallelism_config": {"dp_replicate_size": 2, "tp_size": 2}},
    **{f"zero{stage}": {"deepspeed_plugin": {"zero_stage": stage}} for stage in range(4)},
    "zero1-offload": {"deepspeed_plugin": {"zero_stage": 1, "offload_optimizer_device": "cpu"}},
    "zero2-offload": {"deepspeed_plugin": {"zero_stage": 2, "offload_optimizer_device": "cpu"}},
    "zero3-offload": {
        "deepspeed_plugin": {"zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "cpu"}
    },
    "cp": {"parallelism_config": {"cp_size": 2}},
    "cp-alltoall": {"parallelism_config": {"cp_size": 2, "cp_handler": {"cp_comm_strategy": "alltoall"}}},
    "cp-fsdp": {"parallelism_config": {"cp_size": 2, "dp_shard_size": 2}},
    "pp": {"parallelism_config": {"pp_size": 2}},
    "pp-1f1b": {"parallelism_config": {"pp_size": 2, "pp_handler": {"schedule": "1f1b"}}},
    "pp-dp": {"parallelism_config": {"pp_size": 2, "dp_replicate_size": 2}},
}
"""What each engine is asked for with: arguments of Accelerator, their objects as the arguments of these."""

_CLASSES: dict[str, Any] = {
    "fsdp_plugin": FullyShardedDataParallelPlugin,
    "parallelism_config": ParallelismConfig,
    "pp_handler": TorchPipelineParallelConfig,
    "tp_handler": TorchTensorParallelConfig,
    "cp_handler": TorchContextParallelConfig,
    "deepspeed_plugin": DeepSpeedPlugin,
}


def made(asked: dict[str, Any]) -> dict[str, Any]:
    """The arguments, their objects made."""
    return {name: _CLASSES[name](**made(given)) if name in _CLASSES else given for name, given in asked.items()}


def train(cell: str, folder: Path) -> dict[str, Any]:
    """Two epochs; returns losses of each step, gradient norms, and what evaluation counts."""
    cell, _, state = cell.partition("+")
    kind, engine, precision, steps = cell.split("/")
    accelerator = Accelerator(
        cpu=True, mixed_precision=precision, gradient_accumulation_steps=int(steps), **made(ENGINES[engine])
    )
    set_seed(5)
    model: Any = MODELS[kind]()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = dataset(kind)
    share = GLOBAL_BATCH // int(steps) // accelerator.state.strategy.data_place.num_processes
    shuffled = DataLoader(data, batch_size=share, shuffle=True, drop_last=True)
    model, optimizer, loader, held_out = accelerator.prepare(
        model, optimizer, shuffled, DataLoader(data, batch_size=share)
    )
    losses: list[float] = []
    norms: list[float] = []
    right: list[int] = []
    if state:
        accelerator.load_state(folder / state.replace("/", "-"))
    for epoch in range(2):
        window: list[float] = []
        for batch in loader:
            with accelerator.accumulate(model), accelerator.maybe_context_parallel(*sequences(batch)):
                x, y, *more = batch
                if engine == "pp-1f1b":
                    loss = model(x, y)
                else:
                    loss = functional.cross_entropy(model(x, *more).flatten(0, -2), y.flatten())
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            window.append(accelerator.reduce(loss.detach(), "mean").item())
            if accelerator.sync_gradients:
                losses.append(sum(window) / len(window))
                norms.append(float(norm))
                window = []
                if epoch == 0 and len(losses) == 2 and not state:
                    accelerator.save_state(folder / cell.replace("/", "-"))
        accelerator.wait_for_everyone()
        for group in optimizer.param_groups:  # by the epoch, which all numbers of processes have in common
            group["lr"] *= 0.7
        model.eval()
        count = 0
        with torch.no_grad():
            for batch in held_out:
                with accelerator.maybe_context_parallel(*sequences(batch)):
                    x, y, *more = batch
                    right_here = (model(x, *more).argmax(-1) == y).float()
                    if more:  # of each word: a process may have some words of a text
                        count += int(accelerator.reduce(right_here.sum(), "sum"))
                    else:
                        count += int(accelerator.gather_for_metrics(right_here).sum())
        model.train()
        right.append(count)
    found = {"losses": losses, "norms": norms, "right": right}
    accelerator.free_memory()
    return found


def main() -> None:
    folder, cells = Path(sys.argv[1]), sys.argv[2:]
    for cell in cells:
        try:
            found: dict[str, Any] = train(cell, folder)
        except Exception:
            found = {"error": traceback.format_exc()}
        accelerator = Accelerator()
        if accelerator.is_main_process or "error" in found:
            name = f"{cell.replace('/', '-')}.{accelerator.num_processes}.json"
            (folder / name).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
