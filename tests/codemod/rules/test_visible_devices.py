"""AM264: which GPUs are used is the launcher's affair."""

from __future__ import annotations

import pytest

from support.migration import PREPARED, TRAINED, check_migrated, migrate, sketch


@pytest.mark.parametrize(
    "statement",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"',
        "os.environ['CUDA_VISIBLE_DEVICES'] = str(3 % 2)",
        'os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")',
    ],
)
def test_the_variable_is_set_by_the_launcher(statement: str) -> None:
    check_migrated(
        f"""
         import os
        -{statement}
         os.environ["OMP_NUM_THREADS"] = "1"
        """,
        PREPARED,
        TRAINED,
    )


def test_the_condition_around_it_goes_as_well() -> None:
    check_migrated(
        """
         import argparse
         import os

         parser = argparse.ArgumentParser()
         parser.add_argument("--gpus", default="1")
         args = parser.parse_args()
        -if args.gpus:
        -    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
         os.environ["OMP_NUM_THREADS"] = "1"
        """,
        PREPARED,
        TRAINED,
    )


def test_what_the_flag_says_by_default_is_in_the_launch_config() -> None:
    parts = (
        """
         import argparse
         import os
         parser = argparse.ArgumentParser()
         parser.add_argument("--gpu-id", default="1")
         args = parser.parse_args()
         os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu_id
        """,
        PREPARED,
        TRAINED,
    )
    config = migrate(sketch(*parts).before).launch_config
    assert config is not None
    assert "gpu_ids: '1'" in config


def test_a_script_that_hides_every_gpu_keeps_doing_so() -> None:
    check_migrated(
        """
         import os
         os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        ! AM264 note: it stays on the CPU
        """,
        PREPARED,
        TRAINED,
    )


def test_a_variable_that_is_read_again_is_for_a_person() -> None:
    check_migrated(
        """
         import os
         os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        ! AM264 manual: is set by the launcher
         count = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        """,
        PREPARED,
        TRAINED,
    )


def test_a_variable_that_is_only_read_is_fine() -> None:
    check_migrated(
        """
         import os
         visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        """,
        PREPARED,
        TRAINED,
    )
