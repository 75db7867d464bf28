"""AM105: settings that code run by `exec` may change keep their names."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.settings import last_override, overridden
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Say what is taken for granted of the code that is run."""
    for module in context.plan.module.active:
        last = last_override(module.tree)
        if last is not None:
            _tell(context, last, sorted(overridden(module.tree)))


def _tell(context: Context, last: ast.stmt, names: list[str]) -> None:
    shown = ", ".join(f"`{name}`" for name in names[:4]) + (", …" if len(names) > 4 else "")
    context.review(
        last,
        "the code that is run here is taken to change settings only"
        + (f" ({shown}), which keep their names" if names else "")
        + ": look that it makes no model, optimizer or loader",
    )


RULE = Rule(
    code="AM105",
    name="settings",
    summary="Settings that code run by `exec` may change keep their names, also the device.",
    why="Code such as `exec(open('configurator.py').read())` looks its settings up by name and type. So a setting that "
    "names the device stays a string, the accelerator is made behind the `exec` and heeds it, and whatever asked for "
    "the setting as a device asks for the accelerator's.",
    before='device = "cuda"\nexec(open("configurator.py").read())\nnoise = torch.randn(8, 16, device=device)',
    after='device = "cuda"\nexec(open("configurator.py").read())\naccelerator = Accelerator(cpu=device == "cpu")\n'
    "noise = torch.randn(8, 16, device=accelerator.device)",
    safety="Exact where the code that is run sets constants and nothing else; that is for a person to see. An `exec` "
    "in a function or a block, or behind something that trains, keeps the file as it is.",
    apply=apply,
    order=71,
)
