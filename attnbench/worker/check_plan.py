"""What a check is made of: draws of which families, in which order."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.inputs.families import NORMAL, families_of, family_draws
from attnbench.types.case import Case
from attnbench.types.rule import Rule


def check_draws(case: Case, rule: Rule, without: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Families and numbers of the draws of the check, in the order in which they are computed.

    What is changed a little follows what it was, so that a backend may take it for the same.
    """
    named = [name for name in families_of(case, rule) if name not in without]
    if case.dropout:
        # Other families show mistakes by value. The second draw is there for what is kept of the first.
        return (NORMAL, 0), (NORMAL, 1)
    if case.pass_ == "backward":
        named = [NORMAL]
    draws = {family: [(family, number) for number in range(family_draws(case, family))] for family in named}
    normal, changed_ones = draws.pop(NORMAL), draws.pop("deep_change", [])
    paired = [
        draw for number, first in enumerate(normal) for draw in (first, *changed_ones[number : number + 1])
    ]
    return (*paired, *(draw for family in draws.values() for draw in family))
