"""The traps of traps.py at two processes."""

from __future__ import annotations

import traps
from both import accelerator


def check_split_batches_in_the_constructor_is_honoured() -> None:
    traps.split_batches_in_the_constructor_is_honoured(accelerator)


def check_a_loader_that_is_sharded_is_not_sharded_again() -> None:
    traps.a_loader_that_is_sharded_is_not_sharded_again(accelerator)


def check_preparing_again_changes_nothing() -> None:
    traps.preparing_again_changes_nothing(accelerator)


def check_what_cannot_be_prepared_is_refused() -> None:
    traps.what_cannot_be_prepared_is_refused(accelerator)


def check_a_frozen_model_is_prepared() -> None:
    traps.a_frozen_model_is_prepared(accelerator)


def check_a_metric_scheduler_steps_once_a_call() -> None:
    traps.a_metric_scheduler_steps_once_a_call(accelerator)


def check_uneven_inputs_are_joined() -> None:
    traps.uneven_inputs_are_joined(accelerator)


def check_leaving_one_loop_disturbs_no_other() -> None:
    traps.leaving_one_loop_disturbs_no_other(accelerator)


def check_zero_grad_may_stand_at_the_top() -> None:
    traps.zero_grad_may_stand_at_the_top(accelerator)


def check_attributes_and_methods_are_there_on_any_number_of_processes() -> None:
    traps.attributes_and_methods_are_there_on_any_number_of_processes(accelerator)


def check_a_device_is_compared_by_its_type() -> None:
    traps.a_device_is_compared_by_its_type(accelerator)


def check_a_gradient_may_be_passed_by_position() -> None:
    traps.a_gradient_may_be_passed_by_position(accelerator)
