"""Training programs composed out of the shapes that real ones have, small enough to be trained in a moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import indent

LAYOUTS = ("module", "main", "functions", "trainer", "two files")
DEVICES = ("string", "device", "flag", "setting", "hard", "guarded", "none")
SCHEDULES = ("none", "epoch", "batch")
CLIPPING = ("none", "norm", "value")
EVALUATIONS = ("none", "count", "sum", "mean")
CHECKPOINTS = ("none", "last", "best")
WRAPPERS = ("none", "always", "counted")

KEPT = (
    "# a comment   with  odd spacing",
    "constant = {'a' : 1,}   # kept",
    'text = """a string\n\twith a tab"""',
)
"""Statements that no migration has a reason to touch."""

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(x))))
"""


@dataclass(frozen=True)
class Shape:
    """What a program is made of."""

    layout: str = "module"
    device: str = "string"
    loader: bool = True  # else slices of one tensor
    schedule: str = "none"
    clipping: str = "none"
    accumulates: bool = False
    evaluation: str = "none"
    checkpoint: str = "none"
    wrapper: str = "none"
    scaled: bool = False  # autocast and a gradient scaler
    zero_first: bool = True
    prints: bool = True

    @property
    def in_trainer(self) -> bool:
        """Whether a class trains."""
        return self.layout == "trainer"

    @property
    def in_functions(self) -> bool:
        """Whether functions train that are given what they need."""
        return self.layout in ("functions", "two files")

    @property
    def has_device(self) -> bool:
        """Whether a variable holds the device."""
        return self.device in ("string", "device", "flag", "setting")

    def files(self) -> dict[str, str]:
        """The program; ``train.py`` is the one to start."""
        header = _lines("torch.manual_seed(3)", *KEPT)
        data = _lines(
            "inputs, labels = torch.randn(48, 4), torch.randint(3, (48,))",
            "held_out = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))",
        )
        imports = _lines(
            "import argparse" if self.device == "setting" else "",
            "import torch",
            "import torch.nn.functional as F",
            "from torch import nn",
            "from torch.utils.data import DataLoader, TensorDataset",
        )
        functions = self._functions() if self.in_functions else ""
        if self.layout == "two files":
            names = "evaluate, train_epoch" if self.evaluation != "none" else "train_epoch"
            engine = (
                _lines("import torch", "import torch.nn.functional as F", "from torch import nn") + "\n\n" + functions
            )
            train = "\n".join([imports, f"from engine import {names}", header, MODEL, "", self._main(data)])
            return {"engine.py": engine, "train.py": train}
        parts = [imports, header, MODEL, "", functions, self._trainer() if self.in_trainer else ""]
        return {"train.py": "\n".join([*parts, self._main(data)])}

    # ---- what is made

    def _main(self, data: str) -> str:
        if self.in_trainer:
            body = data + self._arguments() + _lines(f"Trainer(inputs, labels, held_out{self._given('args')}).fit()")
        else:
            body = data + self._arguments() + self._made("") + self._epochs("")
        if self.layout in ("module",):
            return body
        return f'def main():\n{indent(body, "    ")}\n\nif __name__ == "__main__":\n    main()\n'

    def _given(self, name: str) -> str:
        return f", {name}" if self.device == "setting" else ""

    def _arguments(self) -> str:
        if self.device != "setting":
            return ""
        return _lines(
            "parser = argparse.ArgumentParser()",
            'parser.add_argument("--no-cuda", action="store_true")',
            "args = parser.parse_args([])",
        )

    def _made(self, me: str) -> str:
        available = "torch.cuda.is_available()"
        devices = {
            "string": [f'{me}device = "cuda" if {available} else "cpu"'],
            "device": [f'{me}device = torch.device("cuda" if {available} else "cpu")'],
            "flag": [f"use_cuda = {available}", f'{me}device = torch.device("cuda:0" if use_cuda else "cpu")'],
            "setting": [f'{me}device = torch.device("cuda" if {available} and not args.no_cuda else "cpu")'],
        }
        model = f"{me}model"
        lines = [*devices.get(self.device, ())]
        lines.append(f"{model} = Net(){self._moved()}")
        if self.device == "guarded":
            lines += [f"if {available}:", f"    {model}.cuda()"]
        if self.wrapper == "always":
            lines.append(f"{model} = nn.DataParallel({model})")
        if self.wrapper == "counted":
            lines += ["if torch.cuda.device_count() > 1:", f"    {model} = nn.DataParallel({model})"]
        lines.append(f"{me}optimizer = torch.optim.SGD({model}.parameters(), lr=0.1, momentum=0.9)")
        if self.loader:
            lines.append(f"{me}loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=True)")
        elif me:
            lines += [f"{me}inputs = inputs", f"{me}labels = labels"]
        if self.evaluation != "none":
            lines.append(f"{me}test_loader = DataLoader(held_out, batch_size=8)")
        if self.schedule == "epoch":
            lines.append(f"{me}scheduler = torch.optim.lr_scheduler.StepLR({me}optimizer, step_size=1, gamma=0.5)")
        if self.schedule == "batch":
            steps = f"2 * len({me}loader)" if self.loader else "12"
            lines.append(f"{me}scheduler = torch.optim.lr_scheduler.CosineAnnealingLR({me}optimizer, T_max={steps})")
        if self.scaled:
            lines.append(f"{me}scaler = torch.cuda.amp.GradScaler()")
        return _lines(*lines)

    def _moved(self) -> str:
        return (
            f".to({'self.' * self.in_trainer}device)" if self.has_device else ".cuda()" if self.device == "hard" else ""
        )

    # ---- how it trains

    def _epochs(self, me: str) -> str:
        given = ", ".join(self._parameters())
        if self.in_functions:
            body = [f"train_epoch({given}, epoch)"]
        elif me:
            body = ["self.train_epoch(epoch)"]
        else:
            body = self._training("").rstrip("\n").split("\n")
        if self.schedule == "epoch":
            body.append(f"{me}scheduler.step()")
        if self.evaluation != "none":
            if self.in_functions:
                body.append(f"score = evaluate(model, {'device, ' * self.has_device}test_loader)")
            elif me:
                body.append("score = self.evaluate()")
            else:
                body += self._evaluation("").rstrip("\n").split("\n")
            body.append('print(f"epoch {epoch}: {score:.6f}")')
        save = f'torch.save({me}model.state_dict(), "net.pt")'
        best = self.checkpoint == "best" and self.evaluation != "none"
        if best:
            body += ["if score > best:", "    best = score", f"    {save}"]
        lines = ["best = 0.0"] if best else []
        lines += ["for epoch in range(2):", indent("\n".join(body), "    ")]
        if self.checkpoint != "none" and not best:
            lines.append(save)
        lines.append(f'print(f"weights {{sum(p.abs().sum().item() for p in {me}model.parameters()):.6f}}")')
        return _lines(*lines)

    def _parameters(self) -> list[str]:
        return [
            "model",
            *(["device"] if self.has_device else []),
            *(["loader"] if self.loader else ["inputs", "labels"]),
            "optimizer",
            *(["scheduler"] if self.schedule == "batch" else []),
            *(["scaler"] if self.scaled else []),
        ]

    def _functions(self) -> str:
        text = (
            f"def train_epoch({', '.join(self._parameters())}, epoch):\n" + indent(self._training(""), "    ") + "\n\n"
        )
        if self.evaluation != "none":
            given = f"model, {'device, ' * self.has_device}test_loader"
            text += f"def evaluate({given}):\n" + indent(self._evaluation("") + "return score\n", "    ") + "\n\n"
        return text

    def _trainer(self) -> str:
        methods = [
            f"def __init__(self, inputs, labels, held_out{self._given('args')}):\n"
            + indent(self._made("self."), "    ")
        ]
        methods.append("def train_epoch(self, epoch):\n" + indent(self._training("self."), "    "))
        if self.evaluation != "none":
            methods.append("def evaluate(self):\n" + indent(self._evaluation("self.") + "return score\n", "    "))
        methods.append("def fit(self):\n" + indent(self._epochs("self."), "    "))
        return "class Trainer:\n" + indent("\n".join(methods), "    ") + "\n\n"

    def _moves(self, me: str) -> list[str]:
        if self.has_device:
            return [f"x, y = x.to({me}device), y.to({me}device)"]
        if self.device == "hard":
            return ["x = x.cuda(non_blocking=True)", "y = y.cuda(non_blocking=True)"]
        if self.device == "guarded":
            return ["if torch.cuda.is_available():", "    x, y = x.cuda(), y.cuda()"]
        return []

    def _training(self, me: str) -> str:
        model, optimizer = f"{me}model", f"{me}optimizer"
        body = self._moves(me)
        if not self.loader:
            body = [f"x, y = {me}inputs[step * 8 : step * 8 + 8], {me}labels[step * 8 : step * 8 + 8]", *body]
        zero = f"{optimizer}.zero_grad()"
        first = self.zero_first and not self.accumulates
        body += [zero] if first else []
        loss = f"loss = F.cross_entropy({model}(x), y){' / 2' * self.accumulates}"
        body += ["with torch.cuda.amp.autocast():", f"    {loss}"] if self.scaled else [loss]
        body.append(f"{me}scaler.scale(loss).backward()" if self.scaled else "loss.backward()")
        step = []
        if self.clipping != "none":
            step += [f"{me}scaler.unscale_({optimizer})"] if self.scaled else []
            step += [f"torch.nn.utils.clip_grad_{self.clipping}_({model}.parameters(), 0.5)"]
        step += [f"{me}scaler.step({optimizer})", f"{me}scaler.update()"] if self.scaled else [f"{optimizer}.step()"]
        step += [] if first else [zero]
        step += [f"{me}scheduler.step()"] if self.schedule == "batch" else []
        body += ["if (step + 1) % 2 == 0:", *(f"    {line}" for line in step)] if self.accumulates else step
        if self.prints:
            body += ["if step % 3 == 0:", '    print(f"{epoch} {step}: {loss.item():.6f}")']
        head = f"for step, (x, y) in enumerate({me}loader):" if self.loader else "for step in range(6):"
        return _lines(f"{model}.train()", head, indent("\n".join(body), "    "))

    def _evaluation(self, me: str) -> str:
        loop = [*self._moves(me), f"out = {me}model(x)"]
        loop.append(
            {
                "count": "score += (out.argmax(1) == y).sum().item()",
                "sum": 'score += F.cross_entropy(out, y, reduction="sum").item()',
                "mean": "score += F.cross_entropy(out, y).item()",
            }[self.evaluation]
        )
        inner = f"for x, y in {me}test_loader:\n" + indent("\n".join(loop), "    ")
        return _lines(f"{me}model.eval()", "score = 0.0", "with torch.no_grad():", indent(inner, "    "))


def _lines(*lines: str | Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines if line)
