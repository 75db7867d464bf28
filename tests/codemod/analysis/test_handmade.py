"""Gradients that the script makes itself are not averaged by any backward: the script is left whole."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, check_migrated, check_refused

PLAIN = "\n".join(line for line in IMPORTS.splitlines() if "+" not in line)
MADE = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
"""


def test_a_gradient_of_another_making_is_refused() -> None:
    check_refused(
        PLAIN,
        MADE,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
             loss.backward()
             others = torch.autograd.grad(F.cross_entropy(model(-x), y), model.parameters())
             for p, g in zip(model.parameters(), others):
                 p.grad = p.data - g
        !        AM900 refused: gradients are written by hand
             optimizer.step()
        """,
    )


def test_a_gradient_that_is_changed_or_cleared_is_that_of_backward() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             for p in model.parameters():
                 p.grad = None
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             for p in model.parameters():
                 p.grad = p.grad.clamp(-1, 1)
                 p.grad.data.mul_(0.5)
             optimizer.step()
        """,
    )


def test_an_optimizer_that_hooks_into_backward_is_refused() -> None:
    check_refused(
        PLAIN,
        """
         class Curvature(torch.optim.Optimizer):
             def __init__(self, model, lr):
                 super().__init__(model.parameters(), {"lr": lr})
                 model.register_full_backward_hook(self.keep)

             def keep(self, module, inputs, outputs):
                 self.seen = outputs


         model = nn.Linear(8, 3)
         optimizer = Curvature(model, 0.1)
        !AM900 refused: reads gradients by hooks of its own
         loader = DataLoader(data, batch_size=32, shuffle=True)
         for x, y in loader:
             optimizer.zero_grad()
             F.cross_entropy(model(x), y).backward()
             optimizer.step()
        """,
    )
