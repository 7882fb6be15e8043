"""Asking a backend's ``supports``, which is its author's code: all it does is an answer or a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.words import clean, one_line
from attnbench.worker.failures import no_answer

LONGEST = 200
"""Characters of a reason that a table still has room for."""


RAISES_NOTHING = "It is asked about any case: give the reason as a string, or None, and raise nothing."


@dataclass(frozen=True)
class Answer:
    """reason: why a case is declined, None where it's taken. fault: what is wrong with the answer itself, ""
    for nothing; do: what to do about that."""

    reason: str | None
    fault: str = ""
    do: str = ""


def ask(backend: Backend, case: Case, rule: Rule) -> Answer:
    """What ``supports`` says of a case, asked twice.

    Where it raises the case counts as taken, and a run then fails. What is neither None nor a reason in words
    declines it here; a run refuses that, and says the same.
    """
    first, again = _ask(backend.supports, case, rule), _ask(backend.supports, case, rule)
    if not first.fault and not again.fault and (first.reason is None) != (again.reason is None):
        return Answer(
            first.reason,
            "supports() takes a case when it is asked once and declines it when it is asked again",
            "Let its answer depend on the case and the rule alone: it is asked in several processes.",
        )
    return first


def _ask(supports: Callable[[Case, Rule], str | None], case: Case, rule: Rule) -> Answer:
    try:
        reason: object = supports(case, rule)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return Answer(
            None,
            f"supports() raised {one_line(failure)}",
            RAISES_NOTHING,
        )
    if reason is None:
        return Answer(None)
    if fault := no_answer(reason):
        return Answer(clean(reason), f"supports() {fault}", RAISES_NOTHING)
    reason = str(reason)
    if len(reason) > LONGEST or "\n" in reason:
        return Answer(
            reason,
            f"supports() gave a reason of {len(reason)} characters, {len(reason.splitlines())} lines",
            f"Say it on one line of at most {LONGEST} characters.",
        )
    return Answer(reason)
