"""Line differences: always right, never slow."""

from __future__ import annotations

import random
import time

from accelerate_migrate.changes import Opcode, hunks, opcodes, split_lines


def patched(old: list[bytes], new: list[bytes], codes: list[Opcode]) -> list[bytes]:
    """``old`` with the opcodes applied, each one checked to begin where the last one ended."""
    result: list[bytes] = []
    at = (0, 0)
    for tag, i1, i2, j1, j2 in codes:
        assert at == (i1, j1)
        assert (tag == "equal") == (old[i1:i2] == new[j1:j2])
        result += old[i1:i2] if tag == "equal" else new[j1:j2]
        at = (i2, j2)
    assert at == (len(old), len(new))
    return result


def test_any_two_files() -> None:
    chance = random.Random(0)
    for _ in range(3000):
        old = [chance.choice([b"a", b"b", b"c", b"d"]) for _ in range(chance.randrange(10))]
        new = [chance.choice([b"a", b"b", b"c", b"d"]) for _ in range(chance.randrange(10))]
        assert patched(old, new, opcodes(old, new)) == new


def test_50_000_equal_lines_with_a_few_changes_take_no_time() -> None:
    old = [b"x = 1\n"] * 50_000
    new = [b"import a\n", *old[:20_000], b"y\n", *old[20_000:], b"z\n"]
    start = time.process_time()
    codes = opcodes(old, new)
    assert time.process_time() - start < 2
    assert [code[0] for code in codes] == ["insert", "equal", "insert", "equal", "insert"]


def test_a_rewrite_of_50_000_lines_takes_no_time() -> None:
    old = [b"%d\n" % (i % 1000) for i in range(50_000)]
    new = [b"%d\n" % (i % 999) for i in range(50_000)]
    start = time.process_time()
    assert patched(old, new, opcodes(old, new)) == new
    assert time.process_time() - start < 10


def test_hunks_keep_three_lines_around_a_change_and_join_near_ones() -> None:
    old = [b"%d\n" % i for i in range(30)]
    new = [*old[:5], b"x\n", *old[6:9], b"y\n", *old[10:25], b"z\n", *old[26:]]
    groups = list(hunks(opcodes(old, new)))
    assert [(group[0][1], group[-1][2]) for group in groups] == [(2, 13), (22, 29)]


def test_only_line_feeds_end_lines() -> None:
    assert split_lines(b"a\r\nb\rc\x0c\nd") == [b"a\r\n", b"b\rc\x0c\n", b"d"]
    assert split_lines(b"") == []
