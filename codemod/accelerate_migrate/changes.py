"""Which lines differ between two versions of a file: one answer for counts and for diffs, in time linear in the file.

``difflib`` is quadratic where lines repeat (generated code of 50,000 lines takes hours). Here the lines that occur once
in both versions are matched first (patience), and each gap between them by Myers' greedy algorithm, which takes time in
proportion to the size of the *change*: small in a migration.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence

Opcode = tuple[str, int, int, int, int]
"""As in ``difflib``: "equal", "replace", "delete" or "insert", and start and end in the old lines and in the new."""

_FEW = 400  # more edits than this between two unique lines are a rewrite: all out, all in


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file as git and patch see them: only ``\\n`` ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def opcodes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Opcode]:
    """How ``old`` becomes ``new``."""
    start = 0
    while start < len(old) and start < len(new) and old[start] == new[start]:
        start += 1
    end = 0
    while end < len(old) - start and end < len(new) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    stop_old, stop_new = len(old) - end, len(new) - end
    pairs = [(i, i) for i in range(start)]
    i, j = start, start
    for next_i, next_j in [*_anchors(old, new, start, stop_old, stop_new), (stop_old, stop_new)]:
        pairs += [(i + x, j + y) for x, y in _kept_lines(old[i:next_i], new[j:next_j])]
        if next_i < stop_old:
            pairs.append((next_i, next_j))
        i, j = next_i + 1, next_j + 1
    pairs += [(len(old) - k, len(new) - k) for k in range(end, 0, -1)]
    return list(_opcodes(pairs, len(old), len(new)))


def hunks(codes: Sequence[Opcode], context: int = 3) -> Iterator[list[Opcode]]:
    """The opcodes in groups with some equal lines around the changes, as in a unified diff."""
    group: list[Opcode] = []
    for position, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        first, last = position == 0, position == len(codes) - 1
        if not first and not last and i2 - i1 <= 2 * context:
            group.append((tag, i1, i2, j1, j2))
            continue
        if not first:
            size = min(context, i2 - i1)
            yield [*group, (tag, i1, i1 + size, j1, j1 + size)]
        size = min(context, i2 - i1)
        group = [(tag, i2 - size, i2, j2 - size, j2)]
    if any(code[0] != "equal" for code in group):
        yield group


def _anchors(
    old: Sequence[bytes], new: Sequence[bytes], start: int, stop_old: int, stop_new: int
) -> list[tuple[int, int]]:
    """The lines that occur once in both middles, as the longest run of pairs that keeps its order."""
    count_old, count_new = Counter(old[start:stop_old]), Counter(new[start:stop_new])
    place = {new[j]: j for j in range(start, stop_new) if count_new[new[j]] == 1}
    pairs = [(i, place[old[i]]) for i in range(start, stop_old) if count_old[old[i]] == 1 and old[i] in place]
    tails: list[int] = []  # the smallest last j of an increasing run, by length
    tail_pair: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect.bisect_left(tails, j)
        before.append(tail_pair[length - 1] if length else -1)
        tails[length : length + 1] = [j]
        tail_pair[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = tail_pair[-1] if tail_pair else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _kept_lines(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """The pairs of equal lines of a shortest edit script (Myers 1986); none where it would be long."""
    n, m = len(old), len(new)
    if not n or not m:
        return []
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    reach: dict[int, int] = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(n + m, _FEW) + 1):
        trail.append({k: reach[k] for k in range(-edits - 1, edits + 2) if k in reach})
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(trail, n, m)
    return []


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, k = trail[edits], x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before_k = k + 1 if down else k - 1
        before_x = reach[before_k] if edits else 0
        before_y = before_x - before_k if edits else 0
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            kept.append((x, y))
        x, y = before_x, before_y
    return kept[::-1]


def _opcodes(pairs: list[tuple[int, int]], n: int, m: int) -> Iterator[Opcode]:
    i = j = 0
    position = 0
    while position <= len(pairs):
        next_i, next_j = pairs[position] if position < len(pairs) else (n, m)
        if next_i > i or next_j > j:
            tag = "replace" if next_i > i and next_j > j else "delete" if next_i > i else "insert"
            yield tag, i, next_i, j, next_j
        run = position
        while run < len(pairs) and pairs[run] == (next_i + run - position, next_j + run - position):
            run += 1
        if run > position:
            yield "equal", next_i, next_i + run - position, next_j, next_j + run - position
        i, j = next_i + run - position, next_j + run - position
        position = max(run, position + 1)
