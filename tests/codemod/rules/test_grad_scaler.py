"""AM320: the accelerator scales the loss; the script's GradScaler goes."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Target
from support.migration import IMPORTS, check_migrated, check_refused, migrate, sketch

CREATED = '+accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")'
SETUP = f"""
    -scaler = torch.cuda.amp.GradScaler()
    {CREATED}
    -model = nn.Linear(8, 3).cuda()
    +model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
FORWARD = """
     for x, y in loader:
         optimizer.zero_grad()
    -    with torch.cuda.amp.autocast():
    -        loss = F.cross_entropy(model(x.cuda()), y.cuda())
    +    with accelerator.autocast():
    +        loss = F.cross_entropy(model(x), y)
"""
BACKWARD = """
    -    scaler.scale(loss).backward()
    +    accelerator.backward(loss)
"""
STEP = """
    -    scaler.step(optimizer)
    -    scaler.update()
    +    optimizer.step()
"""


def test_clipping_unscales_by_itself() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        BACKWARD,
        """
        -    scaler.unscale_(optimizer)
        -    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        +    accelerator.clip_grad_norm_(model.parameters(), 1.0)
        """,
        STEP,
    )


def test_gradients_that_are_looked_at_are_unscaled() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        BACKWARD,
        """
        -    scaler.unscale_(optimizer)
        +    accelerator.unscale_gradients(optimizer)
             total = sum(p.grad.norm() for p in model.parameters())
        """,
        STEP,
    )


def test_clipping_that_stays_keeps_its_unscaling() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        BACKWARD,
        """
        -    scaler.unscale_(optimizer)
        +    accelerator.unscale_gradients(optimizer)
             torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        !    AM160 manual: has no counterpart
        """,
        STEP,
    )


def test_clipping_of_gradients_that_are_still_scaled_is_named() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        BACKWARD,
        """
        -    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        !    AM320 review: clipped while the loss scale was still in them
        +    accelerator.clip_grad_norm_(model.parameters(), 1.0)
        """,
        STEP,
    )


def test_a_scaled_loss_in_a_variable() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        """
        -    scaled = scaler.scale(loss)
        -    scaled.backward()
        +    scaled = loss
        +    accelerator.backward(scaled)
        """,
        STEP,
    )
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        "-    loss = scaler.scale(loss)\n-    loss.backward()\n+    accelerator.backward(loss)",
        STEP,
    )


def test_arguments_of_the_scaler_are_kept() -> None:
    created = """+accelerator = Accelerator(
    +    mixed_precision="fp16" if torch.cuda.is_available() else "no",
    +    kwargs_handlers=[GradScalerKwargs(init_scale=1024.0)],
    +)"""
    check_migrated(
        IMPORTS.replace("Accelerator", "Accelerator, GradScalerKwargs"),
        SETUP.replace("GradScaler()", "GradScaler(init_scale=1024.0)").replace(CREATED, created),
        FORWARD,
        BACKWARD,
        STEP,
    )


def test_a_comparison_of_scales_asks_whether_the_step_was_skipped() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        FORWARD,
        BACKWARD,
        "-    scale = scaler.get_scale()",
        STEP,
        """
        -    if scale <= scaler.get_scale():
        +    if not accelerator.optimizer_step_was_skipped:
                 loss = loss.detach()
        -    history = [scaler.get_scale()]
        +    history = [accelerator.scaler.get_scale() if accelerator.scaler is not None else 1.0]
        """,
    )


def test_a_checkpoint_keeps_the_state_of_the_scaler() -> None:
    check_migrated(
        IMPORTS,
        SETUP,
        """
        -state = torch.load("in.pt")
        -scaler.load_state_dict(state["s"])
        +state = torch.load("in.pt", map_location="cpu")
        +if accelerator.scaler is not None:
        +    accelerator.scaler.load_state_dict(state["s"])
        """,
        FORWARD,
        BACKWARD,
        STEP,
        """
        -torch.save({"s": scaler.state_dict()}, "out.pt")
        +accelerator.save({"s": accelerator.scaler.state_dict() if accelerator.scaler is not None else {}}, "out.pt")
        """,
    )


def test_branches_on_whether_there_is_a_scaler() -> None:
    check_migrated(
        IMPORTS,
        """
         import flags

        -scaler = torch.cuda.amp.GradScaler() if flags.amp else None
        +accelerator = Accelerator(mixed_precision="fp16" if flags.amp and torch.cuda.is_available() else "no")
        """,
        "-model = nn.Linear(8, 3).cuda()\n+model = nn.Linear(8, 3)",
        SETUP.split("+model = nn.Linear(8, 3)\n")[1],
        FORWARD.replace("autocast()", "autocast(scaler is not None)").replace(
            "accelerator.autocast(scaler is not None)", "accelerator.autocast()"
        ),
        """
        -    if scaler is not None:
        -        scaler.scale(loss).backward()
        -        scaler.step(optimizer)
        -        scaler.update()
        -    else:
        -        loss.backward()
        -        optimizer.step()
        +    accelerator.backward(loss)
        +    optimizer.step()
             state = {}
        -    if scaler is not None:
        -        state["scaler"] = scaler.state_dict()
        +    if accelerator.scaler is not None:
        +        state["scaler"] = accelerator.scaler.state_dict()
        """,
    )


def test_a_parameter_that_held_the_scaler_goes() -> None:
    check_migrated(
        IMPORTS,
        """
        -def train(model, optimizer, scaler, loader, device):
        +def train(model, optimizer, loader, accelerator):
             for x, y in loader:
                 optimizer.zero_grad()
        -        with torch.cuda.amp.autocast():
        -            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        -        scaler.scale(loss).backward()
        -        scaler.step(optimizer)
        -        scaler.update()
        +        with accelerator.autocast():
        +            loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        optimizer.step()


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -    model = nn.Linear(8, 3).to(device)
        +    accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
        +    model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        -    scaler = torch.cuda.amp.GradScaler()
        -    train(model, optimizer, scaler, loader, device)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        +    train(model, optimizer, loader, accelerator)


         main()
        """,
    )


def test_a_class_that_is_called_to_train() -> None:
    check_migrated(
        IMPORTS,
        """
         class Scaler:
        -    def __init__(self):
        -        self._scaler = torch.cuda.amp.GradScaler()
        -
             def __call__(self, loss, optimizer, parameters):
        -        self._scaler.scale(loss).backward()
        -        self._scaler.unscale_(optimizer)
        -        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        -        self._scaler.step(optimizer)
        -        self._scaler.update()
        +        accelerator.backward(loss)
        +        norm = accelerator.clip_grad_norm_(parameters, 1.0)
        +        optimizer.step()
                 return norm


        """,
        SETUP.replace("-scaler = torch.cuda.amp.GradScaler()\n    ", ""),
        " loss_scaler = Scaler()",
        FORWARD + "         norm = loss_scaler(loss, optimizer, model.parameters())",
    )


def test_a_trainer_that_keeps_its_scaler() -> None:
    check_migrated(
        """
         import torch
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader


         class Trainer:
             def __init__(self, args, loader):
                 self.args = args
        +        self.accelerator = Accelerator(
        +            mixed_precision="fp16" if args.amp and torch.cuda.is_available() else "no",
        +        )
        -        self.model = nn.Linear(8, 3).cuda()
        +        self.model = nn.Linear(8, 3)
                 self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                 self.loader = loader
        -        self.scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
        +        self.model, self.optimizer, self.loader = self.accelerator.prepare(
        +            self.model, self.optimizer, self.loader
        +        )

             def run(self):
                 for x, y in self.loader:
                     self.optimizer.zero_grad()
        -            with torch.cuda.amp.autocast(enabled=self.args.amp):
        -                loss = F.cross_entropy(self.model(x.cuda()), y.cuda())
        -            self.scaler.scale(loss).backward()
        -            self.scaler.step(self.optimizer)
        -            self.scaler.update()
        +            with self.accelerator.autocast():
        +                loss = F.cross_entropy(self.model(x), y)
        +            self.accelerator.backward(loss)
        +            self.optimizer.step()


         Trainer(None, DataLoader([])).run()
        """,
    )


def test_an_optional_import_goes_with_its_stand_in() -> None:
    check_migrated(
        IMPORTS,
        """
        -try:
        -    from torch.cuda.amp import GradScaler
        -except ImportError:
        -    class GradScaler:
        -        def scale(self, loss):
        -            return loss
        -
        -        def step(self, optimizer):
        -            optimizer.step()
        -
        -        def update(self):
        -            pass
        """,
        SETUP.replace("torch.cuda.amp.", ""),
        FORWARD,
        BACKWARD,
        STEP,
    )


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("scaler.update(1024.0)", "sets the scale"),
        ("train_elsewhere(scaler)", "handed to code that is not known"),
        ("grads = torch.autograd.grad(scaler.scale(loss), model.parameters())", "used for more than a backward"),
        ("everything = [scaler]", "kept or handed on"),
        ("scaler.set_growth_interval(10)", "`scaler.set_growth_interval` of a GradScaler has no counterpart"),
    ],
)
def test_what_has_no_counterpart_is_refused(use: str, why: str) -> None:
    check_refused(
        sketch(IMPORTS, SETUP, FORWARD, BACKWARD, STEP).before,
        f" {use}\n!AM900 refused: {why}",
    )


TWO = """
    -scaler = torch.cuda.amp.GradScaler()
    +accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
    -body = nn.Linear(8, 4).cuda()
    -head = nn.Linear(4, 3).cuda()
    +body = nn.Linear(8, 4)
    +head = nn.Linear(4, 3)
     first = torch.optim.SGD(body.parameters(), lr=0.1)
     second = torch.optim.SGD(head.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +body, head, first, second, loader = accelerator.prepare(body, head, first, second, loader)
     for x, y in loader:
         first.zero_grad()
         second.zero_grad()
    -    with torch.cuda.amp.autocast():
    -        loss = F.cross_entropy(head(body(x.cuda())), y.cuda())
    -    scaler.scale(loss).backward()
    +    with accelerator.autocast():
    +        loss = F.cross_entropy(head(body(x)), y)
    +    accelerator.backward(loss)
"""


def test_several_optimizers_share_the_scale_in_another_rhythm() -> None:
    check_migrated(
        IMPORTS,
        TWO,
        """
        -    scaler.step(first)
        -    scaler.step(second)
        !    AM320 review: several optimizers share one loss scale
        -    scaler.update()
        +    first.step()
        +    second.step()
        """,
    )


def test_accelerate_cannot_clip_twice_before_a_step() -> None:
    script = sketch(
        IMPORTS,
        TWO,
        """
             scaler.unscale_(first)
             nn.utils.clip_grad_norm_(body.parameters(), 1.0)
             scaler.unscale_(second)
             nn.utils.clip_grad_norm_(head.parameters(), 1.0)
             scaler.step(first)
             scaler.step(second)
             scaler.update()
        """,
    ).before
    refused = migrate(script, target=Target.ACCELERATE)
    assert "clipped twice before a step" in refused.findings[0].message
    assert migrate(script).after is not None
