"""AM250: a script without a loader would train the same thing on every process."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_a_whole_set_in_one_tensor_is_named() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(8, 3)
        !AM100 review: stays on the CPU
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
