"""Reading a script: whatever it holds, its tree or one sentence that says what is wrong and where."""

from __future__ import annotations

import codecs
import os
import pickle
import warnings
from pathlib import Path

import pytest

from accelerate_migrate.source import Script, SourceProblem

UNREADABLE = {
    "print statement": (b"import torch\nprint 'epoch', 3\n", 2, "Python 2"),
    "print of a name": (b"x = 1\nprint x\n", 2, "Python 2"),
    "print to a stream": (b"import sys\nprint >>sys.stderr, 'x'\n", None, None),  # parses as Python 3: a tuple
    "except with a comma": (b"try:\n    pass\nexcept ValueError, error:\n    print(error)\n", 3, "Python 2"),
    "backticks": (b"x = `3`\n", 1, "Python 2"),
    "exec statement": (b"exec 'x = 3'\n", 1, "Python 2"),
    "raise with a comma": (b"raise ValueError, 'x'\n", 1, "Python 2"),
    "old octal": (b"import os\nos.chmod('x', 0755)\n", 2, "Python 2"),
    "long integer": (b"x = 10L\n", 1, "Python 2"),
    "other inequality": (b"if 3 <> 4:\n    pass\n", 1, "Python 2"),
    "async argument": (b"\n\nx = x.cuda(async=True)\n", 3, "'async' as a name"),
    "async argument in the middle": (b"x = x.cuda(0, async = True)\n", 1, "'async' as a name"),
    "await as a name": (b"await = 3\n", 1, "'await' as a name"),
    "module called async": (b"from lib.async import run\n", 1, "'async' as a name"),
    "broken": (b"def f(:\n    pass\n", 1, "not valid Python"),
    "open bracket": (b"x = (1,\n", 1, "not valid Python"),
    "wrong dedent": (b"if x:\n        a\n    b\n", 3, "not valid Python"),
    "mixed tabs": (b"if x:\n\ta = 1\n        b = 2\n", 3, "not valid Python"),
    "null byte": (b"x = 1\ny = '\0'\n", 2, "binary"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0", None, "binary"),
    "utf-16": (codecs.BOM_UTF16_LE + "x = 1\n".encode("utf-16-le"), 1, "UTF-16"),
    "latin-1 that says nothing": (b"x = 1\n# caf\xe9\n", 2, "not utf-8 text"),
    "unknown coding": (b"# -*- coding: klingon -*-\nx = 1\n", 1, "'klingon'"),
    "coding that is no text": (b"# coding: rot13\nx = 1\n", 1, "'rot13'"),
    "BOM against coding": (codecs.BOM_UTF8 + b"# coding: latin-1\nx = 1\n", 1, "byte order mark"),
    "broken for its coding": (b"# coding: ascii\nx = '\xe9'\n", 2, "not ascii text"),
    "too deep brackets": (b"x = " + b"(" * 500 + b")" * 500 + b"\n", None, "nested too deeply"),
    "too deep operators": (b"x = " + b"-" * 200_000 + b"1\n", None, "nested too deeply"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_gets_one_sentence(name: str) -> None:
    data, line, words = UNREADABLE[name]
    script = Script("train.py", data)
    if words is None:
        script.parse()
        return
    with pytest.raises(SourceProblem, match=words) as caught:
        script.parse()
    assert caught.value.message.count("\n") == 0
    assert caught.value.message.endswith(".")
    if line is not None:
        assert caught.value.line == line


READABLE = {
    "empty": (b"", "utf-8", "\n"),
    "no final newline": (b"x = 1", "utf-8", "\n"),
    "CRLF": (b"x = 1\r\ny = 2\r\n", "utf-8", "\r\n"),
    "old Mac": (b"x = 1\ry = 2\r", "utf-8", "\r"),
    "BOM": (codecs.BOM_UTF8 + b"x = 1\n", "utf-8-sig", "\n"),
    "tabs": (b"if True:\n\tx = 1\n", "utf-8", "\n"),
    "latin-1": ("# -*- coding: latin-1 -*-\nx = 'café'\n".encode("latin-1"), "iso-8859-1", "\n"),
    "coding in the second line": ("#!/bin/x\n# vim: set fileencoding=cp1252 :\n# €\n".encode("cp1252"), "cp1252", "\n"),
    "form feed": (b"x = 1\n\x0c\ny = 2\n", "utf-8", "\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", READABLE)
def test_odd_but_valid_files_are_read_as_they_are(name: str) -> None:
    data, encoding, newline = READABLE[name]
    script = Script("train.py", data)
    script.parse()
    assert (script.encoding, script.newline) == (encoding, newline)
    assert script.text().encode(encoding) == data


def test_the_messages_of_the_parser_about_escapes_stay_inside() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Script("train.py", b"x = '\\d'\ny = 3 is 3\n").parse()


def test_the_old_argument_of_cuda_is_explained() -> None:
    with pytest.raises(SourceProblem, match="non_blocking"):
        Script("train.py", b"x = x.cuda(async=True)\n").parse()


def test_a_word_that_only_looks_like_a_keyword_is_no_reason() -> None:
    with pytest.raises(SourceProblem, match="not valid Python"):
        Script("train.py", b"my_async = (1,,)\n").parse()


def test_loading_says_what_is_in_the_way(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path, words in ((tmp_path / "no.py", "no such file"), (tmp_path, "folder"), (tmp_path / "pipe.py", "regular")):
        with pytest.raises(SourceProblem, match=words):
            Script.load(str(path))


def test_a_problem_survives_the_way_between_processes() -> None:
    problem = pickle.loads(pickle.dumps(SourceProblem("No.", 7)))
    assert (problem.message, problem.line) == ("No.", 7)
