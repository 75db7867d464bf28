"""One call of the command: what was asked becomes a run, a report and an exit code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from accelerate_migrate import __version__
from accelerate_migrate.catalogue import UnknownCode, check_codes
from accelerate_migrate.discover import Discovery, bases, discover, standard_input
from accelerate_migrate.edit.write import settle_launch_configs, write_program
from accelerate_migrate.findings import Checkpoints, FileResult, Options, Severity, Status, Target
from accelerate_migrate.report import Format, Report, View, formats
from accelerate_migrate.run import migrate_all
from accelerate_migrate.settings import SettingsProblem, load_settings


class UsageProblem(Exception):
    """The command was called in a way that cannot work; the message says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """The command line as given; ``None`` where an option was not, and its setting holds."""

    paths: tuple[str, ...]
    write: bool = False
    check: bool = False
    format: str | None = None
    output: str | None = None
    target: str | None = None
    checkpoints: str | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    respect_git: bool | None = None
    jobs: int | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def reads_stdin(self) -> bool:
        """Whether the script comes in on standard input."""
        return "-" in self.paths


def serve(request: Request) -> int:
    """Do what was asked; the exit code. ``UsageProblem`` comes before any script is touched, if it can be foreseen."""
    if request.reads_stdin and len(request.paths) > 1:
        raise UsageProblem("- (standard input) cannot be combined with other paths.")
    renderer = _renderer(request)
    _check_output(request.output)
    try:
        settings = load_settings(() if request.reads_stdin else request.paths)
        options = Options(
            target=_target(request.target or settings.target or "runtime"),
            select=check_codes(settings.select if request.select is None else request.select),
            ignore=check_codes(settings.ignore if request.ignore is None else request.ignore),
            checkpoints=_checkpoints(request.checkpoints or settings.checkpoints or "keep"),
        )
    except (UnknownCode, SettingsProblem) as problem:
        raise UsageProblem(str(problem)) from None
    respect_git = settings.respect_git if request.respect_git is None else request.respect_git
    if request.reads_stdin:
        discovery = Discovery([standard_input(sys.stdin.buffer.read())])
    else:
        exclude = settings.exclude if request.exclude is None else request.exclude
        discovery = discover(request.paths, exclude=exclude, respect_git=respect_git)
    for sentence in discovery.problems:
        _say(sentence)
    results: list[FileResult] = []
    jobs = request.jobs if request.jobs is not None else settings.jobs
    for program in migrate_all(discovery.programs(), options, jobs, tracebacks=request.verbose):
        if request.reads_stdin:  # it has no place for a launch config beside it
            program = [replace(result, launch_config=None) for result in program]
        else:
            program = settle_launch_configs(program)
            if request.write:
                program = write_program(program, respect_git=respect_git)
        results += program
    results.sort(key=lambda result: result.path.split(os.sep))
    report = Report(
        f"accelerate-migrate {__version__}", options.target, tuple(results), request.write, bases(discovery.files)
    )
    _deliver(request, renderer, report)
    return _exit_code(request, discovery, results)


def _renderer(request: Request) -> Format:
    known = formats()
    name = request.format or ("diff" if request.reads_stdin else "rich")
    if name not in known:
        raise UsageProblem(f"no format is called {name!r}; there are {', '.join(sorted(known))}.")
    return known[name]


def _target(name: str) -> Target:
    try:
        return Target(name)
    except ValueError:
        raise UsageProblem(f"--target is runtime or accelerate, not {name!r}.") from None


def _checkpoints(name: str) -> Checkpoints:
    try:
        return Checkpoints(name)
    except ValueError:
        raise UsageProblem(f"--checkpoints is keep or state, not {name!r}.") from None


def _check_output(output: str | None) -> None:
    """Find out before the work that the report will have no place."""
    if output is None:
        return
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise UsageProblem(f"--output: there is no folder {folder!r}.")
    if os.path.isdir(output):
        raise UsageProblem(f"--output: {output!r} is a folder.")
    if not os.access(output if os.path.exists(output) else folder, os.W_OK):
        raise UsageProblem(f"--output: {output!r} cannot be written.")


def _deliver(request: Request, renderer: Format, report: Report) -> None:
    """The report to its place; with ``- --write`` the migrated script to standard output."""
    if request.reads_stdin and request.write:
        result = report.results[0]
        _print(result.before if result.after is None else result.after)
    if request.output is not None:
        data = renderer.render(report, View(quiet=request.quiet, verbose=request.verbose))
        try:
            with open(request.output, "wb") as file:
                file.write(data)
        except OSError as error:
            raise UsageProblem(f"--output: the report cannot be written ({error.strerror or error}).") from None
    elif not (request.reads_stdin and request.write):
        terminal = sys.stdout.isatty()
        colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if terminal else 120
        _print(renderer.render(report, View(colour, width, request.quiet, request.verbose)))
        if renderer.NAME == "rich":
            return  # it has shown every finding already
    _say_what_matters(report.results)


def _print(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _say_what_matters(results: Sequence[FileResult]) -> None:
    """On standard error, what was left whole and why: not every format says so where a person looks."""
    for result in results:
        if result.status in (Status.REFUSED, Status.ERROR):
            for finding in result.findings:
                if finding.severity is Severity.REFUSED:
                    _say(f"{result.path}:{result.place(finding.line)}: {finding.code} {finding.message}")


def _say(message: str) -> None:
    text = f"accelerate-migrate: {message}\n"
    sys.stderr.write(text.encode("utf-8", "replace").decode("utf-8"))


def _exit_code(request: Request, discovery: Discovery, results: Sequence[FileResult]) -> int:
    if discovery.problems:
        return 2
    if any(result.status is Status.ERROR for result in results):
        return 1
    if request.check and any(
        result.status is Status.MIGRATED or any(finding.severity is Severity.MANUAL for finding in result.findings)
        for result in results
    ):
        return 1
    return 0
