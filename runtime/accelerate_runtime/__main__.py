"""`python -m accelerate_runtime` is the `accelerate-runtime` command."""

from .cli import main

main()
