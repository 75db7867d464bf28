"""AM260: what is left of CUDA is named."""

from __future__ import annotations

from accelerate_migrate.findings import Options, Severity
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support.migration import PREPARED, TRAINED, check_migrated


def test_the_choice_of_a_gpu_goes() -> None:
    check_migrated(
        """
         import torch
        -torch.cuda.set_device(0)
        """,
        PREPARED,
        TRAINED,
    )


def test_calls_that_do_nothing_without_cuda_stay_in_silence() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         torch.cuda.empty_cache()
         peak = torch.cuda.max_memory_allocated()
         count = torch.cuda.device_count()
        """,
    )


def test_what_waits_for_cuda_asks_for_it() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.cuda.synchronize()
        -print(torch.cuda.get_device_name(0))
        +if accelerator.device.type == "cuda":
        +    torch.cuda.synchronize()
        +    accelerator.print(torch.cuda.get_device_name(0))
        """,
    )


def test_a_call_that_needs_cuda_is_named() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         start = torch.cuda.Event(enable_timing=True)
        ! AM260 manual: needs CUDA; left as it is
        """,
    )


def test_a_call_that_asks_first_is_fine() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         if torch.cuda.is_available():
             torch.cuda.synchronize()
         start = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
         if x.is_cuda:
             torch.cuda.synchronize()
        """,
    )


def test_the_choice_of_a_gpu_takes_its_condition_with_it() -> None:
    check_migrated(
        PREPARED,
        """
         rank = len(data)
        -if torch.cuda.is_available():
        -    torch.cuda.set_device(rank)
        """,
        TRAINED,
    )


def test_a_block_for_one_gpu_is_a_block_no_more() -> None:
    check_migrated(
        PREPARED,
        """
        -with torch.cuda.device(0):
        -    z = torch.randn(8).cuda()
        -    w = z + 1
        +z = torch.randn(8).to(accelerator.device)
        +w = z + 1
        """,
        TRAINED,
    )


def test_a_synchronize_of_ones_own_stays() -> None:
    check_migrated(
        PREPARED,
        """
         def synchronize():
             return None


         synchronize()
        """,
        TRAINED,
    )


def test_what_a_person_must_act_on_is_named_again_in_the_migrated_file() -> None:
    source = """\
import torch
from accelerate_runtime import Accelerator
accelerator = Accelerator()
torch.cuda.synchronize()
if torch.cuda.is_available():
    torch.cuda.synchronize()
torch.cuda.empty_cache()
"""
    (result,) = migrate_program([Script("train.py", source.encode())], Options())
    assert result.after is None
    assert [(f.line, f.code, f.severity) for f in result.findings] == [(4, "AM260", Severity.MANUAL)]
