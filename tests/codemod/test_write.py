"""Writing: the files of one program together or not at all, and never over what could be lost."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from accelerate_migrate.edit.write import replace_together, settle_launch_configs, write_program
from accelerate_migrate.findings import FileResult, Severity, Status

from .conftest import commit_all, git


def changed(path: str, config: str | None = None) -> FileResult:
    """A result that wants ``old`` to become ``new``."""
    return FileResult(path, Status.MIGRATED, b"old\n", b"new\n", launch_config=config)


def make(*names: str) -> None:
    for name in names:
        Path(name).write_bytes(b"old\n")


def listing() -> list[str]:
    return sorted(os.listdir("."))


def test_files_and_launch_configs_are_written(folder: Path) -> None:
    make("a.py", "b.py")
    results = write_program([changed("a.py", "x: 1\n"), FileResult("b.py", Status.UNCHANGED, b"old\n")])
    assert [result.status for result in results] == [Status.MIGRATED, Status.UNCHANGED]
    assert Path("a.py").read_bytes() == b"new\n"
    assert Path("b.py").read_bytes() == b"old\n"
    assert Path("a.launch.yaml").read_text() == "x: 1\n"
    assert listing() == ["a.launch.yaml", "a.py", "b.py"]


def test_permissions_are_kept_and_new_files_follow_the_umask(folder: Path) -> None:
    make("a.py")
    os.chmod("a.py", 0o750)
    before = os.umask(0o027)
    try:
        write_program([changed("a.py", "x: 1\n")])
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat("a.py").st_mode) == 0o750
    assert stat.S_IMODE(os.stat("a.launch.yaml").st_mode) == 0o640


def test_a_link_stays_a_link(folder: Path) -> None:
    os.mkdir("src")
    make("src/a.py")
    os.symlink("src/a.py", "a.py")
    write_program([changed("a.py")])
    assert os.path.islink("a.py")
    assert Path("src/a.py").read_bytes() == b"new\n"


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_where_one_file_cannot_take_its_place_none_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    make("a.py", "b.py")
    really, calls = os.replace, []

    def fails(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == fail_at:
            raise OSError(28, "No space left on device", target)
        really(source, target)

    monkeypatch.setattr(os, "replace", fails)
    results = write_program([changed("a.py", "x: 1\n"), changed("b.py")])
    assert [result.status for result in results] == [Status.ERROR, Status.ERROR]
    assert "Nothing of this program was written: No space left on device" in results[0].findings[-1].message
    assert Path("a.py").read_bytes() == Path("b.py").read_bytes() == b"old\n"
    assert listing() == ["a.py", "b.py"]


def test_where_one_file_cannot_be_prepared_none_is_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("a.py", "b.py")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert [result.status for result in write_program([changed("a.py")])] == [Status.ERROR]
    assert listing() == ["a.py", "b.py"]


def test_an_interrupt_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("a.py", "b.py")
    really = os.replace

    def interrupted(source: str, target: str) -> None:
        if target.endswith("b.py"):
            raise KeyboardInterrupt
        really(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_together({"a.py": b"new\n", "b.py": b"new\n"})
    assert Path("a.py").read_bytes() == b"old\n"
    assert listing() == ["a.py", "b.py"]


def test_a_read_only_file_is_refused_and_the_others_are_written(folder: Path) -> None:
    make("a.py", "b.py")
    os.chmod("a.py", 0o444)
    first, second = write_program([changed("a.py", "x: 1\n"), changed("b.py")])
    assert (first.status, first.after, first.launch_config) == (Status.REFUSED, None, None)
    assert (first.findings[0].code, first.findings[0].message) == ("AM002", "Not written: it is read-only.")
    assert second.status is Status.MIGRATED
    assert [Path(name).read_bytes() for name in ("a.py", "b.py")] == [b"old\n", b"new\n"]
    assert listing() == ["a.py", "b.py"]


def test_a_read_only_folder(folder: Path) -> None:
    os.mkdir("src")
    make("src/a.py")
    os.chmod("src", 0o555)
    try:
        (result,) = write_program([changed("src/a.py")])
        assert result.findings[0].message == "Not written: its folder is read-only."
    finally:
        os.chmod("src", 0o755)


def test_a_file_that_changed_meanwhile_is_refused(folder: Path) -> None:
    Path("a.py").write_bytes(b"newer\n")
    (result,) = write_program([changed("a.py")])
    assert "changed while the tool was at work" in result.findings[0].message
    assert Path("a.py").read_bytes() == b"newer\n"


class TestGitGuard:
    """Git can bring back what is committed, so only that may be overwritten."""

    @staticmethod
    def status(path: str = "a.py", **options: bool) -> Status:
        (result,) = write_program([changed(path)], **options)
        assert Path(path).read_bytes() == (b"new\n" if result.after else b"old\n")
        return result.status

    @pytest.fixture(autouse=True)
    def _repository(self, folder: Path) -> None:
        git("init", "-q")
        Path("a.py").write_bytes(b"committed\n")
        commit_all()
        make("a.py")

    def test_a_committed_file_is_written(self) -> None:
        commit_all()
        assert self.status() is Status.MIGRATED

    def test_a_changed_file_is_refused_and_told_how(self) -> None:
        (result,) = write_program([changed("a.py")])
        assert result.status is Status.REFUSED
        assert result.findings[0].message == (
            "Not written: it has uncommitted changes; commit or stash them, or use --no-respect-git."
        )

    def test_a_staged_change_is_refused(self) -> None:
        git("add", "a.py")
        assert self.status() is Status.REFUSED

    def test_a_file_that_was_added_but_never_committed_is_refused(self) -> None:
        make("b.py")
        git("add", "b.py")
        assert self.status("b.py") is Status.REFUSED

    def test_an_untracked_file_is_written(self) -> None:
        make("b.py")
        assert self.status("b.py") is Status.MIGRATED

    def test_a_file_with_an_odd_name_in_a_folder(self) -> None:
        os.mkdir("dé p")
        name = 'dé p/t "x"\n.py'
        Path(name).write_bytes(b"committed\n")
        commit_all()
        make(name)
        assert self.status(name) is Status.REFUSED

    def test_a_link_to_a_changed_file_is_refused(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        link = tmp_path_factory.mktemp("elsewhere") / "l.py"
        link.symlink_to(Path("a.py").resolve())
        assert self.status(str(link)) is Status.REFUSED

    def test_it_can_be_overruled(self) -> None:
        assert self.status(respect_git=False) is Status.MIGRATED

    def test_the_variables_of_a_hook_do_not_mislead(
        self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path_factory.mktemp("other")
        subprocess.run(["git", "init", "-q", other], check=True)
        monkeypatch.setenv("GIT_DIR", str(other / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(other))
        assert self.status() is Status.REFUSED

    def test_where_git_cannot_say_the_file_is_left(self) -> None:
        Path(".git/HEAD").write_text("nonsense")
        (result,) = write_program([changed("a.py")])
        assert "git cannot say whether it has uncommitted changes" in result.findings[0].message

    def test_where_git_is_missing_the_file_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        (result,) = write_program([changed("a.py")])
        assert "git is not installed" in result.findings[0].message

    def test_outside_of_a_repository_there_is_no_guard(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("plain") / "a.py"
        path.write_bytes(b"old\n")
        assert self.status(str(path)) is Status.MIGRATED


class TestLaunchConfigs:
    """A launch config may hold a person's values."""

    def test_another_one_is_kept_and_said(self, folder: Path) -> None:
        Path("a.launch.yaml").write_text("num_processes: 8\n")
        (result,) = settle_launch_configs([changed("a.py", "num_processes: 1\n")])
        assert result.launch_config is None
        assert result.status is Status.MIGRATED
        (finding,) = result.findings
        assert (finding.code, finding.severity) == ("AM003", Severity.NOTE)
        assert "a.launch.yaml exists" in finding.message

    def test_the_same_one_is_no_news(self, folder: Path) -> None:
        result = changed("a.py", "num_processes: 1\n")
        Path("a.launch.yaml").write_text("num_processes: 1\n")
        assert settle_launch_configs([result]) == [result]

    def test_none_is_left_alone(self, folder: Path) -> None:
        result = replace(changed("a.py"), launch_config=None)
        assert settle_launch_configs([result]) == [result]
