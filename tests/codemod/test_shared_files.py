"""Files that several runs share: a migration changes what its own run leads to."""

from __future__ import annotations

from accelerate_migrate.findings import Status
from support.cases import migrated

TRAIN = b"""\
import torch
from torch import nn
from evaluate import accuracy

net = nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
nn.functional.cross_entropy(net(torch.randn(4, 8).cuda()), torch.ones(4).long().cuda()).backward()
optimizer.step()
print(accuracy(net, torch.randn(4, 8)))
"""
EVALUATE = b"""\
import sys

import torch
from torch import nn


def accuracy(net, x):
    print("evaluating")
    return (net(x.cuda()).argmax(1) == 1).sum().item()


def main():
    net = nn.DataParallel(nn.Linear(8, 3))
    net.load_state_dict(torch.load(sys.argv[1]))
    print(accuracy(net.cuda(), torch.randn(4, 8)))


if __name__ == "__main__":
    main()
"""


def test_what_only_another_run_leads_to_is_left_and_named() -> None:
    results = migrated({"train.py": TRAIN, "evaluate.py": EVALUATE})
    assert results["train.py"].status is Status.MIGRATED
    lines = EVALUATE.decode().split("\n")
    after = results["evaluate.py"].text_after().split("\n")
    assert after[after.index("def main():") :] == lines[lines.index("def main():") :]
    said = {finding.line for finding in results["evaluate.py"].findings}
    assert lines.index("    print(accuracy(net.cuda(), torch.randn(4, 8)))") + 1 in said


def test_a_refusal_about_what_another_file_makes_names_that_file() -> None:
    factory = b"from torch import nn\n\n\ndef build():\n    return nn.Linear(4, 2)\n"
    train = b"""\
import torch
from factory import build

net = build().cuda()
other = net
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
(net(torch.ones(2, 4).cuda()) + other(torch.zeros(2, 4).cuda())).sum().backward()
optimizer.step()
"""
    (finding,) = migrated({"factory.py": factory, "train.py": train})["train.py"].findings
    assert "in line 5 of factory.py: the model made here goes by several names: `net` and `other`" in finding.message
    assert finding.line == 1


def test_a_script_in_the_checkout_of_a_library_uses_the_library() -> None:
    """Horovod's own code beside its examples is none of theirs."""
    library = b"""\
class DistributedOptimizer:
    def step(self):
        for p in self.parameters:
            p.grad = p.data.new(p.size()).zero_()
"""
    example = b"""\
import horovod.torch as hvd
import torch
from torch import nn

hvd.init()
torch.cuda.set_device(hvd.local_rank())
net = nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
nn.functional.cross_entropy(net(torch.randn(4, 8).cuda()), torch.ones(4).long().cuda()).backward()
optimizer.step()
"""
    results = migrated({"horovod/torch/__init__.py": library, "train.py": example})
    assert results["train.py"].status is Status.MIGRATED, results["train.py"].findings
    assert "hvd" not in results["train.py"].text_after()
    assert results["horovod/torch/__init__.py"].status is Status.UNCHANGED
