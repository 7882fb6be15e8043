"""Cases and their rules, for ``supports``."""

from __future__ import annotations

from dataclasses import replace

from attnbench.cases.ids import parse_case
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.rule import Rule

RULES = {rule.name: rule for rule in attnbench_rules()}


def case_of(text: str) -> tuple[Case, Rule]:
    """The case of an id, in bfloat16 unless it says otherwise, and its rule."""
    case = parse_case(text)
    return (replace(case, dtype="bfloat16") if case.dtype == "float32" else case), RULES[case.rule]
