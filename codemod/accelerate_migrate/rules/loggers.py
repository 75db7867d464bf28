"""AM235: lines of `logging` and loguru appear once, not once a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.library import LOGGING_METHODS
from accelerate_migrate.analysis.placement import Creation
from accelerate_migrate.edits import AddImport
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names, opening_mode
from accelerate_migrate.rules.once import to_null_device


def apply(context: Context) -> None:
    """Switch the loggers of all processes but the main one off where the accelerator is made."""
    plain, loguru = list(_logged(context)), list(_logged_by_loguru(context))
    if plain:
        _truncated_files(context)
    for creation in context.plan.placement.creations:
        tree = context.plan.module.root(creation.scope)
        switches = []
        name = _name_of(context, tree, "logging")
        if plain and name is not None:
            switches.append(f"{name}.disable({name}.WARNING)")
            context.edit(AddImport("logging", "", tree))
        switches += [f'{name}.disable("")' for name in sorted(_names_of_loguru(context, tree, loguru))]
        if switches:
            _switch_off(context, creation, [*plain, *loguru], switches)


def _names_of_loguru(context: Context, tree: ast.Module, calls: list[ast.Call]) -> set[str]:
    """What a file calls loguru's logger."""
    own = [c.func.value for c in calls if isinstance(c.func, ast.Attribute) and context.plan.module.root(c) is tree]
    return {ast.unparse(logger) for logger in own}


def _logged(context: Context) -> Iterator[ast.Call]:
    """The calls that log a line by the standard library: ``logging.info(…)``, ``logger.warning(…)``."""
    for node in context.plan.module.walk():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGING_METHODS:
            if context.may_change(node):
                names = library_names(context.plan, node.func)
                of_logger = context.plan.value(node.func.value).sites(Role.LOGGER)
                if of_logger or (names and all(n.startswith("logging.") for n in names)):
                    yield node


def _logged_by_loguru(context: Context) -> Iterator[ast.Call]:
    for call, names in library_calls(context.plan):
        if names <= {f"loguru.logger.{method}" for method in LOGGING_METHODS} and isinstance(call.func, ast.Attribute):
            if isinstance(call.func.value, ast.Name) and context.may_change(call):
                yield call


def _switch_off(context: Context, creation: Creation, calls: list[ast.Call], switches: list[str]) -> None:
    """Let statements run on all processes but the main one, right behind the accelerator's creation."""
    early = [c for c in calls if context.plan.module.function(c) is creation.scope]
    if early and context.has_accelerator(early[0]):
        context.accelerator(early[0])  # it is made in front of the first line
    name = context.plan.placement.text_in(creation)
    text = "\n    ".join([f"if not {name}.is_main_process:", *switches])
    context.after_creation.setdefault(creation, []).append(text)
    for call in early:
        if not context.has_accelerator(call):
            context.note(call, f"{short(call)}: logged by every process, the accelerator does not exist here yet")
    context.migrated(calls[0], f"the main process logs; on the others: {', '.join(switches)}")


def _truncated_files(context: Context) -> None:
    """A log file that each process would empty when it opens it is opened by the main process alone."""
    for call, names in library_calls(context.plan):
        if names == {"logging.FileHandler"} and opening_mode(call, "mode", 1) == "w" and call.args:
            path: ast.expr | None = call.args[0]
        elif names == {"logging.basicConfig"} and opening_mode(call, "filemode", None) == "w":
            named = keyword(call, "filename")
            path = named.value if named is not None else None
        else:
            continue
        if path is None or not context.may_change(call):
            continue
        if to_null_device(context, path):
            context.migrated(call, f"{short(path)}: the main process writes this file")
        else:
            context.review(call, f"{short(path)}: every process empties this file when it opens it")


def _name_of(context: Context, tree: ast.Module, module: str) -> str | None:
    """The name under which the file knows a module of the standard library, or may; ``None`` where it is another's."""
    for node in context.plan.module.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == module:
                    return alias.asname or module
    taken = any(
        (isinstance(n, ast.Name) and n.id == module and isinstance(n.ctx, ast.Store))
        or (isinstance(n, ast.arg) and n.arg == module)
        or (isinstance(n, ast.alias) and (n.asname or n.name) == module)
        for n in context.plan.module.walk(tree)
    )
    return None if taken else module


RULE = Rule(
    code="AM235",
    name="loggers",
    summary="Loggers speak on the main process; errors are logged by every process.",
    why="Every process runs the script: without this each line appears once a process. One statement behind the "
    "accelerator's creation silences them all, those of other files too.",
    before='logging.basicConfig(level=logging.INFO)\nlogging.info("training starts")',
    after="logging.basicConfig(level=logging.INFO)\naccelerator = Accelerator()\n"
    "if not accelerator.is_main_process:\n    logging.disable(logging.WARNING)\n"
    'logging.info("training starts")',
    safety="Exact on one process. Lines logged before the accelerator can exist are named.",
    apply=apply,
    order=59,
)
