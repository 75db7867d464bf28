"""Progress bars that appear once."""

from __future__ import annotations

from typing import Any

from . import topology
from .requirements import require_package


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """A `tqdm.auto.tqdm` that is shown by the first process of each machine only. Needs no Accelerator.

    Args:
        args, kwargs: tqdm's own arguments; `disable=True` hides the bar everywhere.
        main_process_only: False shows the bar of every process.

    Raises:
        ImportError: tqdm is not installed.
        ValueError: the first argument is True or False, as in an older API.
    """
    require_package("tqdm", what="accelerate_runtime.utils.tqdm")
    if args and isinstance(args[0], bool):
        raise ValueError(f"tqdm({args[0]}, ...): pass main_process_only={args[0]} by name, and the iterable first")
    from tqdm.auto import tqdm as bar

    hidden = kwargs.pop("disable", False)
    if main_process_only and topology.local_rank() != 0:
        hidden = True
    return bar(*args, disable=hidden, **kwargs)
