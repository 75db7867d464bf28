"""AM275: an `if` that the migration left nothing to do goes."""

from __future__ import annotations

from support.migration import IMPORTS, TRAINED, check_migrated


def test_branches_that_only_moved() -> None:
    check_migrated(
        IMPORTS,
        """
         gpu = None
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if gpu is not None:
        -    model.cuda(gpu)
        -else:
        -    model.cuda()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )
