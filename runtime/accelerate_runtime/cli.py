"""The command line: its arguments, and nothing else. torch is imported by what needs it, once it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__
from .requirements import TORCH_MISSING, torch_is_installed

app = typer.Typer(
    help="Start training scripts on one process or many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `accelerate-runtime`. A usage error is one line on standard error and exit code 2."""
    from .launch.config import ConfigError

    try:
        code = typer.main.get_command(app).main(args=arguments, prog_name="accelerate-runtime", standalone_mode=False)
    except ConfigError as error:
        _fail(str(error))
    except Exception as error:
        if not hasattr(error, "format_message"):  # not one of the parser's own
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
            sys.exit(2)
        _fail(str(error.format_message()).replace("\n", " "))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    sys.stderr.write(f"accelerate-runtime: error: {message}\n")
    sys.exit(2)


def _flag(name: str, help: str, *more: str) -> Any:
    """An option spelled with underscores, as Accelerate's, and with dashes."""
    spellings = [f"--{name}"] + ([f"--{name.replace('_', '-')}"] if "_" in name else [])
    return typer.Option(*spellings, *more, help=help)


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


@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    script: Annotated[str, typer.Argument(help="The training script, or with -m a module.")],
    script_args: Annotated[list[str] | None, typer.Argument(help="Its own arguments.")] = None,
    config_file: Annotated[str | None, _flag("config_file", "A launch config (YAML).")] = None,
    cpu: Annotated[bool, _flag("cpu", "Train on the CPU.")] = False,
    multi_gpu: Annotated[bool, _flag("multi_gpu", "Train on several GPUs.")] = False,
    num_processes: Annotated[int | None, _flag("num_processes", "Processes over all machines.")] = None,
    mixed_precision: Annotated[str | None, _flag("mixed_precision", "no, fp16 or bf16.")] = None,
    num_machines: Annotated[int | None, _flag("num_machines", "Machines that train together.")] = None,
    machine_rank: Annotated[int | None, _flag("machine_rank", "This machine's rank, from 0.")] = None,
    main_process_ip: Annotated[str | None, _flag("main_process_ip", "Address of machine 0.")] = None,
    main_process_port: Annotated[
        int | None, _flag("main_process_port", "Port to meet at; a free one if left out.")
    ] = None,
    gpu_ids: Annotated[str | None, _flag("gpu_ids", "GPUs to use: all, or 0,1,…")] = None,
    num_cpu_threads_per_process: Annotated[
        int | None, _flag("num_cpu_threads_per_process", "Threads of each process.")
    ] = None,
    gradient_accumulation_steps: Annotated[
        int | None, _flag("gradient_accumulation_steps", "Micro-batches per optimizer step.")
    ] = None,
    module: Annotated[bool, _flag("module", "The script is a module, as with python -m.", "-m")] = False,
) -> int:
    """Start SCRIPT with its arguments, on one process or many. A flag wins over the config file."""
    from .launch.config import ConfigError, LaunchConfig, read_config, resolve

    flags = LaunchConfig(
        distributed_type="MULTI_GPU" if multi_gpu else None,
        mixed_precision=mixed_precision,
        use_cpu=True if cpu else False if multi_gpu else None,
        num_processes=num_processes,
        num_machines=num_machines,
        machine_rank=machine_rank,
        main_process_ip=main_process_ip,
        main_process_port=main_process_port,
        gpu_ids=gpu_ids,
        gradient_accumulation_steps=gradient_accumulation_steps,
        num_cpu_threads_per_process=num_cpu_threads_per_process,
    )
    if cpu and multi_gpu:
        raise ConfigError("--cpu and --multi_gpu cannot go together")
    flags.check("command line")
    config = flags.over(read_config(Path(config_file))) if config_file is not None else flags
    if not module and not Path(script).is_file():
        what = "is a folder" if Path(script).is_dir() else "does not exist"
        raise ConfigError(f"script {script} {what}")
    if not torch_is_installed():
        raise ConfigError(TORCH_MISSING)
    from .launch.start import start

    plan = resolve(config, _device_count)
    return start(plan, [*(["-m"] if module else []), script, *(script_args or [])])


def _device_count() -> int:
    import torch

    return torch.accelerator.device_count()


@app.command()
def env() -> int:
    """Show versions and devices, to paste into a report."""
    import platform

    if not torch_is_installed():
        _fail(TORCH_MISSING)
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count()
    for name, value in (
        ("accelerate-runtime", __version__),
        ("Python", platform.python_version()),
        ("platform", platform.platform()),
        ("torch", torch.__version__),
        ("accelerator", "none (CPU)" if device is None else f"{count} x {device.type}"),
        ("distributed backends", ", ".join(_backends()) or "none"),
    ):
        typer.echo(f"{name + ':':22}{value}")
    return 0


def _backends() -> list[str]:
    import torch.distributed as dist

    if not dist.is_available():
        return []
    known = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
    return [name for name, available in known.items() if available()]


if __name__ == "__main__":
    main()
