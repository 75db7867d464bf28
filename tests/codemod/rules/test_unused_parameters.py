"""AM185: DistributedDataParallel is told about parameters that a backward may leave without a gradient."""

from __future__ import annotations

from support.migration import check_migrated

FINDS_UNUSED = """
     import torch
     import torch.nn.functional as F
    +from accelerate_runtime import Accelerator, DistributedDataParallelKwargs
     from torch import nn
     from torch.utils.data import DataLoader, TensorDataset

     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
"""
PLAIN = FINDS_UNUSED.replace("Accelerator, DistributedDataParallelKwargs", "Accelerator")
TWO_HEADS = """


     class Net(nn.Module):
         def __init__(self):
             super().__init__()
             self.body = nn.Linear(8, 8)
             self.kind = nn.Linear(8, 3)
             self.score = nn.Linear(8, 1)

         def forward(self, x):
             h = torch.relu(self.body(x))
             score = self.score(h)
             return score, self.kind(h)


"""
TOLD = """
    +accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
"""
NOT_TOLD = """
    +accelerator = Accelerator()
"""
MADE = """
     model = Net()
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
STEP = """
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
"""


def test_an_output_that_is_dropped_leaves_its_own_layers_without_gradients() -> None:
    check_migrated(
        FINDS_UNUSED,
        TWO_HEADS,
        TOLD,
        MADE,
        """
         for x, y in loader:
             _, kind = model(x)
        !    AM185 migrated: an output of the model is not used
             loss = F.cross_entropy(kind, y)
        """,
        STEP,
    )


def test_outputs_that_are_all_used_need_nothing() -> None:
    check_migrated(
        PLAIN,
        TWO_HEADS,
        NOT_TOLD,
        MADE,
        """
         for x, y in loader:
             score, kind = model(x)
             loss = F.cross_entropy(kind, y) + score.mean()
        """,
        STEP,
    )


def test_a_state_that_is_dropped_has_no_layers_of_its_own() -> None:
    check_migrated(
        PLAIN,
        """


         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.rnn = nn.RNN(8, 8)
                 self.kind = nn.Linear(8, 3)

             def forward(self, x, h):
                 out, h = self.rnn(x, h)
                 return self.kind(out), h


        """,
        NOT_TOLD,
        MADE,
        """
         for x, y in loader:
             out, _ = model(x, None)
             loss = F.cross_entropy(out, y)
        """,
        STEP,
    )


ONE_LAYER = """


     class Net(nn.Module):
         def __init__(self):
             super().__init__()
             self.body = nn.Linear(8, 3)
             self.spare = nn.Linear(8, 3)
             self.quiet = nn.ReLU()

         def forward(self, x):
             return {returned}


"""
EPOCH = (
    """
     for x, y in loader:
         loss = F.cross_entropy(model(x), y)
"""
    + STEP
)


def test_a_layer_that_is_never_used() -> None:
    made = MADE.replace("Net()\n", "Net()\n    !AM185 migrated: a layer of `Net` is never used\n")
    check_migrated(FINDS_UNUSED, ONE_LAYER.format(returned="self.body(x)"), TOLD, made, EPOCH)


def test_a_layer_that_is_looked_up_by_its_name_is_used() -> None:
    returned = 'getattr(self, "spare")(x) + self.body(x)'
    check_migrated(PLAIN, ONE_LAYER.format(returned=returned), NOT_TOLD, MADE, EPOCH)


def test_a_layer_that_another_class_may_use_is_not_called_unused() -> None:
    check_migrated(
        PLAIN,
        """


         class Base(nn.Module):
             def forward(self, x):
                 return self.body(x)


         class Net(Base):
             def __init__(self):
                 super().__init__()
                 self.body = nn.Linear(8, 3)


        """,
        NOT_TOLD,
        MADE,
        EPOCH,
    )
