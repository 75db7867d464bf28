"""``python -m accelerate_migrate``: the command, where its script is not on the path."""

from __future__ import annotations

from accelerate_migrate.cli import main

if __name__ == "__main__":
    main()
