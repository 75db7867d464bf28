"""AM425: gradients that the script averages over processes itself are averaged by `prepare`'s wrapper."""

from __future__ import annotations

import pytest

from support.migration import TRAINED, check_migrated, check_refused
from support.parallel import MADE, STARTED

AVERAGED = TRAINED.replace("         optimizer.step()", "    -    average_gradients(model)\n         optimizer.step()")


@pytest.mark.parametrize(
    "averaging",
    [
        "dist.all_reduce(p.grad)\n             p.grad /= dist.get_world_size()",
        "dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)\n             p.grad.data /= size",
        "dist.all_reduce(p.grad)\n             p.grad.div_(size)",
        "p.grad.data = p.grad.data / size\n             dist.all_reduce(p.grad.data)",
        "dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)",
        "if p.grad is not None:\n                 dist.all_reduce(p.grad)\n                 p.grad /= size",
    ],
    ids=["grad", "data", "div_", "before", "average", "those there are"],
)
def test_a_function_that_averages_after_backward(averaging: str) -> None:
    function = f"""
     def average_gradients(model):
         size = float(dist.get_world_size())
         for p in model.parameters():
             {averaging}


    """
    gone = function.replace("\n     ", "\n    -").replace("\n    \n", "\n")
    check_migrated(STARTED, gone, MADE, AVERAGED)


def test_a_loop_in_the_training_loop_and_one_that_makes_models_equal() -> None:
    check_migrated(
        STARTED,
        MADE,
        """
        -for parameter in model.parameters():
        -    dist.broadcast(parameter.data, 0)
         for x, y in loader:
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        -    for name, parameter in model.named_parameters():
        -        dist.all_reduce(parameter.grad)
        -        parameter.grad /= dist.get_world_size()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_function_that_hangs_the_averaging_into_the_model() -> None:
    check_migrated(
        STARTED,
        """
        -def averaged(model):
        -    for tensor in model.state_dict().values():
        -        if torch.is_tensor(tensor):
        -            dist.broadcast(tensor, 0)
        -
        -    def average():
        -        gradients = [p.grad.data for p in model.parameters() if p.grad is not None]
        -        flat = torch.cat([g.flatten() for g in gradients])
        -        dist.all_reduce(flat)
        -        flat /= dist.get_world_size()
        -        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
        -            gradient.copy_(part.view_as(gradient))
        -
        -    for p in model.parameters():
        -        p.register_hook(lambda *_: torch.autograd.Variable._execution_engine.queue_callback(average))
        -    return model


        """,
        MADE.replace("     optimizer", "    -model = averaged(model)\n     optimizer"),
        TRAINED,
    )


PLAIN = """
 import torch
 import torch.distributed as dist
 from torch import nn

 dist.init_process_group("nccl")
 model = nn.Linear(8, 3)
 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
 step = 0
 model(torch.ones(8)).mean().backward()
"""


@pytest.mark.parametrize(
    ("loop", "inside"),
    [
        ("for p in list(model.parameters())[:1]:", "if True:"),
        ("for name, p in model.named_parameters():", 'if "bias" in name:'),
        ("for p in model.parameters():", "if step % 4 == 0:"),
    ],
    ids=["some", "by name", "now and then"],
)
def test_an_average_of_some_gradients_refuses_the_file(loop: str, inside: str) -> None:
    check_refused(
        PLAIN,
        f"""
         {loop}
             {inside}
                 dist.all_reduce(p.grad)
        !        AM900 refused: gradients are averaged over processes by hand here
                 p.grad /= dist.get_world_size()
         optimizer.step()
        """,
    )


@pytest.mark.parametrize(
    "more",
    ["nn.init.zeros_(model.weight)", "model.half()", "model.weight.requires_grad = False", "model.eval()"],
)
def test_a_wrapper_that_does_more_refuses_the_file(more: str) -> None:
    check_refused(
        PLAIN.replace(" model(torch.ones(8)).mean().backward()\n", ""),
        f"""
         def averaged(model):
             def average(gradient):
                 dist.all_reduce(gradient)
        !        AM900 refused: gradients are averaged over processes by hand here
                 return gradient / dist.get_world_size()

             for p in model.parameters():
                 p.grad = None
                 p.register_hook(average)
             {more}
             return model


         model = averaged(model)
         model(torch.ones(8)).mean().backward()
         optimizer.step()
        """,
    )


@pytest.mark.parametrize("then", ["pass", "p.grad /= 3", "p.grad /= 2 * dist.get_world_size()"])
def test_what_is_no_average_refuses_the_file(then: str) -> None:
    check_refused(
        PLAIN,
        f"""
         for p in model.parameters():
             dist.all_reduce(p.grad)
        !    AM900 refused: gradients are averaged over processes by hand here
             {then}
         optimizer.step()
        """,
    )


def test_an_average_now_and_then_refuses_the_file() -> None:
    check_refused(
        PLAIN,
        """
         if step % 10 == 0:
             for p in model.parameters():
                 dist.all_reduce(p.grad)
        !        AM900 refused: gradients are averaged over processes by hand here
                 p.grad /= dist.get_world_size()
         optimizer.step()
        """,
    )


def test_an_average_where_a_window_of_batches_is_full() -> None:
    check_migrated(
        STARTED.replace("+from accel", "+from contextlib import nullcontext\n    +from accel"),
        MADE,
        """
         for step, (x, y) in enumerate(loader):
        -    (F.cross_entropy(model(x), y) / 2).backward()
        +    with nullcontext() if step % 2 == 1 else accelerator.no_sync(model):
        +        accelerator.backward(F.cross_entropy(model(x), y) / 2)
             if step % 2 == 1:
        -        for p in model.parameters():
        -            dist.all_reduce(p.grad)
        -            p.grad /= dist.get_world_size()
                 optimizer.step()
                 optimizer.zero_grad()
        """,
    )
