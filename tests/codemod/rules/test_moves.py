"""AM120: what `prepare` moves loses its move; everything else is moved to the accelerator's device."""

from __future__ import annotations

from accelerate_migrate.findings import Options
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_program


def test_a_model_and_its_batches_are_moved_by_prepare() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -model = nn.Linear(8, 3).cuda()
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    x, y = x.cuda(), y.cuda(non_blocking=True)
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_move_in_the_middle_of_a_chain_leaves_the_chain() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    x = x.view(-1, 8).cuda().float()
        +    x = x.view(-1, 8).float()
        -    loss = F.cross_entropy(model(x.to("cuda")), y.cuda())
        +    loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_batches_may_be_lists_or_dicts() -> None:
    check_migrated(
        PREPARED,
        """
         for batch in loader:
        -    batch = [t.cuda() for t in batch]
             loss = F.cross_entropy(model(batch[0]), batch[1])
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
         for batch in loader:
        -    batch = {k: v.cuda() for k, v in batch.items()}
             loss = F.cross_entropy(model(batch["x"]), batch["y"])
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_tensor_made_on_the_spot_keeps_its_move() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    noise = torch.randn(x.size(0), 8).cuda()
        +    noise = torch.randn(x.size(0), 8).to(accelerator.device)
        -    loss = F.cross_entropy(model(x.cuda() + noise), y.cuda())
        +    loss = F.cross_entropy(model(x + noise), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_what_is_made_from_a_batch_and_something_else_keeps_its_move() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    mixed = (x + torch.randn(8)).cuda()
        +    mixed = (x + torch.randn(8)).to(accelerator.device)
        -    loss = F.cross_entropy(model(mixed), y.cuda())
        +    loss = F.cross_entropy(model(mixed), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_change_of_dtype_is_not_a_move() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             x = x.to(torch.float64).to(torch.float32)
             loss = F.cross_entropy(model(x), y.to(torch.int64))
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_dtype_beside_the_device_stays() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    x = x.to("cuda", torch.float32)
        +    x = x.to(torch.float32)
        -    y = y.to(device="cuda", dtype=torch.int64, non_blocking=True)
        +    y = y.to(dtype=torch.int64)
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_move_to_the_cpu_stays() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
             seen = loss.detach().to("cpu")
             kept = x.cpu()
        """,
    )


def test_the_cuda_method_of_a_class_of_ones_own_stays() -> None:
    check_migrated(
        PREPARED,
        """
         class Timer:
             def cuda(self):
                 return self

             def to(self, unit):
                 return self


         timer = Timer().cuda().to("ms")
        """,
        TRAINED,
    )


def test_a_loss_without_parameters_needs_no_move() -> None:
    check_migrated(
        IMPORTS,
        """
        -criterion = nn.CrossEntropyLoss().cuda()
        +criterion = nn.CrossEntropyLoss()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_loss_with_class_weights_is_moved() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).cuda()
        +criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).to(accelerator.device)
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_frozen_teacher_is_moved_since_prepare_does_not_see_it() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -teacher = nn.Linear(8, 3).cuda()
        +teacher = nn.Linear(8, 3).to(accelerator.device)
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


def test_a_guard_around_moves_only_goes_with_them() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if torch.cuda.is_available():
        -    model.cuda()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_guard_with_something_else_in_it_stays() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         if torch.cuda.is_available():
        -    model.cuda()
             torch.backends.cudnn.benchmark = True
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_an_expression_that_moves_where_it_can_becomes_plain() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    x = x.cuda() if torch.cuda.is_available() else x
        -    z = torch.randn(8).cuda() if torch.cuda.is_available() else torch.randn(8)
        +    z = torch.randn(8).to(accelerator.device)
             loss = F.cross_entropy(model(x + z), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_moved_copy_that_nothing_uses_is_named() -> None:
    check_migrated(
        PREPARED,
        """
         weights = torch.ones(3)
         weights.cuda()
        ! AM120 note: moves a copy that nothing uses
        """,
        TRAINED,
    )


def test_a_model_that_is_called_before_prepare_is_moved_for_that() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -model = nn.LazyLinear(3).cuda()
        +model = nn.LazyLinear(3).to(accelerator.device)
        -model(torch.ones(1, 8).cuda())
        +model(torch.ones(1, 8, device=accelerator.device))
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_suppressed_move_stays() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             x = x.cuda()  # accelerate-migrate: skip
        -    loss = F.cross_entropy(model(x), y.cuda())
        +    loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_model_that_is_evaluated_by_a_function_before_prepare_is_moved_for_that() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +accelerator = Accelerator()


         def outputs(model):
        -    return model(torch.ones(1, 8).to(device))
        +    return model(torch.ones(1, 8).to(accelerator.device))


        -model = nn.Linear(8, 3).to(device)
        +model = nn.Linear(8, 3).to(accelerator.device)
         start = outputs(model)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


MOVED_MODEL = """-model = nn.Linear(8, 3).cuda()
    +model = nn.Linear(8, 3).to(accelerator.device)
"""


def test_a_model_that_visits_the_cpu_comes_back() -> None:
    check_migrated(
        PREPARED.replace(" model = nn.Linear(8, 3)\n", MOVED_MODEL),
        """
         for epoch in range(3):
             for x, y in loader:
        -        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -        loss.backward()
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
                 optimizer.step()
             model.cpu()
        -    torch.save(model.state_dict(), "net.pt")
        -    model.cuda()
        +    accelerator.save(accelerator.get_state_dict(model), "net.pt")
        +    model.to(accelerator.device)
        """,
    )


def test_a_variable_for_the_cpu_beside_cuda_brings_things_back_and_stays() -> None:
    source = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
host = torch.device("cpu")
model = nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.randn(8, 2), batch_size=4)
for x in loader:
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept = x.to(host)
"""
    (result,) = migrate_program([Script("train.py", source.encode())], Options())
    after = result.text_after()
    assert "accelerator = Accelerator()\n" in after
    assert 'host = torch.device("cpu")\n' in after
    assert "    kept = x.to(host)\n" in after
    assert "loss = model(x).mean()" in after


def test_a_batch_on_its_device_is_not_pinned() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    x, y = x.pin_memory().cuda(non_blocking=True), y.cuda(non_blocking=True)
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_buffer_that_batches_are_copied_into_stays() -> None:
    check_migrated(
        PREPARED,
        """
         buffer = torch.FloatTensor(1)
        -if torch.cuda.is_available():
        -    buffer = buffer.cuda()
        +buffer = buffer.to(accelerator.device)
         for x, y in loader:
             buffer.resize_(x.size()).copy_(x)
             optimizer.zero_grad()
        -    loss = F.cross_entropy(model(buffer), y.cuda())
        -    loss.backward()
        +    loss = F.cross_entropy(model(buffer), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_branches_that_differ_in_moves_only_become_one() -> None:
    check_migrated(
        IMPORTS,
        """
         def variable(tensor):
        -    if torch.cuda.is_available():
        -        return torch.autograd.Variable(tensor.cuda())
        -    else:
        -        return torch.autograd.Variable(tensor)
        +    return torch.autograd.Variable(tensor.to(accelerator.device))


        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         z = variable(torch.randn(8))
        """,
        TRAINED,
    )


def test_branches_that_differ_in_more_stay() -> None:
    check_migrated(
        PREPARED,
        """
         if torch.cuda.is_available():
        -    z = torch.randn(8).cuda()
        +    z = torch.randn(8).to(accelerator.device)
         else:
             z = torch.randn(4)
        """,
        TRAINED,
    )


def test_a_model_that_is_copied_before_prepare_keeps_its_move() -> None:
    check_migrated(
        IMPORTS,
        """
         import copy
        +accelerator = Accelerator()
        -model = nn.Linear(8, 3).cuda()
        +model = nn.Linear(8, 3).to(accelerator.device)
         slow = copy.deepcopy(model)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    loss.backward()
        +    loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
             optimizer.step()
             optimizer.zero_grad()
             for kept, new in zip(slow.parameters(), model.parameters()):
                 kept.data.lerp_(new.data, 0.1)
        """,
    )


def test_a_helper_that_moves_what_it_is_given_keeps_its_guard() -> None:
    check_program(
        {
            "net.py": """
                 import torch
                 from torch import nn


                 def to_gpu(x):
                     if torch.cuda.is_available():
                         x = x.cuda()
                !        AM120 manual: moves to CUDA where the accelerator cannot be passed
                     return x


                 class Net(nn.Module):
                     def __init__(self):
                         super().__init__()
                         self.layer = nn.Linear(8, 3)

                     def parse(self, batch):
                         return to_gpu(batch[0]), to_gpu(batch[1])

                     def forward(self, x):
                         return self.layer(x)
            """,
            "train.py": """
                 import torch
                 import torch.nn.functional as F
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                 from net import Net

                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                +accelerator = Accelerator()
                 model = Net()
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 loader = DataLoader(data, batch_size=32)
                +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                 for batch in loader:
                     optimizer.zero_grad()
                -    x, y = model.parse(batch)
                -    F.cross_entropy(model(x), y).backward()
                +    x, y = accelerator.unwrap_model(model).parse(batch)
                +    accelerator.backward(F.cross_entropy(model(x), y))
                     optimizer.step()
                 for batch in DataLoader(data, batch_size=7, collate_fn=list):
                -    print(model.parse(batch)[0])
                +    accelerator.print(accelerator.unwrap_model(model).parse(batch)[0])
            """,
        }
    )


def test_what_goes_where_the_model_was_is_named() -> None:
    check_migrated(
        IMPORTS,
        """
         from settings import device

        +accelerator = Accelerator()
        +
         model = nn.Linear(8, 3).to(device)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             noise = torch.randn(8, device=device)
        !    AM120 review: take the accelerator's device in its place
             loss = F.cross_entropy(model(x + noise), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )
