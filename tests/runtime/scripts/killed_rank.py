"""Two processes that train under some engine, of which one is killed; the other leaves what it was told. For
test_killed_ranks.py.

python killed_rank.py ENGINE RANK PORT
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate_runtime.utils import ParallelismConfig, TorchPipelineParallelConfig

ENGINES: dict[str, dict[str, Any]] = {
    "fsdp": {"fsdp_plugin": FullyShardedDataParallelPlugin()},
    **{f"zero{stage}": {"deepspeed_plugin": DeepSpeedPlugin(zero_stage=stage)} for stage in (1, 3)},
    "tensor": {"parallelism_config": ParallelismConfig(tp_size=2)},
    "pipeline": {
        "parallelism_config": ParallelismConfig(pp_size=2, pp_handler=TorchPipelineParallelConfig(num_microbatches=2))
    },
}


def main(engine: str, rank: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, timeout=timedelta(seconds=120))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=10))
    accelerator = Accelerator(cpu=True, **ENGINES[engine])
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for number, (x,) in enumerate(loader):
        loss = model(x).square().mean()
        if number == 2 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
