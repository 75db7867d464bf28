"""Requirements that may be missing, torch first of all, and what we say then. Nothing here imports them."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

TORCH_MISSING = 'accelerate_runtime needs PyTorch, which is not installed: pip install "accelerate-migrate[torch]"'


def torch_is_installed() -> bool:
    """Whether `import torch` would find a package."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    return importlib.util.find_spec("torch") is not None


def require_torch() -> None:
    """Raise ImportError, in one line with the install command, where torch is missing."""
    if not torch_is_installed():
        raise ImportError(TORCH_MISSING)


def is_installed(package: str) -> bool:
    """Whether `import package` would find a package (a folder of that name beside the script is none)."""
    if package in sys.modules:
        return sys.modules[package] is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def require_package(*packages: str, what: str) -> None:
    """Raise ImportError, in one line with the install command, where none of `packages` is there for `what`."""
    if not any(is_installed(package) for package in packages):
        raise ImportError(f"{what} needs {packages[0]}, which is not installed: pip install {packages[0]}")


def running_as_command() -> bool:
    """Whether this process is our command line, which answers `--help` without torch and reports its absence itself."""
    if Path(sys.argv[0] if sys.argv else "").stem == "accelerate-runtime":
        return True
    words = getattr(sys, "orig_argv", [])
    return any(flag == "-m" and name.split(".")[0] == __package__ for flag, name in itertools.pairwise(words))
