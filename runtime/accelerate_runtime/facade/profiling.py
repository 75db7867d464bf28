"""The profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from torch.profiler import profile as Profiler

    from ..plugins.profile import ProfileKwargs


class Profiling(Settings):
    """The part of an Accelerator that profiles."""

    @property
    def profile_handler(self) -> ProfileKwargs | None:
        """The ProfileKwargs of `kwargs_handlers`, or None."""
        from ..plugins.profile import ProfileKwargs

        return self._handler(ProfileKwargs)

    def profile(self, profile_handler: ProfileKwargs | None = None) -> AbstractContextManager[Profiler]:
        """A context that profiles its block and gives the `torch.profiler.profile`; see ProfileKwargs.

        Args:
            profile_handler: used instead of the ProfileKwargs among `kwargs_handlers`.
        """
        from ..plugins.profile import ProfileKwargs

        handler = profile_handler or self.profile_handler or ProfileKwargs()
        return handler.run(self.process_index)
