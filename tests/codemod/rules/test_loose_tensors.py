"""AM195: tensors that are trained beside a model are named: nothing averages their gradients."""

from __future__ import annotations

import pytest

from support.migration import IMPORTS, check_migrated

BEGIN = (
    IMPORTS
    + "\n    +accelerator = Accelerator(cpu=True)\n     model = nn.Linear(8, 3)\n    !AM100 note: stays on the CPU\n"
)
TRAINED = """
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x, y in loader:
         optimizer.zero_grad()
         loss = F.cross_entropy(model(x) * scale, y)
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
"""


@pytest.mark.parametrize("scale", ["nn.Parameter(torch.ones(1))", "torch.ones(1, requires_grad=True)"])
@pytest.mark.parametrize(
    "given",
    [
        "[*model.parameters(), scale]",
        "list(model.parameters()) + [scale]",
        '[{"params": model.parameters()}, {"params": [scale], "lr": 0.2}]',
    ],
)
def test_a_tensor_beside_a_model(scale: str, given: str) -> None:
    check_migrated(
        BEGIN,
        f"""
         scale = {scale}
         optimizer = torch.optim.SGD({given}, lr=0.1)
        ! AM195 review: trains tensors that no model holds
        """,
        TRAINED,
    )


@pytest.mark.parametrize(
    "made",
    [
        (
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "        ! AM195 review: trains tensors that no model holds\n"
            '         optimizer.add_param_group({"params": [scale]})'
        ),
        (
            "weights = list(model.parameters())\n"
            "         weights.extend([scale])\n"
            "         optimizer = torch.optim.SGD(weights, lr=0.1)\n"
            "        ! AM195 review: trains tensors that no model holds"
        ),
    ],
    ids=["a group added later", "a list that grows"],
)
def test_a_tensor_that_comes_later(made: str) -> None:
    check_migrated(BEGIN, f"         scale = nn.Parameter(torch.ones(1))\n         {made}", TRAINED)


def test_a_parameter_of_a_model_is_no_loose_tensor() -> None:
    check_migrated(
        IMPORTS,
        """


         class Net(nn.Module):
             def __init__(self):
                 super().__init__()
                 self.layer = nn.Linear(8, 3)
                 self.scale = nn.Parameter(torch.ones(1))

             def forward(self, x):
                 return self.layer(x) * self.scale


        +accelerator = Accelerator()
         model = Net()
         optimizer = torch.optim.SGD([*model.layer.parameters(), model.scale], lr=0.1)
        """,
        TRAINED.replace(" * scale", ""),
    )
