"""AM900: training that another framework runs is left to it, each for its own reason."""

from __future__ import annotations

from textwrap import dedent

import pytest

from accelerate_migrate.discover import Found
from accelerate_migrate.findings import FileResult, Options, Severity, Status, Target
from accelerate_migrate.run import migrate_files
from support.migration import PREPARED, TRAINED, sketch

TRAINS = sketch(PREPARED, TRAINED).before
LIGHTNING = (
    "class Net(pl.LightningModule):\n    def training_step(self, batch, index):\n        return self(batch).mean()"
)


def run(*parts: str, target: Target = Target.RUNTIME) -> FileResult:
    source = "".join(dedent(part).strip("\n") + "\n" for part in parts)
    found = Found("train.py", "", "", named=True, data=source.encode())
    return migrate_files([found], Options(target=target))[0]


FRAMEWORKS = {
    "Lightning": ("import torch\nimport pytorch_lightning as pl", LIGHTNING, "Lightning's Trainer"),
    "Lightning 2": (
        "import torch\nfrom lightning.pytorch import Trainer",
        "Trainer().fit(model)",
        "Lightning's Trainer",
    ),
    "Fabric": ("import torch\nimport lightning as L", "fabric = L.Fabric()", "Fabric"),
    "transformers": (
        "import torch\nfrom transformers import Trainer",
        "Trainer(model).train()",
        "Trainer of transformers",
    ),
    "trl": ("import torch\nfrom trl import SFTTrainer", "SFTTrainer(model).train()", "Trainer of transformers"),
    "DeepSpeed": (
        "import torch\nimport deepspeed",
        "engine, *_ = deepspeed.initialize(model=model)",
        "DeepSpeed's engine",
    ),
    "Ray": ("import torch\nfrom ray.train.torch import TorchTrainer", "TorchTrainer(train).fit()", "Ray starts"),
    "ignite": ("import torch\nfrom ignite.engine import Engine", "trainer = Engine(step)", "ignite's Engine"),
    "fastai": (
        "from fastai.vision.all import *  # torch",
        "vision_learner(data, net).fine_tune(3)",
        "fastai's Learner",
    ),
    "MXNet": (
        "import mxnet as mx",
        "with mx.autograd.record():\n    loss = net(x)\nloss.backward()",
        "MXNet trains here, not PyTorch",
    ),
    "Catalyst": ("import torch\nfrom catalyst import dl", "runner = dl.SupervisedRunner()", "Catalyst's Runner"),
    "Accelerate": (
        "import torch\nfrom accelerate import Accelerator",
        "accelerator = Accelerator()",
        "Accelerate already",
    ),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_has_its_reason(name: str) -> None:
    imports, use, words = FRAMEWORKS[name]
    result = run(imports, use)
    assert (result.status, result.after) == (Status.REFUSED, None)
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("AM900", Severity.REFUSED)
    assert finding.line == imports.count("\n") + 2
    assert words in finding.message


@pytest.mark.parametrize("name", ["Lightning", "Ray", "DeepSpeed", "Accelerate"])
def test_an_import_alone_refuses_nothing(name: str) -> None:
    imports, _, _ = FRAMEWORKS[name]
    status = Status.UNCHANGED if name == "Accelerate" else Status.MIGRATED
    assert run(imports, TRAINS).status is status


def test_a_script_of_ones_own_trainer_is_nobody_elses() -> None:
    own = "class Trainer:\n    pass\n\nTrainer()"
    assert run(own, TRAINS).status is Status.MIGRATED


def test_what_was_migrated_to_accelerate_stays_as_it_is() -> None:
    migrated = run(TRAINS, target=Target.ACCELERATE).text_after()
    again = run(migrated, target=Target.ACCELERATE)
    assert (again.status, again.after) == (Status.UNCHANGED, None)


def test_a_file_that_asks_to_be_skipped_is_skipped() -> None:
    imports, use, _ = FRAMEWORKS["Lightning"]
    assert run("# accelerate-migrate: skip-file", imports, use).status is Status.UNCHANGED
