"""Scripts that optimise tensors of their own, such as an image or a latent code, and no model."""

from __future__ import annotations

from support.migration import IMPORTS, check_migrated, check_refused


def test_an_image_is_trained_through_a_frozen_model() -> None:
    check_migrated(
        IMPORTS,
        """

        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -net = nn.Linear(8, 3).to(device).eval()
        -code = torch.zeros(1, 8, device=device).requires_grad_()
        +accelerator = Accelerator()
        +net = nn.Linear(8, 3).to(accelerator.device).eval()
        +code = torch.zeros(1, 8, device=accelerator.device).requires_grad_()
         optimizer = torch.optim.Adam([code], lr=0.1)
        +optimizer = accelerator.prepare(optimizer)
         for step in range(20):
             optimizer.zero_grad()
             loss = net(code).square().mean()
        -    loss.backward()
        !    AM250 review: replicas
        +    accelerator.backward(loss)
             optimizer.step()
        -torch.save(code, "code.pt")
        +accelerator.save(code, "code.pt")
        """,
    )


def test_tensors_trained_on_batches_would_not_be_averaged() -> None:
    check_refused(
        """
         import torch
         from torch.utils.data import DataLoader

         data = torch.randn(64, 8)
         weight = torch.zeros(8, 3, requires_grad=True)
         optimizer = torch.optim.SGD([weight], lr=0.1)
         for x in DataLoader(data, batch_size=32):
             optimizer.zero_grad()
             loss = (x @ weight).square().mean()
             loss.backward()
             optimizer.step()
        !    AM900 refused: several processes would not average
        """,
    )


def test_what_stands_in_a_list_and_was_asked_for_gradients_is_a_tensor() -> None:
    check_migrated(
        IMPORTS,
        """
         import pictures

        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -net = nn.Linear(8, 3).to(device).eval()
        +accelerator = Accelerator()
        +net = nn.Linear(8, 3).to(accelerator.device).eval()
        -image = pictures.load("a.png").to(device).clone().requires_grad_(True)
        +image = pictures.load("a.png").to(accelerator.device).clone().requires_grad_(True)
         optimizer = torch.optim.Adam([image], lr=0.1)
        +optimizer = accelerator.prepare(optimizer)
         for step in range(20):
             optimizer.zero_grad()
             loss = net(image).square().mean()
        -    loss.backward()
        !    AM250 review: replicas
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_something_unknown_in_a_list_is_none() -> None:
    check_refused(
        """
         import torch
         import pictures

         image = pictures.load("a.png")
         optimizer = torch.optim.Adam([image], lr=0.1)
         for step in range(20):
             optimizer.zero_grad()
             image.square().mean().backward()
             optimizer.step()
        !    AM900 refused: could not be found
        """,
    )
