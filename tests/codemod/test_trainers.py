"""Programs whose training is spread over files, classes and factories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from accelerate_migrate.findings import FileResult, Options, Severity, Status
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support.migration import check_program


def migrated(files: Mapping[str, str], folder: Path = Path()) -> dict[str, FileResult]:
    """The results of a program's files, by name; what is migrated stays as it is in a second run."""
    scripts = [Script(str(folder / name), dedent(text).encode()) for name, text in files.items()]
    results = dict(zip(files, migrate_program(scripts, Options()), strict=True))
    after = [
        Script(script.path, result.after or script.data)
        for script, result in zip(scripts, results.values(), strict=True)
    ]
    assert not any(result.after for result in migrate_program(after, Options()))
    return results


def lines_of(result: FileResult) -> list[str]:
    """The lines of a migrated file, without indentation."""
    assert result.status is Status.MIGRATED, result.findings
    return [line.strip() for line in result.text_after().splitlines()]


def said(result: FileResult, severity: Severity) -> list[str]:
    return [finding.message for finding in result.findings if finding.severity is severity]


NETS = """
    import torch
    from torch import nn


    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return self.layer(x)


    class Deep(Wide):
        pass
"""
TRAINER = """
    import torch
    import torch.nn.functional as F


    class Trainer:
        def __init__(self, net, optimizer, loader, device):
            self.net = net
            self.optimizer = optimizer
            self.loader = loader
            self.device = device

        def run_epoch(self):
            for x, y in self.loader:
                loss = F.cross_entropy(self.net(x.to(self.device)), y.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
"""
MAIN = """
    import torch
    from torch.utils.data import DataLoader

    import nets
    from trainer import Trainer


    def main():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = nets.Wide().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader([], batch_size=4)
        trainer = Trainer(net, optimizer, loader, device)
        for epoch in range(3):
            trainer.run_epoch()
"""


def test_objects_made_by_the_names_in_a_config() -> None:
    results = migrated(
        {
            "config.py": """
                import json
                import torch


                class Config:
                    def __init__(self, settings):
                        self.settings = settings

                    @classmethod
                    def read(cls, path):
                        with open(path) as stream:
                            return cls(json.load(stream))

                    def make(self, name, module, *args):
                        made = self.settings[name]
                        return getattr(module, made["type"])(*args, **made["args"])
            """,
            "nets.py": NETS,
            "train.py": """
                import torch
                import torch.nn.functional as F
                from torch.utils.data import DataLoader

                import nets
                from config import Config


                def main():
                    config = Config.read("settings.json")
                    net = config.make("net", nets)
                    optimizer = config.make("optimizer", torch.optim, net.parameters())
                    schedule = config.make("schedule", torch.optim.lr_scheduler, optimizer)
                    loader = DataLoader([], batch_size=4)
                    for epoch in range(3):
                        for x, y in loader:
                            optimizer.zero_grad()
                            F.cross_entropy(net(x), y).backward()
                            optimizer.step()
                        schedule.step()


                main()
            """,
        }
    )
    lines = lines_of(results["train.py"])
    prepare = lines.index("net, optimizer, loader = accelerator.prepare(net, optimizer, loader)")
    assert lines.index('schedule = config.make("schedule", torch.optim.lr_scheduler, optimizer)') < prepare
    assert "accelerator.backward(F.cross_entropy(net(x), y))" in lines


def test_a_trainer_gets_what_is_prepared_where_others_still_use_the_optimizer() -> None:
    more = "        print(optimizer.param_groups[0]['lr'])\n\n    main()\n"
    results = migrated({"nets.py": NETS, "trainer.py": TRAINER, "train.py": MAIN + "    " + more})
    lines = lines_of(results["train.py"])
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in lines
    assert "trainer = Trainer(net, optimizer, loader, accelerator)" in lines
    assert "self.accelerator.backward(loss)" in lines_of(results["trainer.py"])


def test_a_model_that_training_gives_back_is_prepared_before_it_trains() -> None:
    main = MAIN + "        return net\n\n\n    net = main()\n    torch.save(net.state_dict(), 'net.pt')\n"
    results = migrated({"nets.py": NETS, "trainer.py": TRAINER, "train.py": main})
    assert results["train.py"].status is Status.MIGRATED
    prepared = [line for r in results.values() for line in r.text_after().splitlines() if ".prepare(" in line]
    assert len(prepared) == 1


def test_a_device_that_a_helper_chooses_by_its_argument() -> None:
    main = MAIN.replace(
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")', "device = choose(settings['gpus'])"
    ).replace("def main():", "def main(settings):")
    helper = """
    def choose(wanted):
        if wanted > 0 and torch.cuda.device_count() == 0:
            wanted = 0
        return torch.device("cuda:0" if wanted > 0 else "cpu")


    """
    main = main.replace(
        "\n    def main", helper.lstrip("\n").replace("    def choose", "    def choose", 1) + "def main"
    )
    results = migrated({"nets.py": NETS, "trainer.py": TRAINER, "train.py": main + "\n\n    main({'gpus': 1})\n"})
    assert "accelerator = Accelerator(cpu=settings['gpus'] <= 0)" in lines_of(results["train.py"])


def test_an_optimizer_that_a_file_without_torch_steps(tmp_path: Path) -> None:
    (tmp_path / "warm.py").write_text(
        "class Warm:\n    def __init__(self, inner):\n        self.inner = inner\n\n"
        "    def advance(self):\n        self.inner.step()\n        self.inner.zero_grad()\n"
    )
    train = """
        import torch
        import torch.nn.functional as F
        from torch.utils.data import DataLoader

        from nets import Wide
        from warm import Warm

        net = Wide()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        warm = Warm(optimizer)
        loader = DataLoader([], batch_size=4)
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()
            warm.advance()
    """
    refused = migrated({"nets.py": NETS, "train.py": train}, tmp_path)["train.py"]
    assert "is another name" in said(refused, Severity.REFUSED)[0] or "keeps" in said(refused, Severity.REFUSED)[0]
    train = train.replace("        warm = Warm(optimizer)\n", "").replace(
        "for x, y", "warm = Warm(optimizer)\n        for x, y"
    )
    lines = lines_of(migrated({"nets.py": NETS, "train.py": train}, tmp_path)["train.py"])
    assert lines.index("net, optimizer, loader = accelerator.prepare(net, optimizer, loader)") < lines.index(
        "warm = Warm(optimizer)"
    )


def test_a_decorated_function_takes_the_accelerator_and_a_dataset_does_not() -> None:
    results = migrated(
        {
            "measure.py": """
                import torch


                @torch.inference_mode()
                def measure(net, batch, device):
                    print("measuring")
                    return net(batch.to(device)).argmax(1)
            """,
            "rows.py": """
                import torch
                from torch.utils.data import Dataset


                class Rows(Dataset):
                    def __init__(self, count):
                        print("reading", count)
                        self.rows = torch.randn(count, 8)
            """,
            "train.py": """
                import torch
                import torch.nn.functional as F
                from torch.utils.data import DataLoader

                from measure import measure
                from rows import Rows

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = torch.nn.Linear(8, 3).to(device)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                loader = DataLoader(Rows(32), batch_size=4)
                for x, y in loader:
                    optimizer.zero_grad()
                    F.cross_entropy(net(x.to(device)), y.to(device)).backward()
                    optimizer.step()
                measure(net, torch.ones(2, 8), device)
            """,
        }
    )
    assert "def measure(net, batch, accelerator):" in lines_of(results["measure.py"])
    assert results["rows.py"].after is None
    assert any("printed by every process" in message for message in said(results["rows.py"], Severity.NOTE))


def test_a_folder_that_must_be_new() -> None:
    setup = """
        from pathlib import Path

        def set_up(name):
            folder = Path("runs") / name
            folder.mkdir(parents=True, exist_ok=name == "")
            return folder
    """
    train = """
        import torch
        import torch.nn.functional as F
        from torch.utils.data import DataLoader

        from setting import set_up

        set_up("first")
        net = torch.nn.Linear(8, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in DataLoader([], batch_size=4):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    """
    train = train.replace(
        "for x, y in DataLoader([], batch_size=4)", "loader = DataLoader([])\n        for x, y in loader"
    )
    result = migrated({"setting.py": setup, "train.py": train})["setting.py"]
    assert "folder.mkdir(parents=True, exist_ok=True)" in lines_of(result)
    assert any("make this folder at once" in message for message in said(result, Severity.REVIEW))


def test_a_branch_that_makes_the_optimizer_prepares_there() -> None:
    check_program(
        {
            "train.py": """
                 import torch
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader


                 class Margin(nn.Module):
                     def __init__(self):
                         super().__init__()
                         self.kernel = nn.Parameter(torch.zeros(3, 3))

                     def forward(self, x):
                         return x @ self.kernel


                 class Learner:
                -    def __init__(self, device, inference=False):
                -        self.net = nn.Linear(8, 3).to(device)
                +    def __init__(self, accelerator, inference=False):
                +        self.net = nn.Linear(8, 3).to(accelerator.device)
                         if not inference:
                -            self.head = Margin().to(device)
                +            self.head = Margin()
                             self.loader = DataLoader(torch.randn(96, 8), batch_size=4)
                             groups = [{"params": list(self.net.parameters()) + [self.head.kernel]}]
                             self.optimizer = torch.optim.SGD(groups, lr=0.1)
                +            self.net, self.head, self.optimizer, self.loader = accelerator.prepare(
                +                self.net, self.head, self.optimizer, self.loader
                +            )
                         else:
                             self.threshold = 0.5

                     def train(self):
                         for x in self.loader:
                             self.optimizer.zero_grad()
                -            self.head(self.net(x)).mean().backward()
                +            accelerator.backward(self.head(self.net(x)).mean())
                             self.optimizer.step()


                -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                -Learner(device).train()
                +accelerator = Accelerator()
                +Learner(accelerator).train()
            """
        }
    )


TWO_STEPS = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader


    class Training:
        def init(self, data):
            self.model = nn.Linear(8, 3)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.loader = DataLoader(data, batch_size=32, shuffle=True)

        def run(self):
            for x, y in self.loader:
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()


    training = Training()
    training.init([])
    training.run()
"""


def test_a_method_sets_up_before_another_one_trains() -> None:
    lines = lines_of(migrated({"train.py": TWO_STEPS})["train.py"])
    assert "self.accelerator = Accelerator()" in lines
    assert "self.accelerator.backward(loss)" in lines


def test_a_method_that_sets_up_under_a_condition_does_not() -> None:
    text = TWO_STEPS.replace("    training.init([])", "    if input():\n        training.init([])")
    (refused,) = said(migrated({"train.py": text})["train.py"], Severity.REFUSED)
    assert "cannot be passed" in refused


def test_another_object_is_set_up() -> None:
    text = TWO_STEPS.replace("    training.run()", "    training = Training()\n    training.run()")
    assert migrated({"train.py": text})["train.py"].status is Status.REFUSED


def test_the_optimizers_of_other_files_say_nothing_of_one_that_is_not_known() -> None:
    check = """
        import torch
        from torch import nn
        from nets import Net

        def test():
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(2, 8)).mean().backward()
            optimizer.step()

        test()
    """
    train = """
        import torch
        from torch.utils.data import DataLoader
        from nets import Net
        import settings

        model = getattr(settings, "model")(Net)
        optimizer = getattr(settings, "optimizer")(model)
        for x in DataLoader([], batch_size=4, shuffle=True):
            model(x).mean().backward()
            optimizer.step()
    """
    nets = "from torch import nn\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(8, 3)\n"
    results = migrated({"check.py": check, "train.py": train, "nets.py": nets})
    assert "no optimizer that is known" in said(results["train.py"], Severity.REFUSED)[0]
    assert results["check.py"].status is Status.MIGRATED
