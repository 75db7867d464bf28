"""Scripts whose training another framework runs: there is no loop here to migrate, and each has its own way to spread.

Such a script is refused before any analysis, with its own reason. A framework that is only imported refuses nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accelerate_migrate.codes import UNSUPPORTED, refused
from accelerate_migrate.findings import FileResult, Options, Target
from accelerate_migrate.source import Script, SourceProblem
from accelerate_migrate.suppress import skip_file


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, what a script that trains with it calls or derives from, and why it is left whole."""

    name: str
    uses: re.Pattern[str]
    reason: str


FRAMEWORKS = (
    Framework(
        "Lightning",
        re.compile(r"(?:pytorch_lightning|lightning)\.(?:.+\.)?(?:LightningModule|Trainer)"),
        "Lightning's Trainer runs the training and spreads it itself (its arguments `devices` and `strategy`)",
    ),
    Framework(
        "Fabric",
        re.compile(r"(?:lightning|lightning_fabric)\.(?:.+\.)?Fabric"),
        "Lightning Fabric does here what the accelerator would do; nothing is left to migrate",
    ),
    Framework(
        "transformers",
        re.compile(r"(?:transformers\.(?:.+\.)?(?:Seq2Seq)?Trainer|trl\.\w+Trainer)"),
        "the Trainer of transformers runs the training, on Accelerate already; start the script by a launcher",
    ),
    Framework(
        "DeepSpeed",
        re.compile(r"deepspeed\.initialize"),
        "DeepSpeed's engine runs backward and step here; take `deepspeed.initialize` out, so that model, optimizer and "
        "loader are plain ones, and migrate that",
    ),
    Framework(
        "Ray",
        re.compile(r"ray\.(?:init|remote|(?:train|tune|sgd|util\.sgd|air)\..+)"),
        "Ray starts the processes here and deals out the work; migrate what one worker runs as a script of its own",
    ),
    Framework(
        "ignite",
        re.compile(r"ignite\.(?:.+\.)?(?:Engine|create_supervised_trainer)"),
        "ignite's Engine runs the loop over the loader, and calls the training step from there; its own `idist` "
        "spreads it",
    ),
    Framework(
        "fastai",
        re.compile(r"fastai\.(?:.+\.)?(?:\w*[Ll]earner|\*\.(?:\w*[Ll]earner|fit|fit_one_cycle|fine_tune))"),
        "fastai's Learner runs the training, and spreads it by its own `distrib_ctx`",
    ),
    Framework(
        "Catalyst",
        re.compile(r"catalyst\.(?:.+\.)?\w*Runner"),
        "Catalyst's Runner runs the training, and spreads it by its own engines",
    ),
    Framework(
        "MXNet",
        re.compile(r"mxnet\.(?:.+\.)?(?:record|Trainer)"),
        "MXNet trains here, not PyTorch",
    ),
)
ACCELERATE = Framework(
    "Accelerate",
    re.compile(r"accelerate\.(?:.+\.)?Accelerator"),
    "this script uses Accelerate already; nothing is left to migrate",
)
_MENTIONED = re.compile(rb"lightning|\bTrainer\b|trl|deepspeed|\bray\b|ignite|fastai|catalyst|mxnet|accelerate\b")


def refusal(script: Script, options: Options) -> FileResult | None:
    """Why a script is left to its framework, or ``None`` where no framework trains in it."""
    if not _MENTIONED.search(script.data) or skip_file(script.data):
        return None
    try:
        tree = script.parse()
    except SourceProblem:
        return None  # said elsewhere
    # A script of Accelerate is what migrating to Accelerate gives: a second run has nothing to say about it.
    known = FRAMEWORKS if options.target is Target.ACCELERATE else (*FRAMEWORKS, ACCELERATE)
    for line, name in _used(tree):
        for framework in known:
            if framework.uses.fullmatch(name):
                return refused(script.path, script.data, UNSUPPORTED, f"not migrated: {framework.reason}", line)
    return None


def _used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The qualified names of what is called or derived from, each with its line.

    A name that may come from ``from package import *`` is ``package.*.name``.
    """
    imported: dict[str, str] = {}
    starred: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names if a.name != "*"}
            starred += [node.module] * any(a.name == "*" for a in node.names)
    for node in ast.walk(tree):
        used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        for expression in used:
            first, *rest = _parts(expression)
            if first in imported:
                yield expression.lineno, ".".join([imported[first], *rest])
            else:
                last = [first, *rest][-1]
                yield from ((expression.lineno, f"{module}.*.{last}") for module in starred)


def _parts(node: ast.expr) -> list[str]:
    """The parts of a dotted name; one that starts with something else begins with ``""``."""
    if isinstance(node, ast.Attribute):
        return [*_parts(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]
