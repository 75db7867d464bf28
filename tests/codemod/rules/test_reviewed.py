"""Places where a reviewer of whole diffs said no: what was wrong, and what stands there now."""

from __future__ import annotations

from support.migration import IMPORTS, TRAINED, check_migrated, check_refused

SPLIT = IMPORTS.replace("import Accelerator", "import Accelerator, DataLoaderConfiguration")


def test_where_a_file_is_loaded_to_is_no_choice_of_the_device() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--gpu", type=int)
         parser.add_argument("--resume")
         args = parser.parse_args()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if args.gpu is not None:
        -    model = model.cuda(args.gpu)
        -else:
        -    model = model.cuda()
         if args.resume:
             if args.gpu is None:
        -        state = torch.load(args.resume)
        +        state = torch.load(args.resume, map_location="cpu")
             else:
        -        where = "cuda:{}".format(args.gpu)
        -        state = torch.load(args.resume, map_location=where)
        +        state = torch.load(args.resume, map_location=accelerator.device)
             model.load_state_dict(state)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED.replace("     for x, y in loader:", "     for x, y in loader:\n    -    x, y = x.cuda(), y.cuda()"),
    )


UNKNOWN = """
     from nets import make_net
     flat = nn.Flatten()
"""


def test_a_wrapped_model_of_unknown_make_still_loads_what_it_wrote() -> None:
    check_migrated(
        SPLIT,
        UNKNOWN,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
        -net = nn.DataParallel(make_net(), device_ids=[0, 1])
        ! AM180 review: without the prefix
        +net = make_net()
        -net.load_state_dict(torch.load("a"))
        ! AM155 review: its checkpoints carry the prefix
        +net.load_state_dict({k.removeprefix("module."): v for k, v in torch.load("a", map_location="cpu").items()})
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
        """,
        TRAINED.replace("model", "net"),
        """
        -torch.save(net.state_dict(), "b.pt")
        +accelerator.save(accelerator.get_state_dict(net), "b.pt")
        """,
    )


def test_a_model_that_is_only_evaluated_loads_with_and_without_its_wrappers_prefix() -> None:
    check_migrated(
        SPLIT,
        UNKNOWN,
        """
         def evaluate(p):
        -    net = nn.DataParallel(make_net())
        !    AM180 review: without the prefix
        +    net = make_net()
        -    net.load_state_dict(torch.load(p))
        !    AM155 migrated: with the wrapper's prefix `module.` and without it
        +    net.load_state_dict({k.removeprefix("module."): v for k, v in torch.load(p, map_location="cpu").items()})
             return net

        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
        -torch.save(model.state_dict(), "b.pt")
        +accelerator.save(accelerator.get_state_dict(model), "b.pt")
        """,
    )


def test_what_a_wrapper_was_given_is_moved_by_hand_where_no_prepared_loader_does_it() -> None:
    check_migrated(
        SPLIT,
        """
        +accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
        -model = nn.DataParallel(nn.Linear(8, 3).cuda())
        !AM180 migrated: split_batches
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         held_out = DataLoader(data, batch_size=32)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -model(torch.randn(2, 8))
        +model(torch.randn(2, 8).to(accelerator.device))
        """,
        TRAINED.replace("cross_entropy(model(x), y)", "cross_entropy(model(x), y.cuda())")
        .replace("         loss = F", "    -    loss = F")
        .replace("    -    loss.backward", "    +    loss = F.cross_entropy(model(x), y)\n    -    loss.backward"),
        """
         seen = 0
         for x, y in held_out:
             if seen > 40:
                 break
        -    out = model(x)
        !    AM420 review: the wrapper moved `x` to its device
        +    out = model(x.to(accelerator.device))
             seen += len(x)
             correct = (out.argmax(1).cpu() == y).sum().item()
        """,
    )


def test_a_batch_that_goes_to_a_device_of_the_scripts_own_is_named() -> None:
    check_migrated(
        IMPORTS,
        """
         from nets import pick_device
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             x = x.to(pick_device())
        !    AM120 review: `pick_device()` may be another
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_device_that_is_chosen_only_where_none_is_set_is_refused() -> None:
    check_refused(
        """
         import torch
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset
         import settings
         if settings.device == "auto":
        ! AM900 refused: only where none is set already
             settings.device = "cuda" if torch.cuda.is_available() else "cpu"
         model = nn.Linear(8, 3).to(settings.device)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(TensorDataset(torch.ones(9, 8)), batch_size=3)
         for (x,) in loader:
             model(x.to(settings.device)).sum().backward()
             optimizer.step()
        """
    )
