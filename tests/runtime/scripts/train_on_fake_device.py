"""Trains on the fake device, on as many processes as were launched, and checks what went there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fake_device

fake_device.use()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from accelerate_runtime import Accelerator  # noqa: E402
from accelerate_runtime.utils import (  # noqa: E402
    DistributedType,
    get_max_memory,
    is_bf16_available,
    is_npu_available,
    set_seed,
    synchronize_rng_state,
)

FOLDER, PRECISION = Path(sys.argv[1]), sys.argv[2]

accelerator = Accelerator(mixed_precision=PRECISION, gradient_accumulation_steps=2)
me, world = accelerator.process_index, accelerator.num_processes

# which device
assert accelerator.device == torch.device("npu", me if world > 1 else None), accelerator.device
assert torch.npu.current_device() == me
assert accelerator.distributed_type == (DistributedType.MULTI_NPU if world > 1 else DistributedType.NO)
assert accelerator.state.backend == ("hccl" if world > 1 else None)
assert is_bf16_available()
assert not is_npu_available(), "torch_npu is not installed"
free = get_max_memory()
assert [free[0], free[1]] == [1000, 1001]

# its generators
set_seed(7, device_specific=True)
assert fake_device.Module.seeds[-1] == 7 + me
if world > 1:
    synchronize_rng_state("npu")
    assert fake_device.Module.states[me].item() == 7


def train(accelerator: Any) -> list[float]:
    """The mean loss over all processes of each optimizer step."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    steps, processes = accelerator.gradient_accumulation_steps, accelerator.num_processes
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=8 // steps // processes)
    )
    losses: list[float] = []
    window: list[float] = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        window.append(accelerator.reduce(loss.detach(), "mean").item())
        if accelerator.sync_gradients:
            losses.append(sum(window) / len(window))
            window = []
    seen = accelerator.gather_for_metrics(model(x[:2].to(accelerator.device)))
    assert seen.shape == (2 * processes, 1)
    return losses


losses = train(accelerator)
if me == 0:
    (FOLDER / f"losses.{world}.{PRECISION}").write_text(repr(losses))

# a state has the generators of the device
accelerator.save_state(FOLDER / f"state.{world}")
before = fake_device.Module.get_rng_state_all()
torch.npu.manual_seed_all(99)
accelerator.load_state(FOLDER / f"state.{world}")
assert fake_device.Module.get_rng_state_all() == before
accelerator.free_memory()
accelerator.end_training()
