"""AM190: what a wrapper hides is asked of the unwrapped model."""

from __future__ import annotations

from pathlib import Path

from support.migration import IMPORTS, check_migrated

NET = (
    IMPORTS
    + """


     class Net(nn.Module):
         def __init__(self):
             super().__init__()
             self.fc = nn.Linear(8, 3)

         def forward(self, x):
             return self.scale(self.fc(x))

         def scale(self, x):
             return 2 * x


    +accelerator = Accelerator()
     model = Net()
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x, y in loader:
         loss = F.cross_entropy(model(x), y)
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
"""
)


def test_a_method_of_its_own() -> None:
    check_migrated(
        NET,
        """
        -twice = model.scale(x)
        +twice = accelerator.unwrap_model(model).scale(x)
        """,
    )


def test_an_attribute_and_a_part() -> None:
    check_migrated(
        NET,
        """
        -bias = model.fc.bias.detach()
        +bias = accelerator.unwrap_model(model).fc.bias.detach()
        """,
    )


def test_what_the_wrapper_passes_on_stays() -> None:
    check_migrated(
        NET,
        """
         model.train()
         model.eval()
         model.zero_grad()
         count = sum(p.numel() for p in model.parameters())
        """,
    )


def test_forward_by_name_is_a_call() -> None:
    check_migrated(
        NET,
        """
        -out = model.forward(x)
        +out = model(x)
        """,
    )


def test_before_prepare_the_model_is_bare() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         model.bias.data.zero_()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_inside_the_model_self_is_bare() -> None:
    check_migrated(NET)


def test_a_method_that_trains_is_for_review() -> None:
    check_migrated(
        NET,
        """
         for x, y in loader:
        -    out = model.scale(model(x))
        !    AM190 review: its gradients are not averaged over processes
        +    out = accelerator.unwrap_model(model).scale(model(x))
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_function_of_another_file_that_uses_what_is_hidden_gets_the_model_itself(tmp_path: Path) -> None:
    (tmp_path / "sampling.py").write_text(
        "def sample(net):\n    return net.scale(3)\n\n\n"
        "def size(net):\n    return sum(p.numel() for p in net.parameters())\n"
    )
    check_migrated(
        "import sampling",
        NET,
        """
        -three = sampling.sample(model)
        -again = sampling.sample(net=model)
        +three = sampling.sample(accelerator.unwrap_model(model))
        +again = sampling.sample(net=accelerator.unwrap_model(model))
         count = sampling.size(model)
        """,
        path=str(tmp_path / "train.py"),
    )
