"""AM240: files and folders are made once, and data is downloaded once."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_folders_may_be_made_by_several_processes_at_once() -> None:
    check_migrated(
        "import os",
        PREPARED,
        """
        -os.makedirs("out")
        +os.makedirs("out", exist_ok=True)
        -os.mkdir("logs")
        +os.makedirs("logs", exist_ok=True)
         os.makedirs("kept", exist_ok=True)
        """,
        TRAINED,
    )


def test_pictures_are_written_by_the_main_process() -> None:
    check_migrated(
        "import numpy as np\nimport torchvision",
        PREPARED,
        TRAINED,
        """
        -torchvision.utils.save_image(x, "x.png")
        -np.save("loss.npy", loss.item())
        +if accelerator.is_main_process:
        +    torchvision.utils.save_image(x, "x.png")
        +    np.save("loss.npy", loss.item())
        """,
    )


def test_a_picture_that_the_model_draws_is_left_to_a_person() -> None:
    check_migrated(
        "import torchvision",
        PREPARED,
        TRAINED,
        """
         torchvision.utils.save_image(model(x), "x.png")
        ! AM240 manual: guarding it would leave the other processes behind
        """,
    )


def test_data_is_downloaded_by_the_main_process_first() -> None:
    check_migrated(
        "import torchvision",
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -digits = torchvision.datasets.MNIST("data", download=True)
        +with accelerator.main_process_first():
        +    digits = torchvision.datasets.MNIST("data", download=True)
         again = torchvision.datasets.MNIST("data", download=False)
         loader = DataLoader(digits, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_data_that_is_downloaded_for_a_loader_comes_before_the_loader_is_prepared() -> None:
    check_migrated(
        "import torchvision",
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -loader = DataLoader(torchvision.datasets.MNIST("data", download=True), batch_size=32, shuffle=True)
        +with accelerator.main_process_first():
        +    loader = DataLoader(torchvision.datasets.MNIST("data", download=True), batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_folder_given_as_a_path_may_be_made_by_several_processes_at_once() -> None:
    check_migrated(
        PREPARED,
        "from pathlib import Path",
        """
         out = Path("out")
        -out.mkdir(parents=True)
        +out.mkdir(parents=True, exist_ok=True)
         out.mkdir(exist_ok=True)
        """,
        TRAINED,
    )


def test_methods_of_the_same_name_stay() -> None:
    check_migrated(
        PREPARED,
        """
         class Recorder:
             def save(self, path):
                 return path

             def makedirs(self, path):
                 return path

             def mkdir(self):
                 return self


         recorder = Recorder()
         recorder.save("a")
         recorder.makedirs("b")
         recorder.mkdir()
        """,
        TRAINED,
    )


def test_a_picture_in_memory_is_for_every_process() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         import io
         import matplotlib.pyplot as plt
         buffer = io.BytesIO()
         plt.savefig(buffer, format="png")
         copied = io.BytesIO()
         torch.save(loss, copied)
        """,
    )
