"""The commands beside `launch`: their arguments, and nothing else. torch is imported by what needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__
from .launch.config import ConfigError
from .requirements import TORCH_MISSING, torch_is_installed

app = typer.Typer(
    help="Start training scripts on one process or many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Ask questions and write a launch config.", rich_markup_mode=None)
app.add_typer(config_app, name="config", invoke_without_command=True)


def run(words: list[str]) -> int:
    """Do what the words ask for; returns the exit code.

    Raises:
        ConfigError: they are not what they can be, or cannot be done.
    """
    try:
        code = typer.main.get_command(app).main(args=words, prog_name="accelerate-runtime", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not one of the parser's own
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
            return 2
        raise ConfigError(str(error.format_message()).replace("\n", " ")) from None
    return code if isinstance(code, int) else 0


def _config_file(help: str) -> Any:
    return typer.Option("--config_file", "--config-file", help=help)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelerate-runtime {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(
    "launch",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def _launch(context: typer.Context) -> int:
    """Start a script, with its arguments, on one process or many."""
    from .launch.command import launch

    return launch(context.args)


@config_app.callback()
def _config(
    context: typer.Context,
    config_file: Annotated[Path | None, _config_file("The file to write, instead of the default one.")] = None,
) -> None:
    if context.invoked_subcommand is None:
        from .launch.wizard import ask_and_write

        ask_and_write(config_file)


@config_app.command("default")
def _default(
    config_file: Annotated[Path | None, _config_file("The file to write, instead of the default one.")] = None,
    mixed_precision: Annotated[
        str, typer.Option("--mixed_precision", "--mixed-precision", help="no, fp16, bf16 or fp8.")
    ] = "no",
) -> None:
    """Write a launch config for this machine without asking."""
    from .launch.basic import write_basic_config
    from .launch.files import default_path

    try:
        path = write_basic_config(mixed_precision, config_file or default_path())
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if path:
        typer.echo(f"The launch config is in {path}")


@config_app.command("update")
def _update(
    config_file: Annotated[Path | None, _config_file("The file, instead of the default one.")] = None,
) -> None:
    """Bring a launch config to today's form: old keys converted, missing ones filled in."""
    from .launch.files import default_path, update_config

    path = config_file or default_path()
    update_config(path)
    typer.echo(f"The launch config in {path} is up to date")


@app.command("merge-weights")
def _merge_weights(
    checkpoint_directory: Annotated[Path, typer.Argument(help="A state, or its folder pytorch_model_fsdp_0.")],
    output_path: Annotated[Path, typer.Argument(help="The folder to write model.safetensors to.")],
    unsafe_serialization: Annotated[
        bool, typer.Option("--unsafe_serialization", "--unsafe-serialization", help="Write pytorch_model.bin instead.")
    ] = False,
    remove_checkpoint_dir: Annotated[
        bool, typer.Option("--remove_checkpoint_dir", "--remove-checkpoint-dir", help="Then remove the shards.")
    ] = False,
) -> None:
    """Write the weights of a state in shards (FSDP) as one file."""
    if not torch_is_installed():
        raise ConfigError(TORCH_MISSING)
    from .checkpointing.layout import CheckpointError
    from .checkpointing.merging import merge_fsdp_weights

    try:
        merge_fsdp_weights(checkpoint_directory, output_path, not unsafe_serialization, remove_checkpoint_dir)
    except CheckpointError as error:
        raise ConfigError(str(error)) from None
    typer.echo(f"The weights are in {output_path}")


@app.command("env")
def _env(
    config_file: Annotated[Path | None, _config_file("The launch config to show, instead of the default one.")] = None,
) -> None:
    """Show versions, devices and the launch config, to paste into a report."""
    if not torch_is_installed():
        raise ConfigError(TORCH_MISSING)
    from .launch.report import report

    typer.echo(report(config_file))


@app.command("test")
def _test(
    config_file: Annotated[Path | None, _config_file("The launch config to test, instead of the default one.")] = None,
) -> int:
    """Launch a short training as configured, and say what works."""
    from .launch.command import launch

    chosen = [] if config_file is None else ["--config_file", str(config_file)]
    return launch([*chosen, "--module", "accelerate_runtime.launch.sanity"])
