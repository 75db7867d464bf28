"""What holds of a migration whatever the rules do: bytes, suppression, both targets, the choice of rules."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Status, Target
from support.migration import PREPARED, TRAINED, check_migrated, check_unchanged, migrate, migrated, sketch

SCRIPT = sketch(
    PREPARED,
    TRAINED,
    """
    -if x.sum() > 0:
    -    torch.save(model.state_dict(), "net.pt")  # the best
    +if x.sum() > 0:
    +    accelerator.save(accelerator.get_state_dict(model), "net.pt")  # the best
    """,
)


def test_windows_newlines_stay() -> None:
    assert migrated(SCRIPT.before.replace("\n", "\r\n")) == SCRIPT.after.replace("\n", "\r\n")


def test_tabs_stay() -> None:
    assert migrated(SCRIPT.before.replace("    ", "\t")) == SCRIPT.after.replace("    ", "\t")


def test_a_missing_last_newline_stays_missing() -> None:
    assert migrated(SCRIPT.before.rstrip("\n")) == SCRIPT.after.rstrip("\n")


def test_a_byte_order_mark_stays() -> None:
    result = migrate(b"\xef\xbb\xbf" + SCRIPT.before.encode())
    assert result.after == b"\xef\xbb\xbf" + SCRIPT.after.encode()


def test_another_encoding_stays() -> None:
    head = "# coding: latin-1\n# caf\xe9\n"
    result = migrate((head + SCRIPT.before).encode("latin-1"))
    assert result.after == (head + SCRIPT.after).encode("latin-1")


def test_the_target_changes_the_import_alone() -> None:
    text = migrated(SCRIPT.before, target=Target.ACCELERATE)
    assert text.replace("from accelerate import", "from accelerate_runtime import") == migrated(SCRIPT.before).replace(
        "from accelerate import", "from accelerate_runtime import"
    )
    assert "from accelerate import Accelerator\n" in text


@pytest.mark.parametrize("target", Target)
def test_a_second_run_changes_nothing_for_either_target(target: Target) -> None:
    once = migrated(SCRIPT.before, target=target)
    for again in Target:
        assert migrate(once, target=again).status is Status.UNCHANGED


def test_a_migrated_script_has_a_launch_config_and_another_has_none() -> None:
    assert migrate(SCRIPT.before).launch_config_path == "train.launch.yaml"
    assert migrate("import torch\n").launch_config_path is None


def test_a_file_can_ask_to_be_left() -> None:
    check_unchanged("# accelerate-migrate: skip-file\n" + SCRIPT.before)


def test_the_same_words_in_a_string_ask_for_nothing() -> None:
    check_migrated('note = "# accelerate-migrate: skip-file"', PREPARED, TRAINED)


def test_essential_rules_take_part_whatever_is_ignored() -> None:
    check_migrated(PREPARED, TRAINED, ignore=["AM1"])


def test_selecting_a_rule_leaves_the_others_out() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         print("done")
        -torch.save(model.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        """,
        select=["AM150"],
    )


def test_a_file_without_torch_has_no_findings() -> None:
    check_unchanged("print('no tensors here')")


def test_a_script_that_only_evaluates_is_named_not_changed() -> None:
    check_unchanged(
        """
         import torch
         from torch import nn

         model = nn.Linear(8, 3).cuda()
        ! AM900 note: moves to CUDA in a file that does not train by itself
        """
    )


def test_a_script_that_does_not_parse_is_refused_with_its_line() -> None:
    result = migrate("import torch\nloss.backward()\nprint 'python 2'\n")
    assert (result.status, result.after) == (Status.REFUSED, None)
    assert [f.line for f in result.findings] == [3]


def test_findings_are_in_the_order_of_lines_and_count_from_one() -> None:
    findings = migrate(SCRIPT.before).findings
    assert [f.line for f in findings] == sorted(f.line for f in findings)
    backward = next(f for f in findings if f.code == "AM130")
    assert SCRIPT.before.split("\n")[backward.line - 1][backward.column - 1 :].startswith("loss.backward()")


def test_columns_count_characters() -> None:
    result = migrate(SCRIPT.before.replace("    loss.backward()", '    "é"; loss.backward()'))
    assert [f.column for f in result.findings if f.code == "AM130"] == [10]
