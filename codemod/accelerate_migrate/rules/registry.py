"""Finds the rules: every module of this package that has a ``RULE``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from accelerate_migrate import rules
from accelerate_migrate.findings import Options
from accelerate_migrate.rules.base import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    found: list[Rule] = []
    for info in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{info.name}")
        rule = getattr(module, "RULE", None)
        if isinstance(rule, Rule):
            found.append(rule)
    return tuple(sorted(found, key=lambda r: r.code))


def chosen_rules(options: Options) -> tuple[Rule, ...]:
    """The rules that these options leave on, in the order they look. Essential rules are always on."""

    def on(rule: Rule) -> bool:
        if rule.essential:
            return True
        selected = not options.select or rule.code.startswith(options.select)
        return selected and not (options.ignore and rule.code.startswith(options.ignore))

    return tuple(sorted((r for r in all_rules() if on(r)), key=lambda r: (r.order, r.code)))
