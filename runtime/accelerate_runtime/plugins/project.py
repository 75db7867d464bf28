"""Where a project keeps its files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ProjectConfiguration:
    """Where a project keeps its files. `logging_dir` defaults to `project_dir`."""

    project_dir: str | None = None
    logging_dir: str | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | None = None) -> None:
        """Set `project_dir`, and `logging_dir` where it is not set."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir
