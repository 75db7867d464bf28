"""AM157: with ``--checkpoints state``, what training resumes from is a state of the accelerator."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Checkpoints, Severity, Status, Target
from support.migration import IMPORTS, check_migrated, migrate

STATE = Checkpoints.STATE

SCRIPT = """\
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 3)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=32, shuffle=True)
path, first, best = "last.pt", 0, 9.0
if os.path.exists(path):
    old = torch.load(path)
    first = old["epoch"]
    model.load_state_dict(old["model"])
    optimizer.load_state_dict(old["optimizer"])
for epoch in range(first, 4):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, path)
"""


def test_a_dict_and_the_code_that_resumes_from_it() -> None:
    check_migrated(
        """
         import argparse
         import os
        """,
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--resume")
         args = parser.parse_args()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         first, best = 0, 0.0
         if args.resume:
        -    if os.path.isfile(args.resume):
        !        AM157 migrated: a state is a folder
        -        old = torch.load(args.resume)
        +    if os.path.isdir(args.resume):
        +        old = torch.load(os.path.join(args.resume, "extra_state.pt"), map_location="cpu")
                 first = old["epoch"]
        -        model.load_state_dict(old["model"])
        !        AM157 review: random states and loaders come back too
        -        optimizer.load_state_dict(old["optimizer"])
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        +if args.resume and os.path.isdir(args.resume):
        +    accelerator.load_state(args.resume)
         for epoch in range(first, 4):
             for x, y in loader:
                 optimizer.zero_grad()
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        -    torch.save({
        -        "model": model.state_dict(),  # the weights
        -        "epoch": epoch + 1,
        -        "optimizer": optimizer.state_dict(),
        -    }, f"{epoch}.pt")
        +    accelerator.save_state(f"{epoch}.pt")
        +    accelerator.save({
        +        "epoch": epoch + 1,
        +    }, os.path.join(f"{epoch}.pt", "extra_state.pt"))
        -    torch.save(model.state_dict(), "weights.pt")
        +    accelerator.save(accelerator.get_state_dict(model), "weights.pt")
        """,
        checkpoints=STATE,
    )


def test_a_trainer_resumes_by_a_method_and_the_best_is_copied() -> None:
    check_migrated(
        """
         import os
         import shutil
        """,
        IMPORTS,
        """


         class Trainer:
             def __init__(self, resume):
        +        self.accelerator = Accelerator()
                 self.model = nn.Linear(8, 3)
                 self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                 self.loader = DataLoader(data, batch_size=32, shuffle=True)
        +        self.model, self.optimizer, self.loader = self.accelerator.prepare(
        +            self.model, self.optimizer, self.loader
        +        )
                 self.epoch = 0
                 if resume:
                     self.resume(resume)

             def resume(self, path):
        -        old = torch.load(path)
        +        old = torch.load(os.path.join(path, "extra_state.pt"), map_location="cpu")
                 self.epoch = old["epoch"]
        -        self.model.load_state_dict(old["model"])
        !        AM157 review: random states and loaders come back too
        -        self.optimizer.load_state_dict(old["adam"])
        +        self.accelerator.load_state(path)

             def save(self, path, best):
        -        state = {"model": self.model.state_dict(), "adam": self.optimizer.state_dict(), "epoch": self.epoch}
        -        torch.save(state, path)
        +        state = {"epoch": self.epoch}
        +        self.accelerator.save_state(path)
        +        self.accelerator.save(state, os.path.join(path, "extra_state.pt"))
                 if best:
        -            shutil.copyfile(path, "best.pt")
        +            if self.accelerator.is_main_process:
        +                shutil.copytree(path, "best.pt", dirs_exist_ok=True)

             def run(self):
                 for self.epoch in range(self.epoch, 4):
                     for x, y in self.loader:
                         loss = F.cross_entropy(self.model(x), y)
        -                loss.backward()
        +                self.accelerator.backward(loss)
                         self.optimizer.step()
                     self.save("last.pt", self.epoch % 2 == 0)


         Trainer("last.pt" if os.path.isdir("last.pt") else "").run()
        """,
        checkpoints=STATE,
    )


def test_nothing_else_is_saved() -> None:
    text = SCRIPT.replace(', "epoch": epoch + 1}', "}").replace('    first = old["epoch"]\n', "")
    result = migrate(text, checkpoints=STATE)
    after = result.text_after()
    assert "if os.path.exists(path):\n    accelerator.load_state(path)\n" in after
    assert after.endswith("    accelerator.save_state(path)\n")
    assert "torch.load" not in after
    assert "extra_state" not in after


def test_the_scalers_state_belongs_to_the_state() -> None:
    text = (
        SCRIPT.replace("path, first", "scaler = torch.cuda.amp.GradScaler()\npath, first")
        .replace("        model(x).mean().backward()\n", "        scaler.scale(model(x).mean()).backward()\n")
        .replace("        optimizer.step()\n", "        scaler.step(optimizer)\n        scaler.update()\n")
        .replace('"epoch": epoch + 1}', '"epoch": epoch + 1, "scaler": scaler.state_dict()}')
        .replace("for epoch in", '    if "scaler" in old:\n        scaler.load_state_dict(old["scaler"])\nfor epoch in')
    )
    result = migrate(text, checkpoints=STATE)
    assert "scaler" not in result.text_after()
    assert "accelerator.load_state(path)" in result.text_after()


def test_a_copy_waits_for_all_processes_under_accelerate() -> None:
    text = SCRIPT.replace("import sys", "import shutil") + "    shutil.copyfile(path, 'best.pt')\n"
    after = migrate(text, checkpoints=STATE, target=Target.ACCELERATE).text_after()
    assert (
        "\n    accelerator.wait_for_everyone()\n    if accelerator.is_main_process:\n        shutil.copytree(" in after
    )


def test_without_the_option_files_stay() -> None:
    assert "save_state" not in migrate(SCRIPT).text_after()


UNUSUAL = {
    "resumes": (SCRIPT.replace("load_state_dict", "keep"), "read for something else"),
    "reads nothing": (SCRIPT[: SCRIPT.index("if os.path")] + SCRIPT[SCRIPT.index("for epoch") :], "nothing in the"),
    "restores a part": (
        SCRIPT.replace('    optimizer.load_state_dict(old["optimizer"])\n', ""),
        "`optimizer` is saved, but not restored",
    ),
    "restores under a condition": (
        SCRIPT.replace('    optimizer.load', '    if len(sys.argv) < 3:\n        optimizer.load'),
        "not everything is restored under the same condition",
    ),
    "is not strict": (SCRIPT.replace('old["model"])', 'old["model"], strict=False)'), "read for something else"),
    "is read elsewhere": (SCRIPT + 'print(torch.load("a.pt")["model"])\n', "also read in another way"),
    "is saved in an epoch": (
        SCRIPT.replace("    torch.save(", "        torch.save("),
        "in the middle of an epoch",
    ),
    "is not seen whole": (SCRIPT.replace('{"model": model', '{**vars(sys), "model": model'), "not seen whole"),
    "lacks a model": (
        SCRIPT.replace("model.parameters())", "[*model.parameters(), *head.parameters()])")
        .replace("model(x)", "head(model(x))")
        .replace("optimizer =", "head = nn.Linear(3, 1)\noptimizer ="),
        "not every prepared model",
    ),
    "is removed": (SCRIPT.replace("for epoch", "os.remove(path)\nfor epoch"), "which is a folder then"),
    "sets the rate of what was loaded": (
        SCRIPT.replace("for epoch", 'optimizer.param_groups[0]["lr"] = 0.1\nloader = DataLoader([1])\nfor epoch'),
        "what was loaded is used before",
    ),
    "draws by hand": (
        SCRIPT.replace("    for (x,) in loader:", "    it = iter(loader)\n    for (x,) in it:"),
        "drawn from by hand",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSUAL, ids=lambda case: case.replace(" ", "-"))
def test_what_stays_a_file(case: str) -> None:
    text, reason = UNUSUAL[case]
    result = migrate(text, checkpoints=STATE)
    assert result.status is Status.MIGRATED, result.findings
    said = [f for f in result.findings if f.code == "AM157"]
    assert [f.severity for f in said] == [Severity.NOTE]
    assert reason in said[0].message, said[0].message
    assert result.after == migrate(text).after


def test_a_comment_keeps_a_file() -> None:
    text = SCRIPT.replace('"optimizer"])', '"optimizer"])  # accelerate-migrate: skip')
    assert "save_state" not in migrate(text, checkpoints=STATE).text_after()
