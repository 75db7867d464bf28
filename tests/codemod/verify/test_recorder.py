"""The recorder, on small scripts in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_migrate.verify.compare import losses
from accelerate_migrate.verify.run import Run, run_recorded

pytestmark = pytest.mark.e2e

CUDA = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(3)
x = torch.cuda.FloatTensor([[1.0, 2.0]])
made = [
    x.cuda(), x.cuda(0), x.to("cuda"), x.to(torch.device("cuda", 0)), x.to(0), x.to(device="cuda:0"), x.pin_memory(),
    torch.ones(1, 2, device="cuda"), torch.tensor([[1.0, 2.0]], device=0), torch.zeros_like(x, device="cuda"),
    x.type("torch.cuda.FloatTensor"), x.cpu().new_zeros(1, 2, device="cuda"),
]
assert all(value.device.type == "cpu" for value in made)
generator = torch.Generator(device="cuda").manual_seed(1)
assert isinstance(generator, torch.Generator)
made.append(torch.randn(1, 2, generator=generator, device="cuda"))
loader = DataLoader(TensorDataset(x.cpu()), pin_memory=True)
assert len(list(loader)) == 1

model = torch.nn.DataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[0]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = torch.cuda.amp.GradScaler(init_scale=2.0)
with torch.cuda.amp.autocast(dtype=torch.bfloat16), torch.cuda.device(0), torch.autocast("cuda", enabled=False):
    loss = model(x).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
torch.cuda.synchronize()
torch.save(model.state_dict(), sys.argv[1])
model.load_state_dict(torch.load(sys.argv[1]))
model.load_state_dict(torch.load(sys.argv[1], map_location="cuda:0"))
print("loss", loss.item())
"""

PLAIN = """
import torch

class Net(torch.nn.Linear):
    pass

torch.manual_seed(0)
net = Net(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
loss = net(torch.ones(1, 2)).sum()
loss.backward()
optimizer.step()
torch.save({"net": net, "state": [optimizer.state_dict()], "epoch": 1}, "net.pt")
assert __name__ == "__main__"
"""


def run(tmp_path: Path, source: str, *args: str, cuda_on_cpu: bool = False) -> Run:
    script = tmp_path / "train.py"
    script.write_text(source, encoding="utf-8")
    return run_recorded(script, args, cwd=tmp_path, cuda_on_cpu=cuda_on_cpu, timeout=120)


def test_cuda_becomes_the_cpu(tmp_path: Path) -> None:
    done = run(tmp_path, CUDA, "net.pt", cuda_on_cpu=True)
    assert done.returncode == 0, done.stderr
    assert [event.kind for event in done.traces[0]] == ["backward", "step", "save"]
    (scaled,) = losses(done.traces[0])
    assert done.stdout == f"loss {scaled / 2}\n"


def test_without_a_redirect_nothing_is_pretended(tmp_path: Path) -> None:
    done = run(tmp_path, "import torch\nprint(torch.cuda.is_available())\n")
    assert done.stdout == "False\n"


def test_what_is_recorded(tmp_path: Path) -> None:
    first, second = run(tmp_path, PLAIN), run(tmp_path, PLAIN.replace("lr=0.5", "lr=0.25"))
    assert first.returncode == second.returncode == 0, first.stderr
    assert [(event.kind, event.what) for event in first.traces[0]] == [
        ("backward", ""),
        ("step", "SGD of 3 elements"),
        ("save", "net.pt of 3 elements"),
    ]
    assert losses(first.traces[0]) == losses(second.traces[0])
    assert first.traces[0][2].digest != second.traces[0][2].digest


def test_a_script_that_dies_leaves_what_it_did(tmp_path: Path) -> None:
    done = run(tmp_path, PLAIN.replace("optimizer.step()", "raise RuntimeError('no luck')"))
    assert done.returncode == 1
    assert "no luck" in done.stderr
    assert [event.kind for event in done.traces[0]] == ["backward"]
