"""One run: programs in, results out, each fault contained in its file; over several processes where that pays."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from accelerate_migrate import frameworks
from accelerate_migrate.codes import INTERNAL, SOURCE, failed, refused
from accelerate_migrate.discover import Found, worth_reading
from accelerate_migrate.findings import FileResult, Options, Status
from accelerate_migrate.notebook import Notebook
from accelerate_migrate.source import Script, SourceProblem
from accelerate_migrate.suppress import skip_file

Program = Sequence[Found]

_POOL_PAYS_FROM = 1_000_000  # bytes of source in all; below, starting processes costs more than it saves


def migrate_all(
    programs: Sequence[Program], options: Options, jobs: int | None = None, *, tracebacks: bool = False
) -> Iterator[list[FileResult]]:
    """Migrate programs, one list of results each, in order.

    Programs share nothing, so ``jobs`` of them run side by side, each in a process (``None`` chooses: the number of
    CPUs, or one where the input is small). A single program always runs in this process. Contents of files that have
    nothing to report are dropped, so that memory follows what changes and not what is read.
    """
    workers = min(len(programs), jobs if jobs is not None else _useful_jobs(programs))
    if workers <= 1:
        for program in programs:
            yield migrate_files(program, options, tracebacks=tracebacks)
        return
    with ProcessPoolExecutor(workers) as pool:
        pending = [pool.submit(migrate_files, program, options, tracebacks=tracebacks) for program in programs]
        for number, program in enumerate(programs):
            yield _outcome(pending[number], program, options)
            pending[number] = Future()


def migrate_files(program: Program, options: Options, *, tracebacks: bool = False) -> list[FileResult]:
    """Migrate the files of one program; a result a file, in order. Never raises for a fault in a file.

    ``tracebacks`` shows those of our own faults on standard error.
    """
    results: dict[str, FileResult] = {}
    scripts: list[Script] = []
    idle: list[Script] = []
    notebooks: dict[str, Notebook] = {}
    for found in program:
        outcome = _first_look(found)
        if isinstance(outcome, Notebook):
            notebooks[found.path] = outcome
            outcome = outcome.script
        if isinstance(outcome, Script):
            outcome = frameworks.refusal(outcome, options) or outcome
        if isinstance(outcome, Script):
            scripts.append(outcome)
        else:
            results[found.path] = outcome
            if outcome.status is Status.UNCHANGED and found.path.endswith(".py") and b"__name__" in outcome.before:
                idle.append(Script(found.path, outcome.before))
    if scripts:
        scripts += _starters(scripts, idle)
        for script, result in zip(scripts, _contained(scripts, options, tracebacks), strict=True):
            results[script.path] = _parsed(script) if _is_silent(result) else result
    for path, notebook in notebooks.items():
        results[path] = notebook.finished(results[path])
    return [
        _without_idle_bytes(results[found.path]) if found.data is None else results[found.path] for found in program
    ]


def _first_look(found: Found) -> Script | Notebook | FileResult:
    """A script or notebook that may concern training, or what there is to say about a file that does not."""
    data = found.data or b""
    try:
        script = Script(found.path, data) if found.data is not None else Script.load(found.path)
        data = script.data
        if found.path.endswith(".ipynb"):
            worth = found.named or worth_reading(data)
            return Notebook.read(found.path, data) if worth else FileResult(found.path, Status.UNCHANGED, data)
        script.check_bytes()
        if worth_reading(data):
            return script
        if found.named:  # somebody asked about this very file, and hears whether it could be read
            return _parsed(script)
    except SourceProblem as problem:
        return refused(found.path, data, SOURCE, problem.message, problem.line)
    return FileResult(found.path, Status.UNCHANGED, data)


def _starters(scripts: Sequence[Script], idle: Sequence[Script]) -> list[Script]:
    """The scripts that say nothing about training themselves but start it: they import what does."""
    from accelerate_migrate.analysis.components import imported_names

    names = {part for script in scripts for part in os.path.splitext(script.path)[0].split(os.sep)[-2:]}
    return [script for script in idle if not names.isdisjoint(imported_names(script.data))]


def _contained(scripts: Sequence[Script], options: Options, tracebacks: bool) -> list[FileResult]:
    """Results for each script whatever happens: where a program fails as a whole, each of its files is tried alone."""
    from accelerate_migrate.migrate import migrate_program

    try:
        results = migrate_program(scripts, options)
        if [result.path for result in results] != [script.path for script in scripts]:
            raise AssertionError("not one result for each file")
        return results
    except Exception as error:
        if len(scripts) > 1:
            return [result for script in scripts for result in _contained([script], options, tracebacks)]
        script = scripts[0]
        if isinstance(error, SourceProblem):
            return [refused(script.path, script.data, SOURCE, error.message, error.line)]
        if isinstance(error, RecursionError):
            return [refused(script.path, script.data, SOURCE, "The code is nested too deeply to be analysed.")]
        if tracebacks:
            traceback.print_exc()
        text = str(error).strip().splitlines()
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"The tool failed on this file ({type(error).__name__}{': ' + text[0] if text else ''}, "
            f"{os.path.basename(where.filename)}:{where.lineno}). This is a fault of ours; the file is untouched."
        )
        return [failed(script.path, script.data, INTERNAL, message)]


def _outcome(future: Future[list[FileResult]], program: Program, options: Options) -> list[FileResult]:
    """What a worker made of a program. Where its process died (killed, out of memory), once more in one of its own."""
    try:
        return future.result()
    except BrokenProcessPool:
        pass
    try:
        with ProcessPoolExecutor(1) as pool:
            return pool.submit(migrate_files, program, options).result()
    except BrokenProcessPool:
        message = "The process that worked on this program died (killed, or out of memory); the file is untouched."
        return [failed(found.path, b"", INTERNAL, message) for found in program]


def _parsed(script: Script) -> FileResult:
    """The result of a script with nothing to do, unless it could not be read: that is said, and not passed over."""
    try:
        if not skip_file(script.data):
            script.parse()
    except SourceProblem as problem:
        return refused(script.path, script.data, SOURCE, problem.message, problem.line)
    return FileResult(script.path, Status.UNCHANGED, script.data)


def _is_silent(result: FileResult) -> bool:
    return result.status is Status.UNCHANGED and not result.findings


def _without_idle_bytes(result: FileResult) -> FileResult:
    return replace(result, before=b"") if _is_silent(result) else result


def _useful_jobs(programs: Sequence[Program]) -> int:
    total = 0
    for program in programs:
        for found in program:
            try:
                total += os.path.getsize(found.path)
            except OSError:
                continue
            if total >= _POOL_PAYS_FROM:
                return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1
