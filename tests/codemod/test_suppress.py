"""``# accelerate-migrate: skip``: which lines a person has kept for themselves."""

from __future__ import annotations

import pytest

from accelerate_migrate.suppress import skip_file, skipped_lines

CASES = {
    "behind code": ("a\nb  # accelerate-migrate: skip\nc\n", {2}),
    "with a reason": ("a  # accelerate-migrate: skip (the old driver)\n", {1}),
    "after another comment": ("a  # noqa  # accelerate-migrate: skip\n", {1}),
    "tight": ("a #accelerate-migrate:skip\n", {1}),
    "at the end of a long call": ("a\nf(\n    x,\n    y,\n)  # accelerate-migrate: skip\nb\n", {2, 3, 4, 5}),
    "inside a long call": ("f(\n    x,  # accelerate-migrate: skip\n    y,\n)\nb\n", {1, 2, 3, 4}),
    "above a line": ("a\n# accelerate-migrate: skip\nb\nc\n", {2, 3}),
    "above an indented line": ("if a:\n    # accelerate-migrate: skip\n    b\n    c\n", {2, 3}),
    "a header covers no body": ("for a in b:  # accelerate-migrate: skip\n    c\n", {1}),
    "without a final newline": ("a  # accelerate-migrate: skip", {1}),
    "CRLF": ("a\r\nb  # accelerate-migrate: skip\r\nc\r\n", {2}),
    "in a string": ("a = '# accelerate-migrate: skip'\n", set()),
    "in a docstring": ('"""\n# accelerate-migrate: skip\n"""\n', set()),
    "another word": ("a  # accelerate-migrate: skipping\n", set()),
    "another tool": ("a  # isort: skip\n", set()),
    "skip-file is no skip": ("a  # accelerate-migrate: skip-file\n", set()),
    "before a place that does not tokenize": ("a  # accelerate-migrate: skip\nb = '''\n", {1}),
}


@pytest.mark.parametrize("name", CASES)
def test_skipped_lines(name: str) -> None:
    text, lines = CASES[name]
    assert skipped_lines(text.encode()) == lines


def test_skip_file() -> None:
    assert skip_file(b"# accelerate-migrate: skip-file\nimport torch\n")
    assert not skip_file(b"x = '# accelerate-migrate: skip-file'\n")
    assert not skip_file(b"# accelerate-migrate: skip\nimport torch\n")
    assert skip_file(
        "# coding: latin-1\n# café accelerate-migrate: skip\n# accelerate-migrate: skip-file".encode("latin-1")
    )
