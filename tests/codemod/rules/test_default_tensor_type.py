"""AM118: a default tensor type of CUDA becomes a default device."""

from __future__ import annotations

from support.migration import IMPORTS, TRAINED, check_migrated

OBJECTS = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_the_default_is_the_accelerators_device() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         if torch.cuda.is_available():
        -    torch.set_default_tensor_type("torch.cuda.FloatTensor")
        +    torch.set_default_device(accelerator.device)
        !    AM118 review: tensors are made on the accelerator's device from here on
         else:
             torch.set_default_tensor_type("torch.FloatTensor")
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_choice_in_one_line() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -torch.set_default_tensor_type(torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor)
        +torch.set_default_device(accelerator.device)
        ! AM118 review: a DataLoader that shuffles needs a generator
        """,
        OBJECTS,
        TRAINED,
    )


def test_the_general_type_is_given_its_device_by_name() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
        -torch.set_default_tensor_type(torch.cuda.FloatTensor)
        +torch.set_default_device(accelerator.device)
        ! AM118 review
        -z = torch.Tensor(8, 3).normal_()
        +z = torch.empty(8, 3, device=accelerator.device).normal_()
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_type_that_is_not_known_is_for_a_person() -> None:
    check_migrated(
        "import sys",
        IMPORTS,
        """
         torch.set_default_tensor_type(sys.argv[1])
        ! AM118 manual: makes tensors on CUDA where nothing says so
        +accelerator = Accelerator()
        """,
        OBJECTS,
        TRAINED,
    )
