"""The command line: options, their checks and the order of a run. Nothing costly is imported before it is needed."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from accelerate_migrate import __version__

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_EPILOG = (
    "Settings may stand in [tool.accelerate-migrate] of pyproject.toml. The comment '# accelerate-migrate: skip' "
    "leaves a line alone, '# accelerate-migrate: skip-file' a file. Exit codes: 0 done, 1 --check found something or "
    "a file ended in an error, 2 usage error."
)


def main() -> None:
    """The console command ``accelerate-migrate``."""
    app(prog_name="accelerate-migrate")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"accelerate-migrate {__version__}")
        raise typer.Exit


def _list_rules(asked: bool) -> None:
    if asked:
        from accelerate_migrate.catalogue import listing

        typer.echo(listing(), nl=False)
        raise typer.Exit


def _explain(code: str | None) -> None:
    if code is not None:
        from accelerate_migrate.catalogue import UnknownCode, explain

        try:
            typer.echo(explain(code), nl=False)
        except UnknownCode as unknown:
            _usage_error(str(unknown))
        raise typer.Exit


def _usage_error(message: str) -> None:
    typer.echo(f"accelerate-migrate: {message}", err=True)
    raise typer.Exit(2)


Codes = list[str] | None


@app.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def accelerate_migrate(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATHS...", help="Files, folders or globs, or - for standard input.", show_default=False
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Apply the changes, and write the launch configs.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where a file would change or a person must act (for CI).")
    ] = False,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The report: rich (default), diff (for git apply) or json."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write the report there, not to standard output.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="runtime|accelerate", help="The package that migrated code imports (default: runtime)."),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="keep|state",
            help="Keep the files that training resumes from (default), or use save_state and load_state.",
        ),
    ] = None,
    select: Annotated[
        Codes, typer.Option(metavar="CODES", help="Only these rules: codes or prefixes, by commas.")
    ] = None,
    ignore: Annotated[
        Codes, typer.Option(metavar="CODES", help="Not these rules: codes or prefixes, by commas.")
    ] = None,
    list_rules: Annotated[
        bool, typer.Option("--list-rules", help="List the rules, and exit.", is_eager=True, callback=_list_rules)
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Explain a rule or finding, and exit.", is_eager=True, callback=_explain),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Leave out files that match, as in .gitignore; may be repeated."),
    ] = None,
    no_respect_git: Annotated[
        bool,
        typer.Option("--no-respect-git", help="Take files that .gitignore leaves out; overwrite uncommitted changes."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Programs (folders, repositories) worked on at a time (default: chosen)."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only what a person has to act on.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show unchanged files and tracebacks too.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Migrate plain PyTorch training code to run on any device and any number of processes.

    Without --write nothing is changed: the report shows what would be.
    """
    if not paths:
        _usage_error("no path is given; try accelerate-migrate --help.")
    from accelerate_migrate.session import Request, UsageProblem, serve

    request = Request(
        paths=tuple(paths or ()),
        write=write,
        check=check,
        format=format_,
        output=output,
        target=target,
        checkpoints=checkpoints,
        select=tuple(select) if select is not None else None,
        ignore=tuple(ignore) if ignore is not None else None,
        exclude=tuple(exclude) if exclude is not None else None,
        respect_git=False if no_respect_git else None,
        jobs=jobs,
        quiet=quiet,
        verbose=verbose,
    )
    try:
        code = serve(request)
    except UsageProblem as problem:
        _usage_error(str(problem))
    except BrokenPipeError:  # the reader of the report went away, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        typer.echo("accelerate-migrate: interrupted; no file is half written.", err=True)
        code = 130
    raise typer.Exit(code)
