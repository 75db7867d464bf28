"""The pipeline for one program: facts -> rules -> edits -> guard -> results."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelerate_migrate import codes, launch_config, suppress, unsupported
from accelerate_migrate.analysis.components import components
from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.launch import entries, launch_facts
from accelerate_migrate.analysis.modules import Files, Module, Program
from accelerate_migrate.analysis.plan import Plan, plan_training
from accelerate_migrate.analysis.training import Training, is_accelerator
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.units import Unit, code_apart, find_units, unit_of
from accelerate_migrate.edits import Edit, place_of
from accelerate_migrate.findings import FileResult, Finding, Options, Severity, Status, Target
from accelerate_migrate.launch_config import Inferred
from accelerate_migrate.rules.base import Context
from accelerate_migrate.rules.registry import all_rules, chosen_rules
from accelerate_migrate.source import Script, SourceProblem

# What a file must mention for any rule to act on it or to have something to say (tier 0).
_WORTH_READING = re.compile(rb"\.backward\b|cuda|DataParallel|init_process_group|\bDDP\b|GradScaler")


def migrate_program(scripts: Sequence[Script], options: Options) -> list[FileResult]:
    """Migrate the files that a run sees together; one result a script, in order. Never raises for a fault in a file."""
    by_path = {os.path.abspath(script.path): script for script in scripts}
    left = {path for path, script in by_path.items() if suppress.skip_file(script.data)}
    seeds = [path for path, script in by_path.items() if path not in left and _WORTH_READING.search(script.data)]
    results: dict[str, FileResult] = {}
    for group in components({path: script.data for path, script in by_path.items()}, seeds):
        results |= _Component([by_path[path] for path in group if path not in left], options).migrate()
    return [results.get(os.path.abspath(script.path)) or _unchanged(script) for script in scripts]


@dataclass(eq=False)
class _Component:
    """Scripts that import each other, and the results they have so far (by absolute path)."""

    scripts: list[Script]
    options: Options
    results: dict[str, FileResult] = field(default_factory=dict)
    parsed: dict[Module, Script] = field(default_factory=dict)
    skipped: dict[Module, frozenset[int]] = field(default_factory=dict)  # lines that comments keep from changes

    def migrate(self) -> dict[str, FileResult]:
        """A result for each script."""
        for script in self.scripts:
            module = self._parse(script)
            if module is not None:
                self.parsed[module] = script
                self.skipped[module] = suppress.skipped_lines(script.data)
        try:
            self._migrate()
        except RecursionError:
            for script in self.parsed.values():
                self._settle(codes.refused(script.path, script.data, codes.SOURCE, _TOO_DEEP))
        except Exception as fault:  # a fault of ours must not take the other files down
            for script in self.parsed.values():
                if self._is_open(script):
                    message = f"{type(fault).__name__}: {fault}"
                    self._settle(codes.failed(script.path, script.data, codes.INTERNAL, message))
        return self.results

    def _settle(self, result: FileResult) -> None:
        self.results[os.path.abspath(result.path)] = result

    def _is_open(self, script: Script) -> bool:
        return os.path.abspath(script.path) not in self.results

    def _parse(self, script: Script) -> Module | None:
        try:
            return Module(script.path, script.parse(), script.data)
        except SourceProblem as problem:
            self._settle(codes.refused(script.path, script.data, codes.SOURCE, problem.message, problem.line))
        except RecursionError:
            self._settle(codes.refused(script.path, script.data, codes.SOURCE, _TOO_DEEP))
        return None

    def _migrate(self) -> None:
        trains = any(b".backward" in script.data for script in self.parsed.values())
        store = Interpreter(Program(self.parsed) if trains else Program(self.parsed, steps=0))
        store.run() if trains else store.run(rounds=1)
        everything = store.program.all()
        units = find_units(Files(everything, self.parsed), store)
        for unit in list(units):
            foreign = not any(b"torch" in module.data for module in unit.modules | unit.helpers)
            if foreign or any(map(_already_migrated, unit.modules)):
                units.remove(unit)
        try:
            self._migrate_units(list(units), store)
        except RecursionError:
            raise
        except Exception:  # a fault of ours; the units that it is not about go on
            for unit in units:
                try:
                    self._migrate_units([unit], store)
                except Exception as fault:
                    self._fail(unit, fault)
        for module, script in self.parsed.items():
            if not self._is_open(script):
                continue
            if _already_migrated(module):
                training = Training(Files(everything, [module]), store)
                self._settle(_unchanged(script, _remaining(training, self.skipped[module])))
            else:
                known = store if b"torch" in script.data else None
                self._settle(_unchanged(script, unsupported.notes(module, known, self.skipped[module])))

    def _migrate_units(self, units: list[Unit], store: Interpreter) -> None:
        """Migrate all units that can be; those that cannot are refused one after another."""
        while units:
            own = {module for unit in units for module in unit.modules | unit.helpers}
            active = [m for m, script in self.parsed.items() if m in own and self._is_open(script)]
            files = Files(store.program.all(), [m for m in active if not _already_migrated(m)])
            training = Training(files, store)
            try:
                for unit in units:
                    for module in sorted(unit.modules, key=lambda m: m.path):
                        if module not in self.parsed:
                            told = (
                                f"the code that trains stands in {module.path}, which is not among the files to migrate"
                            )
                            raise Unclear(told, next(iter(module.tree.body), None))
                        unsupported.check(module, store)
                self._change(training, units)
                return
            except Unclear as unclear:
                where = files.module_of(unclear.node) if unclear.node is not None else None
                for unit in unit_of(units, where):
                    self._refuse(unit, where, unclear)
                    units.remove(unit)

    def _fail(self, unit: Unit, fault: Exception) -> None:
        """The files of a unit on which the tool failed: an error for the one that it is about, where that is known."""
        at = fault.module if isinstance(fault, _Fault) else None
        for member in sorted(unit.modules, key=lambda m: m.path):
            script = self.parsed.get(member)
            if script is None or not self._is_open(script):
                continue
            if at is None or at is member or at not in unit.modules:
                message = f"{type(fault).__name__}: {fault}" if not isinstance(fault, _Fault) else str(fault)
                self._settle(codes.failed(script.path, script.data, codes.INTERNAL, message))
            else:
                told = f"it trains together with {os.path.basename(at.path)}, on which the tool failed"
                self._settle(_refused(script, member, Unclear(told)))

    def _refuse(self, unit: Unit, module: Module | None, unclear: Unclear) -> None:
        named = module if module in self.parsed and module in unit.modules else None
        for member in unit.modules:
            script = self.parsed.get(member)
            if script is None:
                continue
            if member is named or (named is None and module is None):
                self._settle(_refused(script, member, unclear))
            elif named is None:
                assert module is not None
                told = f"in line {unclear.line} of {os.path.basename(module.path)}: {unclear.message}"
                self._settle(_refused(script, member, Unclear(told)))
            else:
                told = f"it trains together with {os.path.basename(named.path)}: {unclear.message}"
                self._settle(_refused(script, member, Unclear(told)))

    def _change(self, training: Training, units: list[Unit]) -> None:
        plan = plan_training(training)
        if plan is None:
            return
        trained = {module for unit in units for module in unit.modules}
        apart = {
            module: frozenset(line for s in found for line in range(s.lineno, (s.end_lineno or s.lineno) + 1))
            for module, found in code_apart(training, trained).items()
        }
        closed = {m: self.skipped[m] | apart.get(m, frozenset()) for m in training.module.active}
        context = Context(plan, self.options, closed)
        for rule in chosen_rules(self.options):
            context.run(rule)
        edits: dict[Module, list[Edit]] = defaultdict(list)
        for edit in context.edits:
            place = place_of(edit)
            owner = training.module.module_of(place) if place is not None else training.module.active[0]
            assert owner is not None
            edits[owner].append(edit)
        exported = training.store.exported
        after = {m: _apply(self.parsed[m], m, edits[m], exported[m]) for m in training.module.active if edits[m]}
        launched = _launch_configs(plan, units, after, self.parsed, self.options)
        for module in training.module.active:
            script = self.parsed[module]
            findings = context.findings_of(module)
            if module not in trained:
                known = unsupported.notes(module, training.store, self.skipped[module])
                said = {finding.line for finding in findings}
                open_ = [n for n in known if n.line not in said and (module not in after or n.line in apart[module])]
                findings = tuple(sorted([*findings, *open_], key=lambda f: (f.line, f.column, f.code)))
            if module not in after:
                self._settle(replace(_unchanged(script, findings), launch_config=launched.get(module)))
                continue
            self._settle(
                FileResult(
                    script.path,
                    Status.MIGRATED,
                    script.data,
                    after[module],
                    findings,
                    launched.get(module),
                    _encoding(script),
                )
            )


class _Fault(Exception):
    """A fault of ours while one file was edited."""

    def __init__(self, module: Module, fault: Exception) -> None:
        super().__init__(f"{type(fault).__name__}: {fault}")
        self.module = module


_TOO_DEEP = "The code is nested too deeply to be analysed."


def _unchanged(script: Script, findings: Sequence[Finding] = ()) -> FileResult:
    return FileResult(script.path, Status.UNCHANGED, script.data, findings=tuple(findings), encoding=_encoding(script))


def _refused(script: Script, module: Module, unclear: Unclear) -> FileResult:
    why = (unsupported.refusal(module, unclear),)
    return FileResult(script.path, Status.REFUSED, script.data, findings=why, encoding=_encoding(script))


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


def _apply(script: Script, module: Module, edits: Iterable[Edit], exported: set[str]) -> bytes:
    from accelerate_migrate.edit import guard  # libcst, only for files that change
    from accelerate_migrate.edit.apply import RoundTripError, apply_edits

    try:
        taken = _every_name(module) if "*" in exported else exported
        after = apply_edits(script.data, module.tree, list(edits), exported=taken)
    except RoundTripError as problem:
        message = f"the file cannot be edited without touching other lines: {problem}"
        raise Unclear(message, module.tree) from problem
    except Exception as fault:
        raise _Fault(module, fault) from fault
    try:
        guard.check(script.data, after)
    except guard.GuardError as fault:
        raise _Fault(module, fault) from fault
    return after


def _every_name(module: Module) -> set[str]:
    return {node.asname or node.name for node in module.walk() if isinstance(node, ast.alias)}


def _already_migrated(module: Module) -> bool:
    """Whether a file imports the accelerator, or is given one: a second run changes nothing."""
    for node in module.walk():
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr == "backward" and is_accelerator(node.value):
            return True
        else:
            continue
        if not {target.module for target in Target}.isdisjoint(name.split(".")[0] for name in names):
            return True
    return False


def _launch_configs(
    plan: Plan, units: list[Unit], changed: Iterable[Module], scripts: Mapping[Module, Script], options: Options
) -> dict[Module, str]:
    """The launch config of each file that is started to train."""
    found: dict[Module, str] = {}
    for module in entries(plan, set(changed)):
        together = {m for unit in units if module in unit.modules for m in unit.modules | unit.helpers}
        facts = launch_facts(plan, together)
        inferred = {fact.key: Inferred(fact.value, fact.line, fact.why) for fact in facts}
        found[module] = launch_config.render(scripts[module].path, inferred, options.target)
    return found
