"""AM900: what this version does not migrate is refused, with the place and the reason."""

from __future__ import annotations

import pytest

from support.migration import check_refused, check_unchanged

MACHINERY = [
    ("import torch.cuda.amp as amp", "amp.common.amp_definitely_not_available()", "torch.cuda.amp"),
    ("from apex import amp", "amp.load_state_dict({})", "apex"),
    ("from apex.fp16_utils import FP16_Optimizer", "optimizer = FP16_Optimizer(optimizer)", "apex"),
    ("import torch_xla.core.xla_model as xm", "device = xm.xla_device()", "torch_xla"),
]
TRAINS = """
    model = nn.Linear(8, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(8).cuda()).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("imports", "use", "what"), MACHINERY, ids=[what for _, _, what in MACHINERY])
def test_other_ways_to_train_in_parallel_or_mixed_precision(imports: str, use: str, what: str) -> None:
    check_refused(
        "import torch\nfrom torch import nn",
        imports,
        f" {use}\n!AM900 refused: this script uses {what}, which this version does not migrate",
        TRAINS,
    )


BY_HAND = [
    ("import torch.distributed.rpc as rpc", 'rpc.init_rpc("worker")', "trains over remote procedure calls"),
    ("from torch.distributed.fsdp import fully_shard", "fully_shard(model)", "choose FSDP in the launch config"),
    ("from torch.distributed.pipelining import pipeline", "pipeline(model)", "cuts its model into a pipeline by hand"),
    ("from torch.distributed.device_mesh import init_device_mesh", 'init_device_mesh("cpu", (1,))', "a device mesh"),
    ("from torch.distributed.algorithms.join import Join", "Join([model])", "trains on uneven inputs by Join"),
    ("import torch.distributed as dist", "dist.send(torch.ones(1), dst=1)", "moves tensors between processes by hand"),
    ("import horovod.torch as hvd", "hvd.elastic.run(print)", "lets its number of processes change"),
    ("from encoding.parallel import DataParallelCriterion", "DataParallelCriterion(model)", "its loss on each GPU"),
    ("import torch.multiprocessing as mp", "mp.Process(target=print)\n model.share_memory()", "in shared memory"),
]


@pytest.mark.parametrize(("imports", "use", "why"), BY_HAND, ids=[use.split("(")[0] for _, use, _ in BY_HAND])
def test_ways_to_train_in_parallel_that_prepare_cannot_take_over(imports: str, use: str, why: str) -> None:
    check_refused(
        "import torch\nfrom torch import nn\n\nmodel = nn.Linear(8, 3)",
        imports,
        f" {use}\n!AM900 refused: {why}",
        TRAINS,
    )


def test_an_import_alone_refuses_nothing() -> None:
    check_unchanged(
        """
         import torch.distributed as dist
         from apex import amp

         x = torch.ones(1).cuda()
        ! AM900 note: moves to CUDA in a file that does not train by itself
        """
    )


def test_asking_whether_there_is_a_group_is_harmless() -> None:
    check_unchanged(
        """
         import torch.distributed as dist

         name = "backward"
         if dist.is_available() and dist.is_initialized():
             pass
        """
    )


def test_an_optimizer_that_is_not_known() -> None:
    check_refused(
        """
         import torch
         from strange_optimizers import Sophia
         from torch import nn

         model = nn.Linear(8, 3).cuda()
         optimizer = Sophia(model.parameters())
         loss = model(torch.ones(8).cuda()).mean()
         loss.backward()
        ! AM900 refused: no optimizer that is known steps on them
         optimizer.step()
        """
    )


@pytest.mark.parametrize(
    "code",
    [
        " def configure():\n     exec(open('c.py').read())\n!AM900 refused: runs code from elsewhere by exec",
        " if model:\n     exec('x = 1', globals())\n!AM900 refused: runs code from elsewhere by exec",
        " model = nn.Linear(8, 3)\n exec(open('c.py').read())\n!AM900 refused: runs code from elsewhere by exec",
    ],
    ids=["in a function", "in a block", "behind the model"],
)
def test_code_from_elsewhere_that_may_change_more_than_settings(code: str) -> None:
    check_refused("import torch\nfrom torch import nn\nmodel = None", code, TRAINS)


def test_a_library_file_that_moves_to_cuda_is_named() -> None:
    check_unchanged(
        """
         import torch


         def ones(n):
             return torch.ones(n).cuda()
        !    AM900 note: moves to CUDA in a file that does not train by itself


         def choose(rank):
             torch.cuda.set_device(rank)
        !    AM900 note: chooses a CUDA device in a file that does not train by itself
        """
    )


def test_a_suppressed_line_is_not_named() -> None:
    check_unchanged(
        """
        import torch

        x = torch.ones(3).cuda()  # accelerate-migrate: skip
        """
    )


def test_a_file_about_something_else_is_left() -> None:
    check_unchanged("cuda = 'CUDA is a toolkit'")
