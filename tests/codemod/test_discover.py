"""Which files a run is about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelerate_migrate.discover import Discovery, discover, worth_reading

from .conftest import git


def make(*names: str) -> None:
    for name in names:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        Path(name).write_text("import torch\n")


def paths(found: Discovery) -> list[str]:
    return [file.path for file in found.files]


def test_a_folder_is_searched_for_python_in_a_fixed_order(folder: Path) -> None:
    make("src/b.py", "src/a/z.py", "src/a.py", "src/notes.txt", "src/c.ipynb", "other.py")
    found = discover(["src"])
    assert paths(found) == ["src/a/z.py", "src/a.py", "src/b.py", "src/c.ipynb"]
    assert not found.problems
    assert len(found.programs()) == 1


@pytest.mark.parametrize(
    ("argument", "expected"), [(".", "a.py"), ("./", "a.py"), ("./a.py", "a.py"), ("a.py", "a.py")]
)
def test_paths_are_as_reached_without_the_dot(folder: Path, argument: str, expected: str) -> None:
    make("a.py")
    assert paths(discover([argument])) == [expected]


def test_an_absolute_argument_gives_absolute_paths(folder: Path) -> None:
    make("src/a.py")
    assert paths(discover([str(folder)])) == [str(folder / "src/a.py")]
    assert paths(discover([str(folder / "src/a.py")])) == [str(folder / "src/a.py")]


def test_a_file_that_is_named_twice_is_one(folder: Path) -> None:
    make("src/a.py")
    os.symlink("src", "link")
    assert paths(discover(["src", "src/a.py", "./src/../src/a.py", "link", "src/*.py"])) == ["src/a.py"]


def test_globs(folder: Path) -> None:
    make("src/a.py", "src/b.txt", "src/deep/c.py", "d.py")
    assert paths(discover(["*.py"])) == ["d.py"]
    assert paths(discover(["src/**/*.py"])) == ["src/a.py", "src/deep/c.py"]
    assert discover(["*.nope"]).problems == ["No Python file matches '*.nope'."]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(folder: Path) -> None:
    make("train[1].py", "train1.py")
    assert paths(discover(["train[1].py"])) == ["train[1].py"]


def test_what_is_missing_is_said_and_the_rest_goes_on(folder: Path) -> None:
    make("a.py")
    found = discover(["nope.py", "a.py"])
    assert paths(found) == ["a.py"]
    assert found.problems == ["There is no file or folder 'nope.py'."]


def test_a_folder_without_python(folder: Path) -> None:
    make("docs/readme.txt")
    assert discover(["docs"]).problems == ["There is no Python file in 'docs' that .gitignore does not leave out."]
    assert discover(["docs"], respect_git=False).problems == ["There is no Python file in 'docs'."]


def test_folders_of_machines_are_left_out(folder: Path) -> None:
    make("a.py", ".git/hook.py", "__pycache__/b.py", "node_modules/c.py", "env/lib/site-packages/d.py", "env/e.py")
    make("env/pyvenv.cfg")
    assert paths(discover(["."], respect_git=False)) == ["a.py"]


def test_links_are_not_followed_and_loops_do_no_harm(folder: Path) -> None:
    make("src/a.py", "elsewhere/b.py")
    os.symlink("..", "src/loop")
    os.symlink("../elsewhere", "src/outside")
    os.symlink("../elsewhere/b.py", "src/b.py")
    os.symlink("gone.py", "src/broken.py")
    assert paths(discover(["src"])) == ["src/a.py"]
    assert paths(discover(["src/b.py"])) == ["src/b.py"]


def test_exclude(folder: Path) -> None:
    make("src/a.py", "src/legacy/b.py", "src/test_c.py", "legacy.py")
    assert paths(discover(["src"], exclude=["legacy"])) == ["src/a.py", "src/test_c.py"]
    assert paths(discover(["src"], exclude=["src/legacy/"])) == ["src/a.py", "src/test_c.py"]
    assert paths(discover(["src"], exclude=["test_*.py", "legacy/**"])) == ["src/a.py"]
    assert paths(discover([str(folder / "src")], exclude=["legacy"]))[-1].endswith("test_c.py")
    assert paths(discover(["src/a.py", "legacy.py"], exclude=["legacy.py"])) == ["src/a.py"]


class TestGitignore:
    """The ignore files hold, nested ones too, unless somebody says otherwise."""

    def test_nested_files_and_exceptions(self, folder: Path) -> None:
        make("a.py", "gen/b.py", "src/c_pb2.py", "src/keep_pb2.py", "src/d.py", "src/only_here.py", "only_here.py")
        Path(".gitignore").write_text("gen/\n*_pb2.py\n")
        Path("src/.gitignore").write_text("!keep_pb2.py\n/only_here.py\n")
        assert paths(discover(["."])) == ["a.py", "only_here.py", "src/d.py", "src/keep_pb2.py"]
        assert len(paths(discover(["."], respect_git=False))) == 7

    def test_it_agrees_with_git(self, folder: Path) -> None:
        make(
            "a.py",
            "b/c.py",
            "b/d/e.py",
            "b/d/f.py",
            "out/x.py",
            "b/out/y.py",
            "w x.py",
            "#h.py",
            "build/z.py",
            "n/o/p.py",
        )
        Path(".gitignore").write_text("# note\n/out\nb/**/f.py\n\\#h.py\nw\\ x.py\nbuild\n!build/z.py\nn/*\n!n/o\n")
        Path("b/.gitignore").write_text("d/*\n!d/f.py\n")
        git("init", "-q")
        listed = git("ls-files", "--others", "--exclude-standard", "-z", "*.py").split("\0")
        assert paths(discover(["."])) == sorted(filter(None, listed), key=lambda path: path.split("/"))

    def test_the_files_above_count_within_the_repository(self, folder: Path) -> None:
        git("init", "-q")
        make("src/a.py", "src/b_pb2.py")
        Path(".gitignore").write_text("*_pb2.py\n")
        assert paths(discover(["src"])) == ["src/a.py"]

    def test_a_folder_that_is_named_is_wanted_though_it_is_ignored(self, folder: Path) -> None:
        git("init", "-q")
        make("gen/a.py")
        Path(".gitignore").write_text("gen/\n")
        assert paths(discover(["gen"])) == ["gen/a.py"]

    def test_a_file_that_is_named_is_wanted_though_it_is_ignored(self, folder: Path) -> None:
        make("a.py")
        Path(".gitignore").write_text("*.py\n")
        assert paths(discover(["a.py"])) == ["a.py"]


class TestPrograms:
    """Files that are analysed and written together."""

    @staticmethod
    def grouped(*arguments: str) -> list[list[str]]:
        return [[file.path for file in program] for program in discover(arguments).programs()]

    def test_each_folder_is_one(self, folder: Path) -> None:
        make("one/a.py", "one/deep/b.py", "two/a.py")
        assert self.grouped("one", "two") == [["one/a.py", "one/deep/b.py"], ["two/a.py"]]

    def test_a_repository_in_a_folder_is_one_of_its_own(self, folder: Path) -> None:
        make("all/a.py", "all/r/b.py", "all/r/c/d.py", "all/s/e.py")
        os.makedirs("all/r/.git")
        Path("all/s/.git").write_text("gitdir: elsewhere\n")
        assert self.grouped("all") == [["all/a.py"], ["all/r/b.py", "all/r/c/d.py"], ["all/s/e.py"]]

    def test_single_files_go_by_repository_or_folder(self, folder: Path) -> None:
        make("r/a.py", "r/c/b.py", "x/d.py", "x/e.py", "y/f.py")
        os.makedirs("r/.git")
        assert self.grouped("r/a.py", "r/c/b.py", "x/d.py", "x/e.py", "y/f.py") == [
            ["r/a.py", "r/c/b.py"],
            ["x/d.py", "x/e.py"],
            ["y/f.py"],
        ]


@pytest.mark.parametrize("data", [b"import torch\n", b"x = x.cuda()\n", b"loss.backward()\n"])
def test_worth_reading(data: bytes) -> None:
    assert worth_reading(data)
    assert not worth_reading(b"import numpy\n")
