"""AM180: `DataParallel` goes; its splitting of the batch is kept."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_refused

SPLIT = IMPORTS.replace("import Accelerator", "import Accelerator, DataLoaderConfiguration")


def test_a_wrapped_model_is_the_model() -> None:
    check_migrated(
        SPLIT,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
        -model = nn.DataParallel(nn.Linear(8, 3)).cuda()
        ! AM180 migrated: the batch size must be a multiple of their number
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_wrap_that_depends_on_the_number_of_gpus_goes_with_its_test() -> None:
    check_migrated(
        SPLIT,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
         model = nn.Linear(8, 3)
        -if torch.cuda.device_count() > 1:
        -    model = nn.DataParallel(model)
        !    AM180 migrated
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_what_looked_through_the_wrapper_looks_at_the_model() -> None:
    check_migrated(
        SPLIT,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
         model = nn.Linear(8, 3)
        -model = nn.DataParallel(model)
        ! AM180 migrated
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
        -torch.save(model.module.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        -bias = model.module.bias
        +bias = accelerator.unwrap_model(model).bias
        """,
    )


def test_checkpoints_with_the_old_prefix_still_load() -> None:
    check_migrated(
        SPLIT,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
        -model = nn.DataParallel(nn.Linear(8, 3))
        ! AM180 migrated
        +model = nn.Linear(8, 3)
        -model.load_state_dict(torch.load("a"))
        ! AM155 review: its checkpoints carry the prefix `module.`, which is accepted here
        +model.load_state_dict({k.removeprefix("module."): v for k, v in torch.load("a", map_location="cpu").items()})
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_class_of_ones_own_called_dataparallel_stays() -> None:
    check_migrated(
        PREPARED,
        """
         class DataParallel:
             def __init__(self, inner):
                 self.inner = inner


         parallel = DataParallel(3)
        """,
        TRAINED,
    )


NET = """
    +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
     model = Net()
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_a_model_that_spreads_its_layers_over_gpus_calls_them() -> None:
    check_migrated(
        SPLIT,
        """


         class Net(nn.Module):
             def __init__(self, gpus=2):
                 super().__init__()
                 self.gpus = gpus
                 self.layers = nn.Linear(8, 3)

             def forward(self, x):
        -        if x.is_cuda and self.gpus > 1:
        -            out = nn.parallel.data_parallel(self.layers, x, range(self.gpus))
        !            AM180 migrated: the batch size must be a multiple of their number
        -        else:
        -            out = self.layers(x)
        +        out = self.layers(x)
                 return out.relu()


        """,
        NET,
        TRAINED,
    )


def test_a_spread_call_that_returns_before_the_plain_one_goes() -> None:
    check_migrated(
        SPLIT,
        """


         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.gpus = [0, 1]
                 self.layers = nn.Linear(8, 3)

             def forward(self, x):
        -        if x.is_cuda and len(self.gpus) > 1:
        -            return nn.parallel.data_parallel(self.layers, x, self.gpus)
        !            AM180 migrated
                 return self.layers(x)


        """,
        NET,
        TRAINED,
    )


def test_a_spread_call_beside_a_plain_one_is_chosen_no_more() -> None:
    check_migrated(
        SPLIT,
        NET.replace("Net()", "nn.Linear(8, 3)"),
        """
         for x, y in loader:
             optimizer.zero_grad()
        -    out = nn.parallel.data_parallel(model, x) if torch.cuda.is_available() else model(x)
        !    AM180 migrated
        +    out = model(x)
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_spread_tuple_is_taken_apart_and_other_work_beside_it_stays() -> None:
    check_migrated(
        SPLIT,
        """


         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.mix = nn.Bilinear(8, 8, 3)

             def forward(self, x):
                 if x.is_cuda:
                     x = x.contiguous()
        -            return nn.parallel.data_parallel(self.mix, (x, x), device_ids=[0, 1])
        !            AM180 migrated: self.mix(x, x)
        +            return self.mix(x, x)
                 return self.mix(x, x)


        """,
        NET,
        TRAINED,
    )


def test_a_spread_call_with_further_arguments_is_named_and_left() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             out = nn.parallel.data_parallel(model, x, [0, 1], module_kwargs={}) if x.is_cuda else model(x)
        !    AM180 manual: spreads a part of the model over GPUs by itself
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_spread_call_whose_inputs_may_be_a_tuple_is_named_and_left() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             out = nn.parallel.data_parallel(model, x, range(2))
        !    AM180 manual: spreads a part of the model over GPUs by itself
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_the_model_beside_its_wrapper_is_saved() -> None:
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, DataLoaderConfiguration"),
        """
         bare = nn.Linear(8, 3)
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
        -model = nn.DataParallel(bare)
        ! AM180 review: DataParallel split each batch
        +model = bare
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """


         def keep(net, path):
        -    torch.save(net.state_dict(), path)
        +    accelerator.save(accelerator.get_state_dict(net), path)


         keep(bare, "weights.pt")
        """,
    )


def test_a_model_that_is_called_beside_its_wrapper_refuses_the_file() -> None:
    check_refused(
        """
         import torch
         from torch import nn
         from torch.utils.data import DataLoader

         bare = nn.Linear(8, 3)
        !AM900 refused: goes by several names
         model = nn.DataParallel(bare)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         for x in DataLoader(torch.randn(96, 8), batch_size=32):
             optimizer.zero_grad()
             (model(x).mean() + bare(x).mean()).backward()
             optimizer.step()
        """
    )


def test_a_model_whose_forward_is_taken_beside_its_wrapper_refuses_the_file() -> None:
    check_refused(
        """
         import torch
         from torch import nn
         from torch.utils.data import DataLoader

         model = nn.Linear(8, 3)
         bare = model
        !AM900 refused: is another name of what is trained
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         for x in DataLoader(torch.randn(96, 8), batch_size=32):
             optimizer.zero_grad()
             run = bare.forward
             run(x).mean().backward()
             optimizer.step()
         print(model(x))
        """
    )
