"""AM250: a script without a loader would train the same thing on every process."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_a_whole_set_in_one_tensor_is_named() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(8, 3)
        !AM100 note: stays on the CPU
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer = accelerator.prepare(model, optimizer)
         x, y = data.tensors
         for epoch in range(3):
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        !    AM250 review: no DataLoader feeds this backward
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_loader_spreads_the_data() -> None:
    check_migrated(PREPARED, TRAINED)


def test_a_function_that_a_loaders_loop_calls_is_fed_by_it() -> None:
    check_migrated(
        PREPARED,
        """


         def step(x, y):
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()


         for x, y in loader:
             step(x, y)
        """,
    )


def test_batches_drawn_by_hand_come_from_the_loader() -> None:
    check_migrated(
        PREPARED,
        """
         batches = iter(loader)
         step = 0
         while step < 10:
             try:
                 x, y = next(batches)
             except StopIteration:
                 batches = iter(loader)
                 x, y = next(batches)
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             step += 1
        """,
    )


def test_a_while_around_the_loaders_loop_is_fed_by_it() -> None:
    check_migrated(
        PREPARED,
        """
         step = 0
         while step < 10:
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 step += 1
        """,
    )


def _whole_set(before: str, finding: str, drawn: str = "x, y = torch.ones(9, 8), torch.arange(9) % 3") -> None:
    check_migrated(
        before,
        f"""
         import torch
         import torch.nn.functional as F
         from torch import nn
        +from accelerate_runtime import Accelerator
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(8, 3)
        !AM100 note: stays on the CPU
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer = accelerator.prepare(model, optimizer)
         {drawn}
         for epoch in range(3):
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        !    AM250 {finding}
        +    accelerator.backward(loss)
             optimizer.step()
         picked = torch.randint(9, (3,))
        """,
    )


def test_data_that_is_the_same_on_every_process_asks_nothing_of_a_person() -> None:
    _whole_set("import math", "note: every process computes the same")


def test_data_that_is_drawn_without_a_seed_does() -> None:
    _whole_set("import math", "review: no DataLoader", "x, y = torch.randn(9, 8), torch.arange(9) % 3")


def test_data_that_is_drawn_from_a_seeded_generator_is_the_same() -> None:
    drawn = "torch.manual_seed(1)\n         x, y = torch.randn(9, 8), torch.arange(9) % 3"
    _whole_set("import math", "note: every process computes the same", drawn)


def test_a_seed_that_may_not_be_set_does_not_count() -> None:
    drawn = "if x0:\n             torch.manual_seed(x0)\n         x, y = torch.randn(9, 8), torch.arange(9) % 3"
    _whole_set("import math\nx0 = 3", "review: no DataLoader", drawn)


def test_data_from_a_library_that_is_not_known_may_differ() -> None:
    _whole_set("import somewhere", "review: no DataLoader")


def test_a_function_that_nothing_calls_trains_nothing() -> None:
    check_migrated(
        PREPARED,
        """


         def step_by_hand(x, y):
        -    y = y.cuda()
        +    y = y.to(accelerator.device)
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()


        """,
        TRAINED,
    )


def test_every_process_plays_by_itself() -> None:
    check_migrated(
        """
         import gymnasium
         import torch
         import torch.nn.functional as F
         from torch import nn
        +from accelerate_runtime import Accelerator

         env = gymnasium.make("CartPole-v1")
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(4, 2)
        !AM100 note: stays on the CPU
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer = accelerator.prepare(model, optimizer)


         def play():
             state, _ = env.reset()
             rewards = []
             for _ in range(100):
                 scores = model(torch.from_numpy(state))
                 action = torch.multinomial(scores.softmax(0), 1)
                 state, reward, done, cut, _ = env.step(action.item())
                 rewards.append(reward * scores[action])
             return torch.cat(rewards)


         for _ in range(10):
             optimizer.zero_grad()
             loss = -play().sum()
        -    loss.backward()
        !    AM250 note: every process plays by itself
        +    accelerator.backward(loss)
             optimizer.step()
        """
    )


def test_a_closure_that_computes_the_same_everywhere() -> None:
    check_migrated(
        """
         import torch
         import torch.nn.functional as F
         from torch import nn
        +from accelerate_runtime import Accelerator

         torch.manual_seed(0)
         x, y = torch.randn(96, 8), torch.randint(3, (96,))
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(8, 3)
        !AM100 note: stays on the CPU
         optimizer = torch.optim.LBFGS(model.parameters())
        +model, optimizer = accelerator.prepare(model, optimizer)


         def closure():
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        !    AM250 note: every process computes the same
        +    accelerator.backward(loss)
             return loss


         optimizer.step(closure)
        """
    )
