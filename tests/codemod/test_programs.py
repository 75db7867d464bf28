"""Programs of several files, each with the change that a careful reviewer would merge."""

from __future__ import annotations

from support.migration import check_program


def test_trainer_class_in_one_file_built_in_another() -> None:
    """The class is given the accelerator in the place of the device that ``main`` chose."""
    check_program(
        {
            "data.py": """
                import torch


                def make_set():
                    return [{"x": torch.randn(8), "y": torch.tensor(1)} for _ in range(16)]
            """,
            "model.py": """
                 import torch
                 from torch import nn


                 class Net(nn.Module):
                     def __init__(self):
                         super().__init__()
                         self.fc = nn.Linear(8, 3)

                     def forward(self, x, y):
                         return nn.functional.cross_entropy(self.fc(x), y)

                     def export(self, path):
                         torch.save(self.fc.weight, path)
                !    AM150 manual: torch.save runs on every process here, and the accelerator cannot be passed
            """,
            "train.py": """
                 import argparse

                -import torch
                 from torch.utils.data import DataLoader
                +from accelerate_runtime import Accelerator

                 from data import make_set
                 from model import Net
                 from trainer import Trainer


                 def main():
                     cfg = argparse.Namespace(lr=0.1, out="net.pt")
                -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                +    accelerator = Accelerator()
                     model = Net()
                     loader = DataLoader(make_set(), batch_size=4)
                -    trainer = Trainer(cfg, model, loader, device)
                +    trainer = Trainer(cfg, model, loader, accelerator)
                     trainer.run()


                 if __name__ == "__main__":
                     main()
            """,
            "trainer.py": """
                 import torch
                 from torch import nn


                 class Trainer:
                -    def __init__(self, cfg, model, loader, device):
                +    def __init__(self, cfg, model, loader, accelerator):
                +        self.accelerator = accelerator
                         self.cfg = cfg
                -        self.device = device
                -        self.net = model.to(device)
                +        self.net = model
                         self.opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
                         self.loader = loader
                +        self.net, self.opt, self.loader = accelerator.prepare(self.net, self.opt, self.loader)

                     def run(self):
                         for batch in self.loader:
                -            batch = {k: v.to(self.device) for k, v in batch.items()}
                             loss = self.net(**batch)
                -            loss.backward()
                -            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                +            self.accelerator.backward(loss)
                +            self.accelerator.clip_grad_norm_(self.net.parameters(), 1.0)
                             self.opt.step()
                             self.opt.zero_grad()
                -        self.net.export(self.cfg.out)
                +        self.accelerator.unwrap_model(self.net).export(self.cfg.out)
            """,
        }
    )


def test_two_scripts_share_an_engine() -> None:
    """An engine of functions follows both of the scripts that call it."""
    check_program(
        {
            "engine.py": """
                 import torch
                 import torch.nn.functional as F


                -def train_one_epoch(model, optimizer, loader, device, epoch):
                +def train_one_epoch(model, optimizer, loader, accelerator, epoch):
                     model.train()
                     for x, y in loader:
                -        x, y = x.to(device), y.to(device)
                         optimizer.zero_grad()
                         loss = F.cross_entropy(model(x), y)
                -        loss.backward()
                +        accelerator.backward(loss)
                         optimizer.step()
                -    print(f"epoch {epoch} loss {loss.item():.4f}")
                +    accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")


                -def evaluate(model, loader, device):
                +def evaluate(model, loader, accelerator):
                     model.eval()
                     correct = 0
                     with torch.no_grad():
                         for x, y in loader:
                -            x, y = x.to(device), y.to(device)
                -            correct += (model(x).argmax(1) == y).sum().item()
                +            output, y = accelerator.gather_for_metrics((model(x), y))
                +            correct += (output.argmax(1) == y).sum().item()
                     return correct / len(loader.dataset)
            """,
            "finetune.py": """
                 import torch
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                 from engine import evaluate, train_one_epoch
                 from model import Net


                 def main():
                -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                +    accelerator = Accelerator()
                     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                     loader = DataLoader(data, batch_size=32, shuffle=True)
                     test_loader = DataLoader(data, batch_size=32)
                -    model = Net().to(device)
                +    model = Net()
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                +    model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)
                     best = 0.0
                     for epoch in range(5):
                -        train_one_epoch(model, optimizer, loader, device, epoch)
                -        accuracy = evaluate(model, test_loader, device)
                +        train_one_epoch(model, optimizer, loader, accelerator, epoch)
                +        accuracy = evaluate(model, test_loader, accelerator)
                         if accuracy > best:
                             best = accuracy
                -            torch.save(model.state_dict(), "best.pt")
                +            accelerator.save(accelerator.get_state_dict(model), "best.pt")


                 if __name__ == "__main__":
                     main()
            """,
            "model.py": """
                import torch
                from torch import nn


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.fc = nn.Linear(8, 3)

                    def forward(self, x):
                        return self.fc(x)
            """,
            "train.py": """
                 import torch
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                 from engine import evaluate, train_one_epoch
                 from model import Net


                 def main():
                -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                +    accelerator = Accelerator()
                     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                     loader = DataLoader(data, batch_size=32, shuffle=True)
                     test_loader = DataLoader(data, batch_size=32)
                -    model = Net().to(device)
                +    model = Net()
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                +    model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)
                     best = 0.0
                     for epoch in range(2):
                -        train_one_epoch(model, optimizer, loader, device, epoch)
                -        accuracy = evaluate(model, test_loader, device)
                +        train_one_epoch(model, optimizer, loader, accelerator, epoch)
                +        accuracy = evaluate(model, test_loader, accelerator)
                         if accuracy > best:
                             best = accuracy
                -            torch.save(model.state_dict(), "best.pt")
                +            accelerator.save(accelerator.get_state_dict(model), "best.pt")


                 if __name__ == "__main__":
                     main()
            """,
        }
    )


def test_who_trains_together_with_a_refused_script_is_refused_too() -> None:
    """The engine can't be migrated for one script alone; a script that shares nothing with them goes on."""
    check_program(
        {
            "engine.py": """
                 import torch
                !    AM900 refused: not migrated: it trains together with search.py: the name `accelerator`
                 import torch.nn.functional as F


                 def train_one_epoch(model, optimizer, loader, device, epoch):
                     model.train()
                     for x, y in loader:
                         x, y = x.to(device), y.to(device)
                         optimizer.zero_grad()
                         loss = F.cross_entropy(model(x), y)
                         loss.backward()
                         optimizer.step()
                     print(f"epoch {epoch} loss {loss.item():.4f}")


                 def evaluate(model, loader, device):
                     model.eval()
                     correct = 0
                     with torch.no_grad():
                         for x, y in loader:
                             x, y = x.to(device), y.to(device)
                             correct += (model(x).argmax(1) == y).sum().item()
                     return correct / len(loader.dataset)
            """,
            "model.py": """
                import torch
                from torch import nn


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.fc = nn.Linear(8, 3)

                    def forward(self, x):
                        return self.fc(x)
            """,
            "other.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader, TensorDataset

                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                -model = nn.Linear(8, 3).cuda()
                +accelerator = Accelerator()
                +model = nn.Linear(8, 3)
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 loader = DataLoader(data, batch_size=32, shuffle=True)
                +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                 for x, y in loader:
                -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                +    loss = F.cross_entropy(model(x), y)
                     optimizer.zero_grad()
                -    loss.backward()
                +    accelerator.backward(loss)
                     optimizer.step()
            """,
            "search.py": """
                 import torch
                 from torch.utils.data import DataLoader, TensorDataset

                 from engine import train_one_epoch
                 from model import Net

                 accelerator = "gpu"
                !    AM900 refused: not migrated: the name `accelerator` is already used
                 device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                 loader = DataLoader(data, batch_size=32, shuffle=True)
                 model = Net().to(device)
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 train_one_epoch(model, optimizer, loader, device, 0)
            """,
            "train.py": """
                 import torch
                !    AM900 refused: not migrated: it trains together with search.py: the name `accelerator`
                 from torch.utils.data import DataLoader, TensorDataset

                 from engine import evaluate, train_one_epoch
                 from model import Net


                 def main():
                     device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                     loader = DataLoader(data, batch_size=32, shuffle=True)
                     test_loader = DataLoader(data, batch_size=32)
                     model = Net().to(device)
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                     best = 0.0
                     for epoch in range(2):
                         train_one_epoch(model, optimizer, loader, device, epoch)
                         accuracy = evaluate(model, test_loader, device)
                         if accuracy > best:
                             best = accuracy
                             torch.save(model.state_dict(), "best.pt")


                 if __name__ == "__main__":
                     main()
            """,
        }
    )


def test_base_class_keeps_the_accelerator_for_all() -> None:
    """``super().__init__`` is given it once."""
    check_program(
        {
            "base.py": """
                -import torch
                -
                -
                 class BaseTrainer:
                -    def __init__(self, model, optimizer, epochs):
                -        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
                -        self.model = model.to(self.device)
                +    def __init__(self, accelerator, model, optimizer, epochs):
                +        self.accelerator = accelerator
                +        self.model = model
                         self.optimizer = optimizer
                         self.epochs = epochs

                     def fit(self):
                         for epoch in range(1, self.epochs + 1):
                             loss = self._train_epoch(epoch)
                -            print(f"epoch {epoch}: {loss:.4f}")
                +            self.accelerator.print(f"epoch {epoch}: {loss:.4f}")
                             if epoch % 2 == 0:
                                 self._save(epoch)

                     def _train_epoch(self, epoch):
                         raise NotImplementedError

                     def _save(self, epoch):
                -        torch.save({"net": self.model.state_dict()}, f"{epoch}.pt")
                +        self.accelerator.save({"net": self.accelerator.get_state_dict(self.model)}, f"{epoch}.pt")
            """,
            "train.py": """
                 import torch
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader, TensorDataset

                 from trainer import Trainer


                 def main():
                     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                +    accelerator = Accelerator()
                     loader = DataLoader(data, batch_size=32, shuffle=True)
                     model = nn.Linear(8, 3)
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                -    Trainer(model, optimizer, loader, 4).fit()
                +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                +    Trainer(accelerator, model, optimizer, loader, 4).fit()


                 if __name__ == "__main__":
                     main()
            """,
            "trainer.py": """
                 from base import BaseTrainer
                 from torch.nn import functional as F


                 class Trainer(BaseTrainer):
                -    def __init__(self, model, optimizer, loader, epochs):
                -        super().__init__(model, optimizer, epochs)
                +    def __init__(self, accelerator, model, optimizer, loader, epochs):
                +        super().__init__(accelerator, model, optimizer, epochs)
                         self.loader = loader

                     def _train_epoch(self, epoch):
                         self.model.train()
                         total = 0.0
                         for x, y in self.loader:
                -            x, y = x.to(self.device), y.to(self.device)
                             self.optimizer.zero_grad()
                             loss = F.cross_entropy(self.model(x), y)
                -            loss.backward()
                +            self.accelerator.backward(loss)
                             self.optimizer.step()
                -            total += loss.item()
                +            total += self.accelerator.reduce(loss.detach(), reduction="mean").item()
                         return total / len(self.loader)
            """,
        }
    )


def test_trainer_that_nothing_constructs_makes_the_accelerator() -> None:
    """A library of one trainer: its constructor sets the training up."""
    check_program(
        {
            "trainer.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader


                 class Trainer:
                     def __init__(self, dataset, lr):
                -        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                -        self.model = nn.Linear(8, 3).to(self.device)
                +        self.accelerator = Accelerator()
                +        self.model = nn.Linear(8, 3)
                         self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
                         self.loader = DataLoader(dataset, batch_size=32, shuffle=True)
                +        self.model, self.optimizer, self.loader = self.accelerator.prepare(
                +            self.model, self.optimizer, self.loader
                +        )

                     def run(self):
                         for x, y in self.loader:
                -            x, y = x.to(self.device), y.to(self.device)
                             self.optimizer.zero_grad()
                             loss = F.cross_entropy(self.model(x), y)
                -            loss.backward()
                +            self.accelerator.backward(loss)
                             self.optimizer.step()
                -        torch.save(self.model.state_dict(), "net.pt")
                +        self.accelerator.save(self.accelerator.get_state_dict(self.model), "net.pt")
            """,
        }
    )


def test_device_that_an_object_keeps() -> None:
    """What still reads ``self.device`` finds the accelerator's."""
    check_program(
        {
            "trainer.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader


                 class Trainer:
                     def __init__(self, dataset, lr):
                -        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                -        self.model = nn.Linear(8, 3).to(self.device)
                +        self.accelerator = Accelerator()
                +        self.device = self.accelerator.device
                +        self.model = nn.Linear(8, 3)
                         self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
                         self.loader = DataLoader(dataset, batch_size=32, shuffle=True)
                +        self.model, self.optimizer, self.loader = self.accelerator.prepare(
                +            self.model, self.optimizer, self.loader
                +        )

                     def run(self):
                         for x, y in self.loader:
                -            x, y = x.to(self.device), y.to(self.device)
                             self.optimizer.zero_grad()
                             noise = torch.randn(32, 8, device=self.device)
                             hidden = torch.zeros(32, 8).to(self.device)
                             loss = F.cross_entropy(self.model(x + noise + hidden), y)
                -            loss.backward()
                +            self.accelerator.backward(loss)
                             self.optimizer.step()
                -        print(self.device)
                +        self.accelerator.print(self.device)
            """,
        }
    )


def test_helpers_shared_with_an_evaluation_script() -> None:
    """They go on taking a device: the script that only evaluates has no accelerator to give them."""
    check_program(
        {
            "helpers.py": """
                import torch


                def get_device():
                    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def accuracy(model, loader, device):
                    correct = 0
                    with torch.no_grad():
                        for x, y in loader:
                            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
                    return correct / len(loader.dataset)
            """,
            "model.py": """
                import torch
                from torch import nn


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.fc = nn.Linear(8, 3)

                    def forward(self, x):
                        return self.fc(x)
            """,
            "test.py": """
                import torch
                from torch.utils.data import DataLoader, TensorDataset

                from helpers import accuracy, get_device
                from model import Net

                device = get_device()
                data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                model = Net().to(device)
                model.load_state_dict(torch.load("net.pt", map_location=device))
                held_out = DataLoader(data, batch_size=32)
                print(accuracy(model, held_out, device))
            """,
            "train.py": """
                 import torch
                 import torch.nn.functional as F
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                -from helpers import accuracy, get_device
                +from helpers import accuracy
                 from model import Net

                -device = get_device()
                +accelerator = Accelerator()
                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                -model = Net().to(device)
                +model = Net()
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 loader = DataLoader(data, batch_size=32, shuffle=True)
                +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                 for x, y in loader:
                -    x, y = x.to(device), y.to(device)
                     optimizer.zero_grad()
                     loss = F.cross_entropy(model(x), y)
                -    loss.backward()
                +    accelerator.backward(loss)
                     optimizer.step()
                 held_out = DataLoader(data, batch_size=32)
                -print(accuracy(model, held_out, device))
                -torch.save(model.state_dict(), "net.pt")
                +accelerator.print(accuracy(model, held_out, accelerator.device))
                +accelerator.save(accelerator.get_state_dict(model), "net.pt")
            """,
        }
    )


def test_star_imports_and_names_passed_on() -> None:
    """A device that a package passes on stays where it is."""
    check_program(
        {
            "lib/__init__.py": """
                from .nets import *
                from .steps import device, step
            """,
            "lib/nets.py": """
                from torch import nn


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.fc = nn.Linear(8, 3)

                    def forward(self, x):
                        return self.fc(x)
            """,
            "lib/steps.py": """
                 import torch
                 import torch.nn.functional as F

                 device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                -def step(model, optimizer, x, y):
                -    x, y = x.to(device), y.to(device)
                +def step(accelerator, model, optimizer, x, y):
                     optimizer.zero_grad()
                     loss = F.cross_entropy(model(x), y)
                -    loss.backward()
                +    accelerator.backward(loss)
                     optimizer.step()
                     return loss.item()
            """,
            "train.py": """
                 import torch
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                 from lib import *

                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                -model = Net().to(device)
                +accelerator = Accelerator()
                +model = Net()
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 loader = DataLoader(data, batch_size=32, shuffle=True)
                +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                 for x, y in loader:
                -    print(step(model, optimizer, x, y))
                +    accelerator.print(step(accelerator, model, optimizer, x, y))
            """,
        }
    )


def test_layers_that_move_by_themselves() -> None:
    """A model file needs no accelerator where a tensor at hand knows the device."""
    check_program(
        {
            "model.py": """
                 import torch
                 from torch import nn


                 class Noisy(nn.Module):
                     def __init__(self):
                         super().__init__()
                         self.fc = nn.Linear(8, 3)
                         self.scale = torch.ones(3).cuda()
                !    AM120 manual: torch.ones(3).cuda() moves to CUDA where the accelerator cannot be passed

                     def forward(self, x):
                -        noise = torch.randn(x.shape).cuda()
                -        return self.fc(x + noise) * self.scale + torch.zeros(3, device="cuda")
                +        noise = torch.randn(x.shape).to(x.device)
                +        return self.fc(x + noise) * self.scale + torch.zeros(3, device=next(self.parameters()).device)
            """,
            "train.py": """
                 import torch
                 import torch.nn.functional as F
                 from torch.utils.data import DataLoader, TensorDataset
                +from accelerate_runtime import Accelerator

                 from model import Noisy

                 data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                -model = Noisy().cuda()
                +accelerator = Accelerator()
                +model = Noisy()
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                 loader = DataLoader(data, batch_size=32, shuffle=True)
                +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                 for x, y in loader:
                     optimizer.zero_grad()
                -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                -    loss.backward()
                +    loss = F.cross_entropy(model(x), y)
                +    accelerator.backward(loss)
                     optimizer.step()
            """,
        }
    )


def test_function_with_two_roles_for_one_parameter() -> None:
    """What holds for one of its calls only is left to a person."""
    check_program(
        {
            "train.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator
                 from torch import nn
                 from torch.utils.data import DataLoader, TensorDataset

                 from utils import place, save


                 def main():
                -    device = "cuda" if torch.cuda.is_available() else "cpu"
                +    accelerator = Accelerator()
                     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
                -    model = place(nn.Linear(8, 3), device)
                +    model = place(nn.Linear(8, 3), accelerator)
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                     loader = DataLoader(data, batch_size=32, shuffle=True)
                +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                     for x, y in loader:
                -        x, y = place(x, device), place(y, device)
                +        x, y = place(x, accelerator), place(y, accelerator)
                         optimizer.zero_grad()
                         loss = F.cross_entropy(model(x), y)
                -        loss.backward()
                +        accelerator.backward(loss)
                         optimizer.step()
                -    save(model, "net.pt")
                -    save(optimizer, "opt.pt")
                +    save(accelerator, model, "net.pt")
                +    save(accelerator, optimizer, "opt.pt")


                 if __name__ == "__main__":
                     main()
            """,
            "utils.py": """
                -import torch
                +def place(thing, accelerator):
                +    return thing


                -def place(thing, device):
                -    return thing.to(device)
                -
                -
                -def save(thing, path):
                -    torch.save(thing.state_dict(), path)
                !    AM150 manual: thing.state_dict() is asked of a prepared model and of others; it needs two forms
                +def save(accelerator, thing, path):
                +    accelerator.save(thing.state_dict(), path)
            """,
        }
    )


def test_two_scripts_have_one_factory_make_their_objects() -> None:
    """Each prepares what it got, under its own names."""
    check_program(
        {
            "factory.py": """
                 import torch
                 from torch import nn
                 from torch.utils.data import DataLoader, TensorDataset


                 def build_model():
                     return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


                 def build_loader(batch_size):
                     data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
                     return DataLoader(data, batch_size=batch_size, shuffle=True)
            """,
            "pretrain.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator

                 from factory import build_loader, build_model


                 def main():
                -    model = build_model().cuda()
                +    accelerator = Accelerator()
                +    model = build_model()
                     loader = build_loader(8)
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
                     for x, y in loader:
                -        x, y = x.cuda(), y.cuda()
                         optimizer.zero_grad()
                         loss = F.cross_entropy(model(x), y)
                -        loss.backward()
                +        accelerator.backward(loss)
                         optimizer.step()


                 if __name__ == "__main__":
                     main()
            """,
            "finetune.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator

                 from factory import build_loader, build_model


                 def main():
                +    accelerator = Accelerator()
                     net = build_model()
                -    net.cuda()
                     loader = build_loader(4)
                     optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
                +    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
                     for x, y in loader:
                -        x, y = x.cuda(), y.cuda()
                         optimizer.zero_grad()
                -        F.cross_entropy(net(x), y).backward()
                +        accelerator.backward(F.cross_entropy(net(x), y))
                         optimizer.step()


                 if __name__ == "__main__":
                     main()
            """,
        }
    )


def test_one_of_two_scripts_has_the_factory_make_two_loaders() -> None:
    """What goes by several names there is prepared where it is made, once, and for both scripts."""
    check_program(
        {
            "factory.py": """
                 import torch
                 from torch import nn
                 from torch.utils.data import DataLoader, TensorDataset


                 def build_model():
                     return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


                -def build_loader(batch_size):
                +def build_loader(accelerator, batch_size):
                     data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
                -    return DataLoader(data, batch_size=batch_size, shuffle=True)
                +    return accelerator.prepare(DataLoader(data, batch_size=batch_size, shuffle=True))
            """,
            "pretrain.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator

                 from factory import build_loader, build_model


                 def main():
                -    model = build_model().cuda()
                -    loader = build_loader(8)
                +    accelerator = Accelerator()
                +    model = build_model()
                +    loader = build_loader(accelerator, 8)
                     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                +    model, optimizer = accelerator.prepare(model, optimizer)
                     for x, y in loader:
                -        x, y = x.cuda(), y.cuda()
                         optimizer.zero_grad()
                         loss = F.cross_entropy(model(x), y)
                -        loss.backward()
                +        accelerator.backward(loss)
                         optimizer.step()


                 if __name__ == "__main__":
                     main()
            """,
            "finetune.py": """
                 import torch
                 import torch.nn.functional as F
                +from accelerate_runtime import Accelerator

                 from factory import build_loader, build_model


                 def main():
                -    net = build_model().cuda()
                -    loader = build_loader(8)
                -    test_loader = build_loader(4)
                +    accelerator = Accelerator()
                +    net = build_model()
                +    loader = build_loader(accelerator, 8)
                +    test_loader = build_loader(accelerator, 4)
                     optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
                +    net, optimizer = accelerator.prepare(net, optimizer)
                     for x, y in loader:
                -        x, y = x.cuda(), y.cuda()
                         optimizer.zero_grad()
                -        F.cross_entropy(net(x), y).backward()
                +        accelerator.backward(F.cross_entropy(net(x), y))
                         optimizer.step()
                     right = 0
                     with torch.no_grad():
                         for x, y in test_loader:
                -            x, y = x.cuda(), y.cuda()
                -            right += (net(x).argmax(1) == y).sum().item()
                -    print(right / len(test_loader.dataset))
                +            output, y = accelerator.gather_for_metrics((net(x), y))
                +            right += (output.argmax(1) == y).sum().item()
                +    accelerator.print(right / len(test_loader.dataset))


                 if __name__ == "__main__":
                     main()
            """,
        }
    )
