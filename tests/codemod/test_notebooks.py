"""Notebooks: one script in cells, of which nothing changes but the code that has to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from accelerate_migrate.findings import Finding, Severity, Status
from support.notebooks import (
    IMPORTS,
    ONE_OF_EACH,
    SETTING_UP,
    TRAINING,
    code,
    document,
    jupyter,
    migrate_notebook as migrate,
    sources,
)

from .conftest import Tool

PICTURE = {"data": {"image/png": "iVBORw0KGgo=", "text/plain": ["<Figure>"]}, "output_type": "display_data"}


def said(findings: tuple[Finding, ...], severity: Severity) -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in findings if finding.severity is severity]


def test_each_change_lands_in_its_cell() -> None:
    result = migrate(jupyter(*ONE_OF_EACH))
    assert result.status is Status.MIGRATED
    imports, setting_up, training = sources(result.after)
    assert imports.splitlines()[2:] == [
        "from accelerate_runtime import Accelerator",
        "from torch import nn",
        "from torch.utils.data import DataLoader, TensorDataset",
    ]
    assert setting_up.splitlines() == [
        "accelerator = Accelerator()",
        "loader = DataLoader(TensorDataset(torch.randn(96, 8), torch.randint(3, (96,))), batch_size=32)",
        "model = nn.Linear(8, 3)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    ]
    assert training.splitlines() == [
        "for x, y in loader:",
        "    optimizer.zero_grad()",
        "    loss = F.cross_entropy(model(x), y)",
        "    accelerator.backward(loss)",
        "    optimizer.step()",
    ]


def test_a_second_run_changes_nothing() -> None:
    after = migrate(jupyter(*ONE_OF_EACH)).after
    assert after is not None
    again = migrate(after)
    assert (again.status, again.after) == (Status.UNCHANGED, None)


class TestTheFile:
    """All bytes outside of changed cells are as they were, and those cells keep the style of the file."""

    @pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
    @pytest.mark.parametrize("as_text", [False, True])
    @pytest.mark.parametrize("end", ["", "\n"])
    def test_the_json_keeps_its_style(self, indent: int | str | None, as_text: bool, end: str) -> None:
        cells = [code(source) for source in ONE_OF_EACH]
        cells[0]["outputs"] = [PICTURE]
        cells.insert(
            1, {"cell_type": "markdown", "id": "a1", "metadata": {}, "source": ["# Prix: 3 €\n", "loss.backward()"]}
        )
        if as_text:
            for cell in cells:
                cell["source"] = "".join(cell["source"])
        before = document(*cells)
        result = migrate((json.dumps(before, indent=indent, sort_keys=True) + end).encode())
        assert result.after is not None
        after = json.loads(result.after)
        for old, new in zip(before["cells"], after["cells"], strict=True):
            assert isinstance(new["source"], type(old["source"]))
            assert {**new, "source": None} == {**old, "source": None}
        assert result.after == (json.dumps(after, indent=indent, sort_keys=True) + end).encode()

    def test_lines_that_stay_keep_their_very_characters(self) -> None:
        before = jupyter(*ONE_OF_EACH).replace(b"import torch\\n", b"import torch  # \\u00e9\\/ \xc3\xa9\\n")
        after = migrate(before).after
        assert after is not None
        assert b"import torch  # \\u00e9\\/ \xc3\xa9\\n" in after

    def test_new_lines_are_escaped_where_the_file_escapes(self) -> None:
        cells = [IMPORTS, SETTING_UP, TRAINING + '    print("Verlust über alles", loss.item())']
        plain, escaped = (json.dumps(document(*cells), ensure_ascii=ascii_only) for ascii_only in (False, True))
        for before, word in ((plain, "über".encode()), (escaped, b"\\u00fcber")):
            after = migrate(before.encode()).after
            assert after is not None
            assert b'accelerator.print(\\"Verlust ' + word in after

    def test_a_byte_order_mark_stays(self) -> None:
        after = migrate(b"\xef\xbb\xbf" + jupyter(*ONE_OF_EACH)).after
        assert after is not None
        assert after.startswith(b"\xef\xbb\xbf{")

    def test_windows_newlines_in_cells_stay(self) -> None:
        before = jupyter(*ONE_OF_EACH).replace(b"\\n", b"\\r\\n")
        assert all("\n" not in source.replace("\r\n", "") for source in sources(migrate(before).after))
        assert sources(migrate(before).after)[2].count("\r\n") == 4

    def test_a_cell_that_loses_all_its_code_stays_as_an_empty_one(self) -> None:
        device, rest = SETTING_UP.strip().split("\n", 1)
        result = migrate(jupyter(IMPORTS, 'print("start")', device, rest.replace("    ", ""), TRAINING))
        assert sources(result.after)[2] == ""

    def test_the_patch_applies_with_git(self, tool: Tool, folder: Path) -> None:
        (folder / "train.ipynb").write_bytes(jupyter(*ONE_OF_EACH))
        patch = tool("train.ipynb", "--format", "diff").out
        assert tool("train.ipynb", "--write").code == 0
        written = (folder / "train.ipynb").read_bytes()
        (folder / "train.ipynb").write_bytes(jupyter(*ONE_OF_EACH))
        subprocess.run(["git", "apply", "-"], input=patch, check=True)
        assert (folder / "train.ipynb").read_bytes() == written
        assert not (folder / "train.launch.yaml").exists()


class TestMagics:
    """What only IPython reads stays, byte for byte, wherever a statement can start, and only there."""

    @pytest.mark.parametrize(
        "magic",
        [
            "%matplotlib inline",
            "!pip install 'torch>=2' # it's \"needed\" (",
            "!!ls",
            "?DataLoader",
            "DataLoader??",
            "files = !ls *.pt",
            "here = %pwd",
            "!pip install \\\n    torch \\\n    numpy",
            "from __future__ import print_function",
            "if True:\n    %cd data\n    !ls",
            'text = """\n%not a magic\n"""\n%matplotlib inline',
            "numbers = [7,  # a bracket? (\n7\n%3]\n%matplotlib inline",
        ],
    )
    def test_they_stay(self, magic: str) -> None:
        result = migrate(jupyter(magic, f"{magic}\n" + IMPORTS.replace("    ", ""), SETTING_UP, TRAINING))
        assert result.status is Status.MIGRATED, result.findings
        assert sources(result.after)[0] == magic
        assert sources(result.after)[1].startswith(magic + "\n")

    def test_a_continuation_line_that_begins_with_an_operator_is_code(self) -> None:
        shown = """
    print('%d: %.4f'
          %(1, loss.item()))
"""
        result = migrate(jupyter(IMPORTS, SETTING_UP, TRAINING + shown))
        assert "accelerator.print('%d: %.4f'\n      %(1, loss.item()))" in sources(result.after)[2]

    def test_the_body_of_a_cell_that_is_timed_is_code(self) -> None:
        result = migrate(jupyter(IMPORTS, SETTING_UP, "%%time\n" + TRAINING.replace("\n    ", "\n")))
        timed = sources(result.after)[2]
        assert timed.startswith("%%time\n\nfor x, y in loader:\n")
        assert "accelerator.backward(loss)" in timed

    @pytest.mark.parametrize("magic", ["%%bash", "%%javascript", "%%html", "%%writefile net.py"])
    def test_a_cell_in_another_language_is_left_alone(self, magic: str) -> None:
        other = f"{magic}\nfor (x of y) {{ echo 'it  }}"
        result = migrate(jupyter(IMPORTS, other, SETTING_UP, TRAINING))
        assert result.status is Status.MIGRATED
        assert sources(result.after)[1] == other

    def test_training_code_in_such_a_cell_is_named(self) -> None:
        result = migrate(jupyter(IMPORTS, "%%writefile net.py\nx = 1\nx = x.cuda()", SETTING_UP, TRAINING))
        assert said(result.findings, Severity.MANUAL) == [
            (7, "`%%writefile` keeps this from being read as code of the notebook; not migrated")
        ]

    @pytest.mark.parametrize(
        "magic", ["%timeit model(torch.ones(8, device=device))", "!python use.py --device {device}", "!echo $device"]
    )
    def test_one_that_uses_what_goes_keeps_the_notebook_as_it_is(self, magic: str) -> None:
        result = migrate(jupyter(*ONE_OF_EACH, f"\n\n{magic}"))
        assert result.status is Status.REFUSED
        ((line, message),) = said(result.findings, Severity.REFUSED)
        assert f"`{magic}` uses `device`, which changes" in message
        assert result.place(line) == "cell 4:1"

    def test_one_that_uses_what_stays_does_not(self) -> None:
        result = migrate(jupyter(*ONE_OF_EACH, "%timeit model(torch.ones(8))\n!ls device"))
        assert result.status is Status.MIGRATED


class TestFindings:
    """Lines count over the code of all code cells; reports name the cell."""

    def test_a_place_is_a_cell_and_a_line_in_it(self) -> None:
        markdown = {"cell_type": "markdown", "metadata": {}, "source": ["text\n", "more"]}
        result = migrate(jupyter(markdown, IMPORTS, SETTING_UP, "", TRAINING))
        backward = next(finding for finding in result.findings if finding.code == "AM130")
        assert backward.line == 4 + 4 + 1 + 5
        assert result.place(backward.line, backward.column) == "cell 5:5:5"

    def test_the_reports_say_the_cell(self, tool: Tool, folder: Path) -> None:
        (folder / "train.ipynb").write_bytes(jupyter(*ONE_OF_EACH))
        shown = tool("train.ipynb").out.decode()
        assert "@@ -1,6 +1,5 @@ cell 3\n" in shown
        assert "train.ipynb:cell 3:5:5: " in shown
        (entry,) = json.loads(tool("train.ipynb", "--format", "json").out)["files"]
        backward = next(finding for finding in entry["findings"] if finding["code"] == "AM130")
        assert (backward["line"], backward["cell"], backward["cell_line"]) == (13, 3, 5)
        assert (entry["added"], entry["removed"], entry["launch_config"]) == (5, 4, None)

    def test_lines_in_messages_are_lines_of_cells(self) -> None:
        kept = "class Box:\n    def __init__(self, net):\n        self.net = net\n\nbox = Box(model)"
        result = migrate(jupyter(IMPORTS, SETTING_UP, kept, TRAINING))
        assert "line 9" not in str(result.findings)

    def test_that_it_trains_in_one_process_is_noted(self) -> None:
        (_, message), *_ = said(migrate(jupyter(*ONE_OF_EACH)).findings, Severity.NOTE)
        assert "notebook_launcher" in message


UNREADABLE = {
    "empty": (b"", 1, "an empty file"),
    "no JSON": (b"not JSON\n", 1, "no notebook"),
    "torn": (jupyter(*ONE_OF_EACH)[:200], None, "its JSON is broken"),
    "more behind it": (b"{}\n{}", 2, "its JSON is broken"),
    "no cells": (b"{}", 1, "no list of cells"),
    "no object": (b"[]", 1, "its JSON is broken"),
    "format 3": (b'{"nbformat": 3, "worksheets": [{"cells": []}]}', 1, "format 3"),
    "source that is no text": (b'{"cells": [\n{"cell_type": "code", "source": 3}]}', 2, "cell 1"),
    "no UTF-8": (b'{"cells": []}\n\xff', 2, "not utf-8"),
    "R": (jupyter("x <- 1", metadata={"kernelspec": {"language": "R", "name": "ir"}}), 1, "R, not Python"),
    "Julia": (jupyter("x = 1;", metadata={"language_info": {"name": "julia"}}), 1, "julia, not Python"),
    "Python 2": (jupyter(IMPORTS, "x = 1\nprint 'loss', x"), 6, "Line 2 of cell 2 is Python 2"),
    "async argument": (jupyter(IMPORTS, "x = torch.ones(1).cuda(async=True)"), 5, "non_blocking"),
    "open bracket": (jupyter("x = (1,", IMPORTS), 1, "Line 1 of cell 1 is not valid"),
    "too deep": (b'{"cells": ' + b"[" * 100_000, 1, "nested too deeply"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_gets_one_finding(name: str) -> None:
    data, line, words = UNREADABLE[name]
    result = migrate(data)
    assert (result.status, result.after, result.before) == (Status.REFUSED, None, data)
    (finding,) = result.findings
    assert words in finding.message
    assert (finding.code, finding.severity) == ("AM001", Severity.REFUSED)
    assert line in (None, finding.line)


@pytest.mark.parametrize(
    "data", [jupyter(), jupyter("", "# nothing"), jupyter("x = 1")], ids=["bare", "empty", "other"]
)
def test_what_does_not_train_stays(data: bytes) -> None:
    result = migrate(data)
    assert (result.status, result.findings) == (Status.UNCHANGED, ())


def test_cells_that_make_no_module_together_are_refused() -> None:
    result = migrate(jupyter(*ONE_OF_EACH, "return 3"))
    assert result.status is Status.REFUSED
    assert result.place(result.findings[0].line) == "cell 4:1"
