"""Loaders that nothing holds by itself: they go through ``prepare`` where they are made."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Target
from support.migration import IMPORTS, check_migrated, check_refused

FOREVER = """

 def forever(batches):
     while True:
         for batch in batches:
             yield batch


"""


@pytest.mark.parametrize("target", Target)
def test_an_endless_generator_draws_from_a_prepared_loader(target: Target) -> None:
    imports = IMPORTS.replace("accelerate_runtime", target.module)
    check_migrated(
        imports,
        FOREVER,
        """
         class Learner:
             def __init__(self, model):
        +        self.accelerator = Accelerator()
                 self.model = model
        -        self.batches = forever(DataLoader(data, batch_size=32, shuffle=True))
        +        self.batches = forever(self.accelerator.prepare(DataLoader(data, batch_size=32, shuffle=True)))
                 self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

             def learn(self):
                 for step in range(10):
        -            x, y = [part.cuda() for part in next(self.batches)]
        +            x, y = [part for part in next(self.batches)]
                     loss = F.cross_entropy(self.model(x), y)
        -            loss.backward()
        +            self.accelerator.backward(loss)
                     self.optimizer.step()
                     self.optimizer.zero_grad()


        -Learner(nn.Linear(8, 3).cuda()).learn()
        +Learner(nn.Linear(8, 3)).learn()
        """,
        target=target,
    )


def test_an_iterator_is_taken_from_a_prepared_loader() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -batches = iter(DataLoader(data, batch_size=32, shuffle=True))
        +batches = iter(accelerator.prepare(DataLoader(data, batch_size=32, shuffle=True)))
        +model, optimizer = accelerator.prepare(model, optimizer)
         for step in range(3):
             x, y = next(batches)
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_factory_for_two_names_prepares_what_it_makes() -> None:
    check_migrated(
        IMPORTS,
        """

         class Learner:
             def __init__(self, model):
        +        self.accelerator = Accelerator()
                 self.model = model
                 self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 self.first = self.batches_of(data)
                 self.second = self.batches_of(data)
        +        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

             def batches_of(self, samples):
        -        return DataLoader(samples, batch_size=32, shuffle=True)
        +        return self.accelerator.prepare(DataLoader(samples, batch_size=32, shuffle=True))

             def learn(self):
                 for batches in (self.first, self.second):
                     for x, y in batches:
                         self.optimizer.zero_grad()
                         loss = F.cross_entropy(self.model(x), y)
        -                loss.backward()
        +                self.accelerator.backward(loss)
                         self.optimizer.step()


         Learner(nn.Linear(8, 3)).learn()
        """,
    )


def test_an_iterator_that_is_begun_before_the_model_is_made_draws_first() -> None:
    check_refused(
        """
         import torch
         from torch import nn
         from torch.utils.data import DataLoader

         data = torch.randn(64, 8)
         batches = iter(DataLoader(data, batch_size=32, shuffle=True))
        !AM900 refused: not held by a plain variable
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loss = model(next(batches)).mean()
         loss.backward()
         optimizer.step()
        """,
    )
