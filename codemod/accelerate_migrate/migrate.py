"""The pipeline for one program: facts -> rules -> edits -> guard -> results."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from accelerate_migrate import codes, launch_config, suppress, unsupported
from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.launch import launch_facts
from accelerate_migrate.analysis.modules import Module, Program
from accelerate_migrate.analysis.plan import Plan, plan_module
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import Edit, Insert, Wrap
from accelerate_migrate.findings import FileResult, Finding, Options, Severity, Status, Target
from accelerate_migrate.launch_config import Inferred
from accelerate_migrate.rules.base import Context
from accelerate_migrate.rules.registry import all_rules, chosen_rules
from accelerate_migrate.source import Script, SourceProblem

# What a file must mention for any rule to act on it or to have something to say (tier 0).
_WORTH_READING = re.compile(rb"\.backward\b|cuda|DataParallel|init_process_group|\bDDP\b|GradScaler")


def migrate_program(scripts: Sequence[Script], options: Options) -> list[FileResult]:
    """Migrate the files that a run sees together; one result a script, in order. Never raises for a fault in a file."""
    return [_migrate_file(script, options) for script in scripts]


def _migrate_file(script: Script, options: Options) -> FileResult:
    if not _WORTH_READING.search(script.data) or suppress.skip_file(script.data):
        return _unchanged(script)
    try:
        module = Module(script.path, script.parse(), script.data)
        return _migrate_module(script, module, options)
    except Unclear as unclear:
        why = (unsupported.refusal(module, unclear),)
        return FileResult(script.path, Status.REFUSED, script.data, findings=why, encoding=_encoding(script))
    except SourceProblem as problem:
        return codes.refused(script.path, script.data, codes.SOURCE, problem.message, problem.line)
    except RecursionError:
        return codes.refused(script.path, script.data, codes.SOURCE, "The code is nested too deeply to be analysed.")
    except Exception as fault:  # a fault of ours must not take the other files down
        return codes.failed(script.path, script.data, codes.INTERNAL, f"{type(fault).__name__}: {fault}")


def _migrate_module(script: Script, module: Module, options: Options) -> FileResult:
    """Migrate one file, with its neighbours on disk as its program."""
    if b"torch" not in script.data:
        return _unchanged(script, unsupported.notes(module, None, suppress.skipped_lines(script.data)))
    store = Interpreter(Program([module]))
    store.run()
    if _already_migrated(module.tree):
        return _unchanged(script, _remaining(Training(module, store), suppress.skipped_lines(script.data)))
    if Training(module, store).backwards:
        unsupported.check(module, store)
    plan = plan_module(module, store)
    if plan is None:
        return _unchanged(script, unsupported.notes(module, store, suppress.skipped_lines(script.data)))
    context = Context(plan, options, suppress.skipped_lines(script.data))
    for rule in chosen_rules(options):
        context.run(rule)
    if not context.edits:
        return _unchanged(script, context.findings)
    after = _apply(script, module, context)
    findings = sorted(dict.fromkeys(context.findings), key=lambda f: (f.line, f.column, f.code))
    return FileResult(
        script.path,
        Status.MIGRATED,
        script.data,
        after,
        tuple(findings),
        launch_config.render(script.path, _inferred(plan), options.target),
        _encoding(script),
    )


def _unchanged(script: Script, findings: Sequence[Finding] = ()) -> FileResult:
    return FileResult(script.path, Status.UNCHANGED, script.data, findings=tuple(findings), encoding=_encoding(script))


def _encoding(script: Script) -> str:
    try:
        return script.encoding
    except SourceProblem:
        return "utf-8"


def _remaining(training: Training, skipped: frozenset[int]) -> list[Finding]:
    """What a migrated file still asks of a person, by every rule that knows."""
    found: list[Finding] = []
    for rule in all_rules():
        for node, message in rule.remaining(training) if rule.remaining is not None else ():
            line = getattr(node, "lineno", 1)
            column, end = training.module.column(node), getattr(node, "end_lineno", None) or line
            if line not in skipped:
                found.append(Finding(rule.code, rule.name, Severity.MANUAL, line, column, end, message))
    return found


def _apply(script: Script, module: Module, context: Context) -> bytes:
    from accelerate_migrate.edit import guard  # libcst, only for files that change
    from accelerate_migrate.edit.apply import RoundTripError, apply_edits

    try:
        after = apply_edits(script.data, module.tree, _joined(module, context.edits))
    except RoundTripError as problem:
        raise SourceProblem(f"The file cannot be edited without touching other lines: {problem}.") from problem
    guard.check(script.data, after)
    return after


def _joined(module: Module, edits: Sequence[Edit]) -> list[Edit]:
    """The edits, with neighbouring statements that get the same header under one, unless something comes between."""
    wraps = sorted((e for e in edits if isinstance(e, Wrap)), key=lambda e: e.statements[0].lineno)
    inserted = {(e.anchor, e.after) for e in edits if isinstance(e, Insert)}
    joined: list[Wrap] = []
    for wrap in wraps:
        last = joined[-1] if joined else None
        first = wrap.statements[0]
        if last is not None and last.header == wrap.header and last.statements[-1] in module.block(first):
            block = module.block(first)
            follows = block.index(first) == block.index(last.statements[-1]) + 1
            between = (last.statements[-1], True) in inserted or (first, False) in inserted
            blank = first.lineno > (last.statements[-1].end_lineno or 0) + 1
            if follows and not between and not blank:
                joined[-1] = Wrap((*last.statements, *wrap.statements), wrap.header)
                continue
        joined.append(wrap)
    return [*(e for e in edits if not isinstance(e, Wrap)), *joined]


def _already_migrated(tree: ast.Module) -> bool:
    """Whether a file imports the accelerator: a second run changes nothing."""
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported.append(node.module or "")
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    return not {target.module for target in Target}.isdisjoint(name.split(".")[0] for name in imported)


def _inferred(plan: Plan) -> dict[str, Inferred]:
    """What the script settles of its launch config."""
    return {fact.key: Inferred(fact.value, fact.line, fact.why) for fact in launch_facts(plan)}
