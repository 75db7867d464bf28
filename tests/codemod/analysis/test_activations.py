"""Runs that are kept from one round of the interpretation to the next."""

from __future__ import annotations

from accelerate_migrate.analysis.activations import Activation, Clock
from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.interpreter import Interpreter
from accelerate_migrate.analysis.modules import Module, Program, parse_quietly

LATE = b"""
import torch

class Trainer:
    def step(self):
        return self.optimizer.step()

    def plain(self):
        return 1

    def setup(self):
        self.optimizer = torch.optim.SGD([], lr=0.1)

trainer = Trainer()
trainer.plain()
trainer.step()
trainer.setup()
"""


def test_a_run_holds_until_something_that_it_read_changes() -> None:
    clock, inner, outer = Clock(), Activation("inner", 1), Activation("outer", 0)
    outer.inside[inner] = None
    clock.change("field")
    inner.reads["field"] = clock.now
    assert clock.holds(outer)
    clock.change("other field")
    assert clock.holds(outer)
    clock.change("field")
    assert not clock.holds(inner)
    assert not clock.holds(outer)


def test_what_is_set_later_is_seen_and_what_is_repeated_keeps_its_notes() -> None:
    module = Module("late.py", parse_quietly(LATE, "late.py"), LATE)
    interpreter = Interpreter(Program([module]))
    interpreter.run()
    step = module.tree.body[1].body[0].body[0].value.func.value  # type: ignore[attr-defined]
    assert interpreter.values[step].sites(Role.OPTIMIZER)
    one = module.tree.body[1].body[1].body[0].value  # type: ignore[attr-defined]
    assert interpreter.values[one].const() == 1
