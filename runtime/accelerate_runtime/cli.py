"""The command line's entry. `launch` goes its own, short way; the other commands are in `commands`."""

from __future__ import annotations

import sys

from .launch.config import ConfigError


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `accelerate-runtime`. A usage error is one line on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] == ["launch"]:
            from .launch.command import launch

            code = launch(words[1:])
        else:
            from .commands import run

            code = run(words)
    except ConfigError as error:
        sys.stderr.write(f"accelerate-runtime: error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


if __name__ == "__main__":
    main()
