"""AM115: tensor types that choose a device become a dtype and the device."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Status
from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, migrate

ALIASES = """
    -Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    -LongTensor = torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor
"""
STEP = """
         optimizer.zero_grad()
         loss = F.cross_entropy(model(x), y)
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
"""


def test_a_batch_is_only_converted() -> None:
    check_migrated(
        PREPARED,
        ALIASES,
        """
         for x, y in loader:
        -    x, y = x.type(Tensor), y.type(LongTensor)
        +    x, y = x.float(), y.long()
        """,
        STEP,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Tensor(8, 3).fill_(1.0)", "torch.ones(8, 3, device=accelerator.device)"),
        ("Tensor(8, *SHAPE).fill_(0)", "torch.zeros(8, *SHAPE, device=accelerator.device)"),
        ("Tensor(8, 3).zero_()", "torch.zeros(8, 3, device=accelerator.device)"),
        ("Tensor(8, 3).fill_(0.5)", "torch.full((8, 3), 0.5, device=accelerator.device)"),
        ("Tensor(8).fill_(2)", "torch.full((8,), 2, dtype=torch.float32, device=accelerator.device)"),
        ("LongTensor(8).fill_(N)", "torch.full((8,), N, dtype=torch.long, device=accelerator.device)"),
        ("LongTensor(8).fill_(0)", "torch.zeros(8, dtype=torch.long, device=accelerator.device)"),
        ("Tensor(8, 3).uniform_()", "torch.empty(8, 3, device=accelerator.device).uniform_()"),
        ("Tensor()", "torch.empty(0, device=accelerator.device)"),
    ],
)
def test_a_size_becomes_what_it_is_filled_with(before: str, after: str) -> None:
    check_migrated(
        PREPARED,
        f"""
         SHAPE, N = (3, 4), 7
        -Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
        -LongTensor = torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor
        -z = {before}
        +z = {after}
        """,
        TRAINED,
    )


def test_an_array_is_converted_and_moved_at_once() -> None:
    check_migrated(
        "import numpy as np",
        PREPARED,
        ALIASES,
        """
        -z = Tensor(0.1 * np.random.normal(0, 1, (8, 3)))
        +z = torch.as_tensor(0.1 * np.random.normal(0, 1, (8, 3)), dtype=torch.float32, device=accelerator.device)
        """,
        TRAINED,
    )


def test_an_array_with_a_name_is_copied_as_the_type_did() -> None:
    check_migrated(
        "import numpy as np",
        PREPARED,
        ALIASES,
        """
         labels = np.zeros(8)
         labels[2] = 1.0
        -z = LongTensor(labels)
        +z = torch.tensor(labels, dtype=torch.long, device=accelerator.device)
        """,
        TRAINED,
    )


def test_a_list_of_numbers_is_data() -> None:
    check_migrated(
        PREPARED,
        ALIASES,
        """
        -z = Tensor([1, 2, 3])
        +z = torch.tensor([1, 2, 3], dtype=torch.float32, device=accelerator.device)
        """,
        TRAINED,
    )


def test_what_is_not_known_is_made_as_before_and_moved() -> None:
    check_migrated(
        "import sys",
        PREPARED,
        ALIASES,
        """
        -z = Tensor(sys.argv)
        +z = torch.FloatTensor(sys.argv).to(accelerator.device)
        """,
        TRAINED,
    )


def test_random_numbers_are_drawn_where_they_were() -> None:
    check_migrated(
        PREPARED,
        ALIASES,
        """
        -z = torch.randn(8, 3).type(Tensor)
        +z = torch.randn(8, 3).to(accelerator.device)
        -k = torch.randint(3, (8,)).type(Tensor)
        +k = torch.randint(3, (8,)).to(accelerator.device, torch.float32)
        """,
        TRAINED,
    )


def test_a_helper_uses_the_device_of_what_it_is_given() -> None:
    check_migrated(
        "import numpy as np",
        PREPARED,
        """
        -Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


         def penalty(net, real):
        -    mix = Tensor(np.random.random((real.size(0), 1)))
        +    mix = torch.as_tensor(np.random.random((real.size(0), 1)), dtype=torch.float32, device=real.device)
             return net(mix * real).mean()


         for x, y in loader:
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y) + penalty(model, x)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_the_types_without_an_alias() -> None:
    check_migrated(
        PREPARED,
        """
        -z = torch.cuda.FloatTensor(8, 3).normal_()
        +z = torch.empty(8, 3, device=accelerator.device).normal_()
         for x, y in loader:
        -    x = x.type(torch.cuda.FloatTensor)
        +    x = x.float()
        -    y = y.type("torch.cuda.LongTensor")
        +    y = y.long()
        """,
        STEP,
    )


def test_a_conversion_to_a_cpu_type_leaves_the_batch_on_its_device() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    x = x.type(torch.FloatTensor).cuda()
        +    x = x.float()
        """,
        STEP,
    )


def test_a_type_that_is_handed_on_keeps_its_alias() -> None:
    check_migrated(
        "import sys",
        PREPARED,
        """
         Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
        ! AM115 review: on other accelerators it makes CPU tensors
         sys.modules["elsewhere"].use(Tensor)
        -z = Tensor(8, 3).fill_(1.0)
        +z = torch.ones(8, 3, device=accelerator.device)
        """,
        TRAINED,
    )


def test_another_default_dtype_is_spelled_out() -> None:
    check_migrated(
        PREPARED,
        """
         torch.set_default_dtype(torch.float64)
        -z = torch.cuda.FloatTensor(8, 3).fill_(1.0)
        +z = torch.ones(8, 3, dtype=torch.float32, device=accelerator.device)
        """,
        TRAINED,
    )


def test_a_type_chosen_by_a_tensor_is_on_that_tensors_device() -> None:
    check_migrated(
        PREPARED,
        """
         def mask(features):
        -    Tensor = torch.cuda.FloatTensor if features.is_cuda else torch.FloatTensor
        -    return Tensor(4, 4).fill_(0.5)
        +    return torch.full((4, 4), 0.5, device=features.device)


         mask(torch.zeros(3))
        """,
        TRAINED,
    )


def test_an_alias_chosen_in_branches() -> None:
    check_migrated(
        PREPARED,
        """
        -if torch.cuda.is_available():
        -    dtype = torch.cuda.FloatTensor
        -else:
        -    dtype = torch.FloatTensor
        -z = torch.zeros(8).type(dtype)
        +z = torch.zeros(8).to(accelerator.device)
        """,
        TRAINED,
    )


def test_the_name_of_a_type_stands_for_its_dtype() -> None:
    check_migrated(
        PREPARED,
        """
         z = torch.zeros(8)
        -if z.type() == "torch.cuda.HalfTensor":
        +if z.dtype == torch.float16:
             z = z * 2
         if z.type() == "torch.cuda.FloatTensor":
             z = z / 2
        """,
        TRAINED,
    )


def test_a_class_of_ones_own_is_no_tensor_type() -> None:
    result = migrate("import torch\nclass Tensor:\n    pass\nz = Tensor(8)\nTensor.cuda = 1\n")
    assert result.status is Status.UNCHANGED


def test_a_flag_that_chose_the_cpu_is_named() -> None:
    check_migrated(
        IMPORTS,
        """
        -import sys
        +accelerator = Accelerator()
        -kind = torch.FloatTensor if "-c" in sys.argv else torch.cuda.FloatTensor
        !AM115 review: start with `--cpu`
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
             optimizer.zero_grad()
        -    loss = F.cross_entropy(model(x.type(kind)), y)
        -    loss.backward()
        +    loss = F.cross_entropy(model(x.float()), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )
