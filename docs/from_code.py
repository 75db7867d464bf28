"""A Sphinx extension: the pages that come from the code, made anew in each build (git ignores them).

One page for each rule of the tool, which is what `accelerate-migrate --explain` prints; the options of both commands,
from their parsers; and for each subject of the library a page with its public names, from their docstrings.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer.main
from sphinx.application import Sphinx

from accelerate_migrate.catalogue import entries
from accelerate_migrate.cli import app as tool

OFFERS = {
    "accelerate_runtime": None,
    "accelerate_runtime.utils": None,
    "accelerate_runtime.tracking": None,
    "accelerate_runtime.logging": ("get_logger", "MultiProcessAdapter"),
    "accelerate_runtime.state": ("PartialState", "AcceleratorState", "GradientState"),
    "accelerate_runtime.local_sgd": ("LocalSGD",),
    # what a script gets from us
    "accelerate_runtime.data_loader": None,
    "accelerate_runtime.optimizer": ("AcceleratedOptimizer",),
    "accelerate_runtime.scheduler": ("AcceleratedScheduler",),
    "accelerate_runtime.checkpointing.layout": ("CheckpointError",),
}
"""Modules, and what each offers: None is its `__all__`."""

TITLES = {
    "accelerator": "Accelerator",
    "plugins": "Configuration objects",
    "strategies": "Strategies",
    "state": "Processes and states",
    "data": "Prepared loaders",
    "optimizer": "Prepared optimizers",
    "scheduler": "Prepared schedulers",
    "tracking": "Trackers",
    "collectives": "Collective operations",
    "structures": "Nested structures",
    "waiting": "Missing processes",
    "launch": "Launching from Python",
    "logging": "Logging",
    "random": "Random numbers",
    "memory": "Memory",
    "precision": "Precision",
    "models": "Models",
    "compilation": "Compilation",
    "checkpointing": "Checkpoints",
    "files": "Files",
    "progress": "Progress",
    "local_sgd": "Local SGD",
    "topology": "Kinds of distribution",
    "environment": "Environment variables",
    "availability": "What is installed",
    "versions": "Versions",
    "affinity": "CPU affinity",
}
"""Subjects, in the order of the contents; one that is not named here comes last, under its own name."""


@dataclass
class Entry:
    """A public object: its name, and the modules that offer it. Its entry stands under the first of them."""

    name: str
    modules: list[str]
    item: Any

    @property
    def path(self) -> str:
        """The name that its entry has: for a constant that where it is written, since its docstring is read there."""
        home = getattr(importlib.import_module(self.modules[0]), "_HOMES", {}).get(self.name)
        module = f"accelerate_runtime.{home}" if home and not callable(self.item) else self.modules[0]
        return f"{module}.{self.name}"

    @property
    def summary(self) -> str:
        """The first sentences of its docstring, as one line."""
        text = inspect.getdoc(self.item) if callable(self.item) else None
        return " ".join((text or "").split("\n\n")[0].split())

    def directive(self) -> str:
        """What shows it."""
        if not callable(self.item):
            return f".. autodata:: {self.path}\n   :no-value:\n"
        if not inspect.isclass(self.item):
            return f".. autofunction:: {self.path}\n"
        more = "   :undoc-members:\n" if issubclass(self.item, enum.Enum) else ""
        return f".. autoclass:: {self.path}\n{more}"


@dataclass
class Subject:
    """A module or package of the library, and what is public of it."""

    key: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def title(self) -> str:
        return TITLES.get(self.key, self.key.replace("_", " ").capitalize())


def generate(app: Sphinx) -> None:
    """Write the pages into the folder of the others; those that are as before are left alone, others go."""
    source = Path(app.srcdir)
    pages = {**rule_pages(), **option_pages(), **api_pages()}
    for folder in ("rules", "api"):
        for old in (source / folder).glob("*"):
            if f"{folder}/{old.name}" not in pages:
                old.unlink()
    for name, text in pages.items():
        path = source / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# ---- the tool


def rule_pages() -> dict[str, str]:
    """A page for each code that a report may hold, and one that lists them."""
    found = entries()
    rows = "".join(f"| [{one.code}]({one.code}.md) | {one.name} | {_cell(one.summary)} |\n" for one in found)
    index = (
        "# Rules\n\nEach rule is one kind of rewrite; its page is what `accelerate-migrate --explain CODE` prints. "
        "Codes below AM100 are findings of the tool itself.\n\n"
        f"| code | name | what it does |\n| --- | --- | --- |\n{rows}\n" + _contents(one.code for one in found)
    )
    return {"rules/index.md": index, **{f"rules/{one.code}.md": one.explain() for one in found}}


def option_pages() -> dict[str, str]:
    """The options of both commands."""
    rows = "".join(
        f"| {', '.join(f'`{text}`' for text in option.opts)} | {_cell(option.help or '')} |\n"
        for option in typer.main.get_command(tool).params
        if option.param_type_name == "option"
    )
    table = f"| option | what it does |\n| --- | --- |\n{rows}"
    return {
        "tool/options.md": f"# Options\n\n`accelerate-migrate [OPTIONS] PATHS…`\n\n{table}",
        "library/launch_options.md": f"# Options of launch\n\n```text\n{_launch_help()}```\n",
    }


def _launch_help() -> str:
    """What `accelerate-runtime launch --help` prints."""
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--help"]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "88"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _contents(names: Any) -> str:
    return "```{toctree}\n:hidden:\n\n" + "".join(f"{name}\n" for name in names) + "```\n"


# ---- the library


def public() -> list[Entry]:
    """Every public object once, by name."""
    found: dict[str, Entry] = {}
    for module, names in OFFERS.items():
        home = importlib.import_module(module)
        for name in names if names is not None else home.__all__:
            entry = found.setdefault(name, Entry(name, [], getattr(home, name)))
            assert entry.item is getattr(home, name), f"{module}.{name} is not {entry.path}"
            entry.modules.append(module)
    return sorted(found.values(), key=lambda entry: entry.name.lower())


def subjects() -> list[Subject]:
    """All subjects, each with its public objects."""
    found: dict[str, Subject] = {}
    for entry in public():
        first = importlib.import_module(entry.modules[0])
        home = getattr(first, "_HOMES", {}).get(entry.name) or entry.modules[0].partition(".")[2] or "versions"
        key = home.partition(".")[0].removesuffix("_loader")
        found.setdefault(key, Subject(key)).entries.append(entry)
    order = [*TITLES, *sorted(found.keys() - TITLES.keys())]
    return [found[key] for key in order if key in found]


def api_pages() -> dict[str, str]:
    """A page for each subject, and one that lists all names."""
    found = subjects()
    rows = "".join(f"| [{entry.name}](#{entry.path}) | {_cell(entry.summary)} |\n" for entry in public())
    index = (
        "# API reference\n\nEvery public name; its entry says where it is imported from.\n\n"
        f"| name | what it is |\n| --- | --- |\n{rows}\n" + _contents(one.key for one in found)
    )
    return {"api/index.md": index, **{f"api/{one.key}.rst": _subject_page(one) for one in found}}


def _subject_page(subject: Subject) -> str:
    parts = [f"{subject.title}\n{'=' * len(subject.title)}\n"]
    for entry in subject.entries:
        parts.append(entry.directive())
        others = [module for module in entry.modules if entry.path != f"{module}.{entry.name}"]
        if others:
            names = "".join(f'<span id="{module}.{entry.name}"></span>' for module in others)
            modules = " and ".join(f"`{module}`" for module in others)
            parts.append(f".. raw:: html\n\n   {names}\n\n`{entry.name}` is also offered by {modules}.\n")
    return "\n".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True}
