"""Each fixture script trains after its migration as it did before: on one process bit for bit, on two in step."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from accelerate_migrate.findings import Checkpoints, Target
from accelerate_migrate.verify.compare import compare, in_step, losses, one_process_view
from accelerate_migrate.verify.run import Run
from support.cases import CASES, Case, texts
from support.training import numbers, printed, train

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Trained:
    """A case trained on one process, before and after; ``script`` and ``config`` are what the migration made."""

    case: Case
    original: Path
    script: Path
    config: Path
    before: list[Run]
    after: list[Run]


KEEPING = [case for case in CASES if case.checkpoints is Checkpoints.KEEP]  # the others have a test of their own


@pytest.fixture(scope="module", params=KEEPING, ids=lambda case: case.name)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    case: Case = request.param
    results = case.migrate()
    launch_config = results["train.py"].launch_config
    assert launch_config is not None
    old, new = tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("after")
    original, script, config = old / "train.py", new / "train.py", new / "train.launch.yaml"
    write(old, case.before)
    write(new, texts(results))
    config.write_text(launch_config, encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(train, original, case.one.runs, original=True)
        after = pool.submit(train, script, case.one.runs)
        return Trained(case, original, script, config, before.result(), after.result())


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files of a program into a folder."""
    for name, text in files.items():
        (folder / name).write_bytes(text)


def test_one_process_is_bit_identical(trained: Trained) -> None:
    for before, after in zip(trained.before, trained.after, strict=True):
        result = compare(before.traces[0], after.traces[0])
        assert result.events > 0
        assert result.identical, result
        assert after.stdout == before.stdout


def test_under_accelerate_it_trains_the_same(trained: Trained, tmp_path: Path) -> None:
    """With ``--target accelerate`` the result runs under Accelerate itself, bit for bit as the original."""
    write(tmp_path, texts(trained.case.migrate(Target.ACCELERATE)))
    for before, after in zip(trained.before, train(tmp_path / "train.py", trained.case.one.runs), strict=True):
        compared = compare(before.traces[0], after.traces[0])
        assert compared.events > 0
        assert compared.identical, compared


def test_saved_files_are_the_same(trained: Trained) -> None:
    """The migrated script leaves files of the same names, with equal contents."""
    before, after = saved_files(trained.original.parent), saved_files(trained.script.parent)
    assert sorted(before) == sorted(after)
    for name, contents in before.items():
        assert_equal(after[name], contents, name)


def saved_files(folder: Path) -> dict[str, Any]:
    """What ``torch.save`` left in a folder, by relative path."""
    files = [f for f in sorted(folder.rglob("*")) if f.suffix in (".pt", ".pth", ".th", ".tar", ".ckpt")]
    return {str(f.relative_to(folder)): contents(f) for f in files}


def contents(file: Path) -> Any:
    """What a file holds; of a pickled module, whose class only its script knows, the bytes of its tensors."""
    try:
        return torch.load(file, weights_only=False)
    except AttributeError:
        with zipfile.ZipFile(file) as archive:
            return {n.split("/", 1)[1]: archive.read(n) for n in archive.namelist() if "/data/" in n}


def assert_equal(found: Any, wanted: Any, where: str) -> None:
    """Fail where two nested values differ in type, keys or a single bit of a tensor.

    The prefix ``module.`` of a model that the original wrapped in DataParallel is no longer written.
    """
    assert type(found) is type(wanted), where
    if isinstance(wanted, torch.Tensor):
        assert torch.equal(found, wanted), where
    elif isinstance(wanted, Mapping):
        assert list(found) == [k.removeprefix("module.") if isinstance(k, str) else k for k in wanted], where
        for key, one in zip(wanted, found.values(), strict=True):
            assert_equal(one, wanted[key], f"{where}[{key!r}]")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), where
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_equal(one, other, f"{where}[{index}]")
    else:
        assert found == wanted, where


def test_two_processes(trained: Trained, tmp_path: Path) -> None:
    case = trained.case
    runs = train(trained.script, case.two.runs, cwd=tmp_path, processes=2, config=trained.config)
    for one, two in zip(trained.after, runs, strict=True):
        ranks = in_step(two.traces)
        assert ranks.events > 0
        assert not ranks.parted
        assert ranks.difference <= 1e-6
        if case.two.losses is not None:
            result = compare(one.traces[0], one_process_view(two.traces))
            assert not result.parted
            assert losses(one_process_view(two.traces)) == pytest.approx(losses(one.traces[0]), rel=case.two.losses)
            assert len(printed(two)) == len(printed(one)), f"lines printed more than once:\n{two.stdout}"
        if case.two.lines is not None:
            lines, expected = printed(two, case.two.lines), printed(one, case.two.lines)
            assert expected, f"no line matches {case.two.lines!r}"
            assert len(lines) == len(expected), two.stdout
            for line, wanted in zip(lines, expected, strict=True):
                assert numbers(line) == pytest.approx(numbers(wanted), rel=1e-3), line


def test_checkpoints_of_the_original_resume(trained: Trained, tmp_path: Path) -> None:
    """A file that the original wrote continues in the migrated script, exactly as it would in the original."""
    first, *rest = trained.case.one.runs
    if not rest:
        pytest.skip("this script resumes nothing")
    train(trained.original, [first], cwd=tmp_path, original=True)
    resumed = train(trained.script, rest, cwd=tmp_path)
    for before, after in zip(trained.before[1:], resumed, strict=True):
        result = compare(before.traces[0], after.traces[0])
        assert result.events > 0
        assert result.identical, result
