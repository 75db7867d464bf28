"""AM140: what trains goes through `prepare`, once, behind the last of it that is made."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_refused


def test_one_call_stands_behind_the_last_object() -> None:
    check_migrated(PREPARED, TRAINED)


def test_an_optimizer_made_before_the_loader_or_after_it() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         loader = DataLoader(data, batch_size=32, shuffle=True)
         model = nn.Linear(8, 3)
         print_every = 10
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_each_optimizer_and_its_model_is_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         encoder, head = nn.Linear(8, 8), nn.Linear(8, 3)
         slow = torch.optim.SGD(encoder.parameters(), lr=0.1)
         fast = torch.optim.Adam(head.parameters())
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +encoder, head, slow, fast, loader = accelerator.prepare(encoder, head, slow, fast, loader)
         for x, y in loader:
             loss = F.cross_entropy(head(encoder(x)), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             slow.step()
             fast.step()
        """,
    )


def test_a_model_that_no_optimizer_owns_is_not_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
         teacher = nn.Linear(8, 3)
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             loss = F.mse_loss(model(x), teacher(x))
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_part_of_a_model_is_prepared_with_the_whole() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
         optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_state_is_loaded_before_the_model_is_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        -model.load_state_dict(torch.load("start.pt"))
        +model.load_state_dict(torch.load("start.pt", map_location="cpu"))
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_what_is_made_anew_for_each_fold_is_prepared_anew() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         for fold in range(5):
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        """,
    )


def test_a_loader_that_nothing_iterates_over_is_made_for_somebody() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         other = DataLoader(data, batch_size=32)
        +model, optimizer, loader, other = accelerator.prepare(model, optimizer, loader, other)
        """,
        TRAINED,
    )


def test_a_wide_call_is_folded() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         a_model_with_a_long_name = nn.Linear(8, 3)
         an_optimizer_with_a_long_name = torch.optim.SGD(a_model_with_a_long_name.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +a_model_with_a_long_name, an_optimizer_with_a_long_name, loader = accelerator.prepare(
        +    a_model_with_a_long_name, an_optimizer_with_a_long_name, loader
        +)
         for x, y in loader:
             loss = F.cross_entropy(a_model_with_a_long_name(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             an_optimizer_with_a_long_name.step()
        """,
    )


def test_a_name_for_two_kinds_of_things_is_refused() -> None:
    check_refused(
        """
         import torch
         from torch import nn

         net = nn.Linear(8, 3)
        ! AM900 refused: `net` holds objects of different roles
         net = torch.optim.SGD(net.parameters(), lr=0.1)
         loss = torch.ones(1)
         loss.backward()
         net.step()
        """
    )


def test_what_an_object_keeps_is_prepared_where_it_is_made() -> None:
    check_migrated(
        """
         import torch
         from torch import nn
        +from accelerate_runtime import Accelerator


         class Trainer:
             def __init__(self):
        +        self.accelerator = Accelerator(cpu=True)
                 self.model = nn.Linear(8, 3)
        !        AM100 note: this script chooses no device
                 self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        +        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

             def step(self, x):
        -        self.model(x).sum().backward()
        +        self.accelerator.backward(self.model(x).sum())
        !        AM250 note: no DataLoader
                 self.optimizer.step()


         Trainer().step(torch.ones(8))
        """,
    )


def test_items_of_a_container_are_prepared_in_their_places() -> None:
    check_migrated(
        """
         import torch
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader

        +accelerator = Accelerator()
        +
         nets = {"G": nn.Linear(8, 3)}
         optimizers = [torch.optim.SGD(nets["G"].parameters(), lr=0.1)]
         loader = DataLoader([])
        +nets["G"], optimizers[0], loader = accelerator.prepare(nets["G"], optimizers[0], loader)
         for x, y in loader:
        -    nets["G"](x).mean().backward()
        +    accelerator.backward(nets["G"](x).mean())
             optimizers[0].step()
        """,
    )


def test_a_model_kept_in_a_container_is_refused() -> None:
    check_refused(
        """
         import torch
         from torch import nn

         model = nn.Linear(8, 3)
         parts = {"model": model}
        ! AM900 refused: `parts` keeps what is trained in a container
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         parts["model"](torch.ones(8)).sum().backward()
         optimizer.step()
        """
    )


def test_a_model_that_is_made_under_a_condition_is_refused() -> None:
    check_refused(
        """
         import sys
         import torch
         from torch import nn
         from torch.utils.data import DataLoader

         loader = DataLoader(torch.randn(96, 8), batch_size=32)
         if "--model" in sys.argv:
             model = nn.Linear(8, 3)
        !    AM900 refused: `model` is made under a condition only
         optimizer = torch.optim.Adam(model.parameters())
         for x in loader:
             model(x).sum().backward()
             optimizer.step()
        """
    )


def test_a_loader_that_is_made_after_the_training_is_prepared_there() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         held_out = DataLoader(data, batch_size=32)
        +held_out = accelerator.prepare(held_out)
         total = 0.0
         for x, y in held_out:
             out = model(x)
        +    out = accelerator.gather_for_metrics(out)
             total += out.sum().item()
        """,
    )


def test_what_the_main_block_makes_is_prepared_there_with_the_loader_above() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         loader = DataLoader(data, batch_size=32, shuffle=True)


         def train():
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         if __name__ == "__main__":
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for epoch in range(2):
                 train()
        """,
    )


def test_two_loaders_drawn_in_step_are_both_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader_a = DataLoader(data, batch_size=32, shuffle=True)
         loader_b = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader_a, loader_b = accelerator.prepare(model, optimizer, loader_a, loader_b)
         for (x, y), (z, _) in zip(loader_a, loader_b):
        -    loss = F.cross_entropy(model(x.cuda() + z.cuda()), y.cuda())
        -    loss.backward()
        +    loss = F.cross_entropy(model(x + z), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_an_optimizer_is_prepared_before_what_wraps_it() -> None:
    check_migrated(
        IMPORTS,
        """
         class Warmup:
             def __init__(self, optimizer):
                 self.optimizer = optimizer

             def step_and_update(self):
                 self.optimizer.step()
                 self.optimizer.zero_grad()


        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         warmup = Warmup(optimizer)
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             warmup.step_and_update()
        """,
    )


def test_an_optimizer_that_a_flag_turns_off_is_prepared_where_it_is_made() -> None:
    check_migrated(
        IMPORTS.replace("     import torch\n", "     import sys\n\n     import torch\n", 1),
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, loader = accelerator.prepare(model, loader)
         if "--sgd" in sys.argv:
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +    optimizer = accelerator.prepare(optimizer)
         for x, y in loader:
             model.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             if "--sgd" in sys.argv:
                 optimizer.step()
             else:
                 for p in model.parameters():
                     p.data.add_(p.grad, alpha=-0.1)
        """,
    )


def test_a_loader_that_no_variable_holds_is_evaluated_whole() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """

         def accuracy(model, loader):
             right = 0
             for x, y in loader:
        -        right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
        +        right += (model(x.to(accelerator.device)).argmax(1) == y.to(accelerator.device)).sum().item()
             return right


        -print(accuracy(model, DataLoader(data, batch_size=32)))
        !AM140 note: not held by a plain variable
        +accelerator.print(accuracy(model, DataLoader(data, batch_size=32)))
        """,
    )
