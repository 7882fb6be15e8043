"""Whether a canary would pass the check of the case that is open."""

from __future__ import annotations

from attnbench.check.canaries import CANARIES, canaries
from attnbench.worker.opened_case import OpenedCase


def canary_that_passes(opened: OpenedCase) -> str:
    """A canary that would pass the whole check, "" for none: such a case tells nothing.

    The plain reference must have been scored. Each canary is tried on one draw after the other, as long as it
    passes; hardly any gets beyond the first.
    """
    if opened.case.pass_ == "backward" or opened.case.dropout:
        # There is no output to compare, or none that is compared by its values.
        return ""
    left = set(CANARIES)
    for index in range(len(opened.families)):
        answers = canaries(opened.case, opened.rule, opened.wide, opened.draw(index).inputs, opened.rows)
        left = {name for name in left if opened.passes(index, answers[name])}
        if not left:
            return ""
    return min(left, key=CANARIES.index)
