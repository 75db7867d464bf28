"""What only an NVIDIA GPU can show. One check runs in the processes that run.py launches: python checks.py NAME.

A check is a function that asserts, or raises NotHere; what it returns is shown beside its name. On one GPU the
strategies of several processes are checked in a process group of one, over NCCL.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Body = Callable[[], "str | None"]


class NotHere(Exception):
    """The check needs something that this machine does not have; the message says what."""


@dataclass
class Check:
    """A check, the processes (and GPUs) that it needs, and the seconds after which it has failed."""

    body: Body
    processes: int
    seconds: float


CHECKS: dict[str, Check] = {}


def check(processes: int = 1, seconds: float = 60) -> Callable[[Body], Body]:
    """Enter the decorated function as a check of that name."""

    def enter(body: Body) -> Body:
        CHECKS[body.__name__] = Check(body, processes, seconds)
        return body

    return enter


# What they share


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(3))
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(x))


def samples() -> TensorDataset:
    drawn = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(128, 64, generator=drawn), torch.randint(0, 16, (128,), generator=drawn))


def train(accelerator: Any, steps: int = 8, batch: int = 32) -> list[float]:
    """The loss, over all processes, of each of the first optimizer steps."""
    torch.manual_seed(0)
    model: Any = Net()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader: Any = DataLoader(samples(), batch_size=batch // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses: list[float] = []
    while len(losses) < steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses[:steps]


def in_plain_torch(steps: int = 8, batch: int = 32) -> list[float]:
    """The same on the CPU, in float32, without this library."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for x, y in DataLoader(samples(), batch_size=batch):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses[:steps]


def compare(losses: list[float], tolerance: float) -> str:
    """How far losses are from those in plain torch; too far is a failure."""
    plain = in_plain_torch(len(losses))
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses, plain, strict=True))
    assert apart <= tolerance, f"losses {losses}, and in plain torch {plain}: {apart:.1e} apart, allowed {tolerance}"
    return f"{apart:.0e} from plain torch"


def alone_in_a_group() -> None:
    """Join an NCCL group of one, so that the strategies of several processes run on one GPU."""
    from accelerate_runtime import register_strategy, topology
    from accelerate_runtime.strategies.fsdp import FullyShardedDataParallel

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    kind = topology.DistributedType.MULTI_GPU
    topology._current = topology.Topology(0, 0, 1, torch.device("cuda:0"), "nccl", kind)
    register_strategy("sharded", FullyShardedDataParallel)


def need_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise NotHere(f"{name} is not installed")


def need_fp8() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        raise NotHere(f"{torch.cuda.get_device_name()} does not multiply 8-bit floats")


def folder() -> Path:
    path = Path(os.environ["GPU_CHECK_FOLDER"])
    path.mkdir(parents=True, exist_ok=True)
    return path


# One GPU


@check()
def devices_and_memory() -> str:
    """The device is found, named and counted, with and without torch; memory is told, and comes back."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.launch.devices import count_devices
    from accelerate_runtime.launch.report import report
    from accelerate_runtime.utils import get_max_memory, release_memory

    assert count_devices() == torch.cuda.device_count()
    assert torch.cuda.get_device_name(0) in report()
    accelerator = Accelerator()
    assert accelerator.device == torch.device("cuda"), accelerator.device
    before = get_max_memory()
    taken = torch.empty(2**28, device=accelerator.device)  # 1 GiB
    assert get_max_memory()[0] <= before[0] - 2**29, "a GiB was taken, and as much is free as before"
    del taken
    release_memory()
    after = get_max_memory()[0]
    assert after >= before[0] - 2**28, f"{before[0] - after} bytes did not come back"
    return f"{before[0] / 2**30:.0f} GiB free"


@check()
def fp32() -> str:
    """One process trains as plain torch does on the CPU."""
    from accelerate_runtime import Accelerator

    return compare(train(Accelerator()), 1e-3)


@check()
def bf16() -> str:
    """Autocast of matrix products; parameters stay in float32."""
    from accelerate_runtime import Accelerator

    return compare(train(Accelerator(mixed_precision="bf16")), 2e-2)


@check()
def fp16() -> str:
    """The loss is scaled; a step whose gradients overflow is left out, and the scale is halved."""
    from accelerate_runtime import Accelerator

    accelerator = Accelerator(mixed_precision="fp16")
    told = compare(train(accelerator), 2e-2)
    weight = nn.Parameter(torch.ones(1, device=accelerator.device))
    optimizer = accelerator.prepare(torch.optim.SGD([weight], lr=1.0))
    scale = accelerator.scaler.get_scale()
    accelerator.backward((weight * float("inf")).sum())
    optimizer.step()
    assert accelerator.optimizer_step_was_skipped
    assert weight.item() == 1.0
    assert accelerator.scaler.get_scale() == scale / 2
    return told


@check()
def ddp_in_a_group_of_one() -> str:
    """DistributedDataParallel over NCCL, with bf16 gradients, and SyncBatchNorm."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    alone_in_a_group()
    told = compare(train(Accelerator(strategy="ddp")), 1e-3)
    handler = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.BF16)
    accelerator = Accelerator(strategy="ddp", kwargs_handlers=[handler])
    compare(train(accelerator), 2e-2)
    norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    model = accelerator.prepare(norm)
    accelerator.backward(model(torch.randn(4, 8, device=accelerator.device)).square().mean())
    accelerator.end_training()
    return told


@check(seconds=120)
def fsdp_in_a_group_of_one() -> str:
    """fully_shard over NCCL: plain, in bf16, compiled by blocks, and with parameters offloaded to pinned memory."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import TorchDynamoPlugin

    alone_in_a_group()
    os.environ["FSDP_AUTO_WRAP_POLICY"] = "TRANSFORMER_BASED_WRAP"
    told = compare(train(Accelerator(strategy="sharded")), 1e-3)
    compare(train(Accelerator(strategy="sharded", mixed_precision="bf16")), 2e-2)
    dynamo = TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)
    compare(train(Accelerator(strategy="sharded", dynamo_plugin=dynamo)), 1e-3)
    os.environ["FSDP_OFFLOAD_PARAMS"] = "true"
    accelerator = Accelerator(strategy="sharded")
    model = accelerator.prepare(Net())
    assert all(parameter.to_local().is_pinned() for parameter in model.parameters()), "not in pinned memory"
    compare(train(accelerator), 1e-3)
    accelerator.end_training()
    return told


@check()
def state_with_the_devices_generator() -> None:
    """save_state and load_state bring back the GPU's generator: dropout draws the same again."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import set_seed

    accelerator = Accelerator()
    set_seed(1)
    model = accelerator.prepare(Net(dropout=0.5))
    x = torch.randn(8, 64, device=accelerator.device)
    model(x)  # the generator is not where it began
    accelerator.save_state(folder() / "state")
    first, second = model(x), model(x)
    assert not torch.equal(first, second)
    accelerator.load_state(folder() / "state")
    assert torch.equal(model(x), first)
    assert torch.equal(model(x), second)


@check()
def pinned_memory() -> None:
    """Batches from pinned memory, moved without waiting, with worker processes: they are what the dataset has."""
    from accelerate_runtime import Accelerator, DataLoaderConfiguration

    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
    data = TensorDataset(torch.arange(2.0**20).view(256, -1))
    plain: Any = DataLoader(data, batch_size=16, pin_memory=True, num_workers=2)
    assert next(iter(plain))[0].is_pinned()
    loader = accelerator.prepare(plain)
    for epoch in range(2):
        seen = 0.0
        for number, (batch,) in enumerate(loader):
            assert batch.is_cuda
            busy = batch @ batch.T  # the stream has work while the next batch comes
            expected = data.tensors[0][number * 16 : number * 16 + 16]
            assert torch.equal(batch.cpu(), expected), f"epoch {epoch}, batch {number} is not what the dataset has"
            seen += busy.diagonal().sum().item()
        assert seen > 0


@check()
def out_of_memory() -> str:
    """A batch that does not fit is tried smaller; what it took is given back."""
    from accelerate_runtime.utils import find_executable_batch_size

    free = torch.cuda.mem_get_info()[0]
    tried: list[int] = []

    @find_executable_batch_size(starting_batch_size=16)
    def run(batch_size: int) -> int:
        tried.append(batch_size)
        taken = torch.empty(batch_size * free // 10, dtype=torch.uint8, device="cuda")
        return int(taken.numel() > 0) * batch_size

    assert run() < 11
    assert tried[0] == 16
    return f"batches of {', '.join(map(str, tried))}"


@check(seconds=180)
def compiled_with_cuda_graphs() -> str:
    """torch.compile by inductor, whole and by blocks, and with CUDA graphs."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import TorchDynamoPlugin

    need_package("triton")
    told = compare(train(Accelerator(dynamo_backend="inductor")), 1e-3)
    regional = TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)
    compare(train(Accelerator(dynamo_plugin=regional)), 1e-3)
    graphs = TorchDynamoPlugin(backend="inductor", mode="reduce-overhead")
    compare(train(Accelerator(dynamo_plugin=graphs)), 1e-3)
    return told


@check()
def fp8_by_torchao() -> str:
    """Products of 8-bit floats, not emulated; and in a group of one, sharded, gathered in 8 bits."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import AORecipeKwargs

    need_package("torchao")
    need_fp8()
    told = compare(train(Accelerator(mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()])), 5e-2)
    alone_in_a_group()
    os.environ["FSDP_AUTO_WRAP_POLICY"] = "TRANSFORMER_BASED_WRAP"
    sharded = Accelerator(strategy="sharded", mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()])
    compare(train(sharded), 5e-2)
    sharded.end_training()
    return told


@check(seconds=90)
def fp8_by_transformer_engine() -> str:
    """TransformerEngine's layers, under its autocast."""
    from accelerate_runtime import Accelerator
    from accelerate_runtime.utils import TERecipeKwargs

    need_package("transformer_engine")
    need_fp8()
    try:
        accelerator = Accelerator(mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs()])
    except ImportError as error:
        raise NotHere(str(error)) from None
    told = compare(train(accelerator), 5e-2)
    model = accelerator.prepare(Net())
    assert any("transformer_engine" in type(part).__module__ for part in model.modules()), "no layer was converted"
    return told


@check(seconds=120)
def nvme_offload() -> str:
    """DeepSpeed's ZeRO-3 with the optimizer's states in files."""
    need_package("deepspeed")
    try:
        from accelerate_runtime import Accelerator, DeepSpeedPlugin
    except ImportError:
        raise NotHere("this version has no DeepSpeedPlugin") from None
    import deepspeed

    if not deepspeed.ops.__compatible_ops__.get("async_io", False):
        raise NotHere("DeepSpeed's async_io cannot be built here (libaio-dev is missing)")
    plugin = DeepSpeedPlugin(
        zero_stage=3,
        gradient_clipping=1.0,
        offload_optimizer_device="nvme",
        offload_optimizer_nvme_path=str(folder()),
        zero3_init_flag=False,
    )
    told = compare(train(Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16")), 5e-2)
    assert any(path.is_file() for path in folder().rglob("*")), "nothing was written to the folder"
    return told


@check(seconds=90)
def self_test() -> None:
    """`accelerate-runtime test`, whose checks are those of a user's machine."""
    from accelerate_runtime.launch import sanity

    assert sanity.main() == 0, "a check of `accelerate-runtime test` failed"


# Two GPUs


@check(processes=2)
def ddp_over_nccl() -> str:
    """DistributedDataParallel on two GPUs, and in bf16."""
    from accelerate_runtime import Accelerator

    accelerator = Accelerator()
    assert accelerator.state.backend == "nccl"
    assert accelerator.device == torch.device("cuda", accelerator.process_index)
    told = compare(train(accelerator), 1e-3)
    compare(train(Accelerator(mixed_precision="bf16")), 2e-2)
    compare(train(Accelerator(mixed_precision="fp16")), 2e-2)
    accelerator.end_training()
    return told


@check(processes=2, seconds=90)
def fsdp_over_nccl() -> str:
    """fully_shard on two GPUs: losses, half of the memory on each, a state in shards."""
    from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin

    def fresh(**options: Any) -> Any:
        plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", **options)
        return Accelerator(fsdp_plugin=plugin)

    accelerator = fresh()
    told = compare(train(accelerator), 1e-3)
    compare(train(fresh(cpu_offload=True)), 1e-3)
    accelerator = fresh()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    whole = sum(parameter.numel() for parameter in Net().parameters()) * 4
    model = accelerator.prepare(Net())
    held = torch.cuda.memory_allocated() - before
    assert held < 0.7 * whole, f"{held} bytes are held of {whole}"
    accelerator.save_state(folder() / "state")
    before_loading = [parameter.full_tensor().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data.zero_()
    accelerator.load_state(folder() / "state")
    now = [parameter.full_tensor() for parameter in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(now, before_loading, strict=True))
    accelerator.end_training()
    return told


@check(processes=2, seconds=90)
def fp8_all_gather_over_nccl() -> str:
    """torchao's weights, gathered in 8 bits on two GPUs."""
    from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin
    from accelerate_runtime.utils import AORecipeKwargs

    need_package("torchao")
    need_fp8()
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap")
    accelerator = Accelerator(mixed_precision="fp8", fsdp_plugin=plugin, kwargs_handlers=[AORecipeKwargs()])
    told = compare(train(accelerator), 5e-2)
    accelerator.end_training()
    return told


@check(processes=2, seconds=90)
def self_test_on_two() -> None:
    """`accelerate-runtime test` on two GPUs."""
    self_test()


def main() -> None:
    name = sys.argv[1]
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        told = CHECKS[name].body()
        verdict = "passed" + (told or "")
    except NotHere as reason:
        verdict = f"not here: {reason}"
    if os.environ.get("RANK", "0") == "0":
        Path(os.environ["GPU_CHECK_VERDICT"]).write_text(verdict, encoding="utf-8")


if __name__ == "__main__":
    main()
