"""AM200: a scheduler stepped once a batch is prepared, one stepped once an epoch is not."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_one_that_steps_once_an_epoch_stays_as_it_is() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for epoch in range(3):
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
             scheduler.step()
        !    AM200 note: runs once an epoch: not prepared
        """,
    )


def test_one_that_steps_once_a_batch_is_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
        +model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             scheduler.step()
        !    AM200 review: a schedule counted in steps of one process would run too fast
        """,
    )


def test_a_function_that_the_loop_calls_runs_once_a_batch() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        +model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)


         def step(loss):
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             scheduler.step()
        !    AM200 review: runs once a batch


         for x, y in loader:
             step(F.cross_entropy(model(x), y))
        """,
    )


def test_one_that_steps_both_ways_is_not_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             scheduler.step()
        !    AM200 note: runs both once a batch and once an epoch
         scheduler.step()
        """,
    )


def test_one_that_follows_the_training_loss_follows_that_of_all_processes() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         total = 0.0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    total += loss.item()
        +    total += accelerator.reduce(loss.detach(), reduction="mean").item()
         scheduler.step(total)
        ! AM200 note: follows a metric: not prepared
        """,
    )


def test_a_step_of_a_class_of_ones_own_is_none() -> None:
    check_migrated(
        PREPARED,
        """
         class Clock:
             def step(self):
                 return 1


         clock = Clock()
         clock.step()
        """,
        TRAINED,
    )


def test_one_whose_length_is_that_of_the_loader_needs_no_review() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         steps = 3 * len(loader)
         scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        +model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
         for epoch in range(3):
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 scheduler.step()
        !        AM200 migrated: its length is counted over the whole loader
        """,
    )


def test_one_that_counts_the_steps_that_end_training_is_not_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         max_steps = 5
         scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_steps)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         step = 0
         while step < max_steps:
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 scheduler.step()
        !        AM200 note: training ends by the count that it is made from
                 step += 1
        """,
    )


def test_one_that_follows_the_loss_of_each_batch_follows_its_average() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    scheduler.step(loss)
        !    AM200 migrated: averaged over the processes
        +    scheduler.step(accelerator.reduce(loss.detach(), reduction="mean"))
        """,
    )
