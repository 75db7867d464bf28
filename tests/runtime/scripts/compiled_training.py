"""Trains compiled models on the processes that were launched, and one process alone, for test_compiled_training.py.

python compiled_training.py FOLDER RUN...

A run is `strategy/how`, with `+STATE` after it to go on from the state that another run left. What each did is
written to FOLDER by the main process, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin
from accelerate_runtime.utils import TorchDynamoPlugin

STEPS, BATCH = 4, 16


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block(16) for _ in range(3)), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class Graphs:
    """A backend that counts what it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.count += 1
        return aot_eager(graph, inputs)


HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole": {"backend": "aot_eager"},
    "regional": {"backend": "aot_eager", "use_regional_compilation": True},
    "fullgraph": {"backend": "aot_eager", "use_regional_compilation": True, "fullgraph": True},
    "inductor": {"backend": "inductor", "use_regional_compilation": True},
    "before": {},  # the script compiles the model before prepare(), and after it
    "after": {},
}
"""What TorchDynamoPlugin is asked for."""


def train(run: str, folder: Path) -> dict[str, Any]:
    """Losses of each optimizer step, graphs that were compiled, and the names of the weights."""
    run, _, state = run.partition("+")
    strategy, how = run.split("/")
    torch.compiler.reset()
    graphs, plugin = Graphs(), TorchDynamoPlugin(**HOW[how])
    if how != "inductor":
        wanted = plugin.to_kwargs()
        plugin.to_kwargs = lambda: {**wanted, "backend": graphs}  # type: ignore[method-assign]
    sharded = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap") if strategy == "fsdp" else None
    accelerator = Accelerator(cpu=True, dynamo_plugin=plugin, fsdp_plugin=sharded, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model: Any = Net()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    if how == "before":
        model = torch.compile(model, backend=graphs)
    model, optimizer = accelerator.prepare(model, optimizer)
    if how == "after":
        model = torch.compile(model, backend=graphs)
    if state:
        accelerator.load_state(folder / state.replace("/", "-"))
    drawn = torch.Generator().manual_seed(1)
    losses: list[float] = []
    for step in range(STEPS):
        x, y = torch.randn(BATCH, 16, generator=drawn), torch.randint(0, 4, (BATCH,), generator=drawn)
        if state and step < STEPS // 2:  # was trained before the state was left
            continue
        window = 0.0
        for part in range(2):
            mine = slice(part * 8 + accelerator.process_index, part * 8 + 8, accelerator.num_processes)
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            window += accelerator.reduce(loss.detach(), "mean").item() / 2
        losses.append(window)
        if step == STEPS // 2 - 1:
            accelerator.save_state(folder / run.replace("/", "-"))
    found = {"losses": losses, "graphs": graphs.count, "names": list(accelerator.get_state_dict(model))}
    accelerator.free_memory()
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    for run in sys.argv[2:]:
        found = train(run, folder)
        if Accelerator().is_main_process:
            (folder / f"{run.replace('/', '-')}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
