"""What holds for every program that the shapes of ``support.shapes`` compose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from accelerate_migrate.findings import FileResult, Options, Status, Target
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support import shapes
from support.forks import Forks
from support.shapes import KEPT, Shape

PROGRAMS = st.builds(
    Shape,
    layout=st.sampled_from(shapes.LAYOUTS),
    device=st.sampled_from(shapes.DEVICES),
    loader=st.booleans(),
    schedule=st.sampled_from(shapes.SCHEDULES),
    clipping=st.sampled_from(shapes.CLIPPING),
    accumulates=st.booleans(),
    evaluation=st.sampled_from(shapes.EVALUATIONS),
    checkpoint=st.sampled_from(shapes.CHECKPOINTS),
    wrapper=st.sampled_from(shapes.WRAPPERS),
    scaled=st.booleans(),
    zero_first=st.booleans(),
    prints=st.booleans(),
)
TARGETS = st.sampled_from(Target)
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # a shape is small as it is; looking for a smaller one takes minutes
)


def migrated(files: dict[str, bytes], target: Target) -> dict[str, FileResult]:
    """The results for the files of one program."""
    scripts = [Script(path, data) for path, data in files.items()]
    return dict(zip(files, migrate_program(scripts, Options(target)), strict=True))


@settings(BOUNDED, max_examples=12)
@given(PROGRAMS, TARGETS, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_result_is_clean_and_final(shape: Shape, target: Target, newline: str, ends: bool) -> None:
    """Every file is migrated, what has nothing to do with it stays byte for byte, and a second run changes nothing."""
    before = {path: _spelled(text, newline, ends) for path, text in shape.files().items()}
    results = migrated(before, target)
    after = {path: result.after or before[path] for path, result in results.items()}
    assert {result.status for result in results.values()} == {Status.MIGRATED}, results
    for path, data in after.items():
        assert _unused(data.decode()) <= _unused(before[path].decode())
        assert data.count(b"\n") == data.count(newline.encode())
        assert data.endswith(b"\n") == ends
    kept = newline.join(line.replace("\n", newline) for line in KEPT)
    assert kept.encode() in after["train.py"]
    again = migrated(after, target)
    assert {path: result.after for path, result in again.items()} == dict.fromkeys(after)
    assert not {Status.ERROR, Status.REFUSED} & {result.status for result in again.values()}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    process = Forks()
    yield process
    process.close()


@pytest.mark.e2e
@settings(BOUNDED, max_examples=10)
@given(shape=PROGRAMS, target=TARGETS)
def test_one_process_trains_bit_for_bit(forks: Forks, shape: Shape, target: Target) -> None:
    """The migrated program prints the very losses, scores and sums of weights, and saves the very tensors."""
    import torch

    if shape.scaled and shape.device == "hard":
        return  # without a GPU it cannot run; on a CPU that stands in for one, the precision differs
    before = shape.files()
    results = migrated({path: text.encode() for path, text in before.items()}, target)
    with TemporaryDirectory() as name:
        old, new = Path(name, "old"), Path(name, "new")
        printed = forks.train(old, before, original=not shape.scaled)
        assert forks.train(new, {p: r.text_after() for p, r in results.items()}, original=False) == printed
        saved = [torch.load(path) for folder in (old, new) for path in sorted(folder.glob("*.pt"))]
        if saved:
            first, second = ({key.removeprefix("module."): one for key, one in state.items()} for state in saved)
            assert list(first) == list(second)
            assert all(torch.equal(first[key], second[key]) for key in first)


def _spelled(text: str, newline: str, ends: bool) -> bytes:
    return (text.rstrip("\n") + "\n" * ends).replace("\n", newline).encode()


def _unused(text: str) -> set[str]:
    """The names that a file imports, assigns or takes as parameters, and never reads; those of loops may be unread."""
    bound: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Assign):
            bound |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
    return bound - read
