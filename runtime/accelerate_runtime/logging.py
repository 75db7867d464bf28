"""Loggers that speak once for all processes."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from . import topology

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_told_once: set[tuple[Any, ...]] = set()


class MultiProcessAdapter(_Adapter):
    """A logger whose messages come from the main process only, unless they say otherwise.

    Each of its methods takes two more arguments: `main_process_only=False` logs on every process, and `in_order=True`
    on every process, one after the other (all must call it). With several processes, messages begin with the rank.

    It works before any Accelerator or PartialState exists: the launcher's environment tells who we are.
    """

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log; see this class."""
        main_process_only, in_order = kwargs.pop("main_process_only", True), kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        text, kwargs = self.process(msg, kwargs)  # type: ignore[assignment]
        if in_order:
            self._in_order(level, text, args, kwargs)
        elif not main_process_only or topology.rank() == 0:
            self.logger.log(level, text, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message as it is logged: with the caller's place, not ours, and the rank where there are several."""
        msg, kwargs = super().process(msg, kwargs)
        kwargs.setdefault("stacklevel", 2)
        return (f"[RANK {topology.rank()}] {msg}" if topology.world_size() > 1 else msg), kwargs

    def _in_order(self, level: int, msg: Any, args: tuple[Any, ...], kwargs: MutableMapping[str, Any]) -> None:
        from .collectives import wait_for_everyone

        if topology.world_size() > 1 and not topology.is_connected():
            raise RuntimeError(
                "logging with in_order=True needs processes that can wait for each other: create an Accelerator or a "
                "PartialState first."
            )
        kwargs["stacklevel"] += 1
        for turn in range(topology.world_size()):
            if turn == topology.rank():
                self.logger.log(level, msg, *args, **kwargs)
            wait_for_everyone()

    def warning_once(self, msg: object, *args: Any, **kwargs: Any) -> None:
        """`warning`, unless the same was said before."""
        said = (self.logger.name, str(msg), *map(repr, args))
        if said not in _told_once:
            _told_once.add(said)
            kwargs.setdefault("stacklevel", 3)
            self.log(logging.WARNING, msg, *args, **kwargs)


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """The logger called `name`, speaking once for all processes; see MultiProcessAdapter.

    Args:
        log_level: "DEBUG", "INFO", …, for this logger and the root one; None reads ACCELERATE_LOG_LEVEL, and where that
            is not set either, leaves levels as they are.

    Raises:
        ValueError: logging knows no such level.
    """
    level = log_level if log_level is not None else os.environ.get("ACCELERATE_LOG_LEVEL")
    logger = logging.getLogger(name)
    if level is not None:
        if not isinstance(logging.getLevelName(level.upper()), int):
            where = "log_level" if log_level is not None else "ACCELERATE_LOG_LEVEL"
            raise ValueError(f"{where}={level!r}: allowed are DEBUG, INFO, WARNING, ERROR and CRITICAL")
        logger.setLevel(level.upper())
        logging.getLogger().setLevel(level.upper())
    return MultiProcessAdapter(logger, {})
