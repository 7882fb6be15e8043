"""Failures in a worker as a status, a reason and a check."""

from __future__ import annotations

from attnbench.check.gradients import NoGradient
from attnbench.types.checks import Check
from attnbench.types.status import Status
from attnbench.types.words import clean, one_line

_NO_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory", "unable to allocate")


def _code(code: object) -> str:
    return clean(code) if not isinstance(code, str) else repr(clean(code))


def classify(failure: BaseException, doing: str) -> tuple[Status, str]:
    """The status of a failure while ``doing`` something ("the call"), and one line that says why."""
    words = one_line(failure)
    if isinstance(failure, MemoryError) or any(sign in words.lower() for sign in _NO_MEMORY):
        return "out_of_memory", f"{doing} ran out of memory: {words}"
    if isinstance(failure, SystemExit):
        return "crashed", f"{doing} called exit({_code(failure.code)})"
    return "error", f"{doing} raised {words}"


def check_of(failure: BaseException) -> Check:
    """Return the check that an exception of a backend's code fails; "" for most."""
    if isinstance(failure, ModuleNotFoundError):
        return "requires"
    return "graph" if isinstance(failure, NoGradient) else ""


def no_answer(answer: object) -> str:
    """Describe an invalid answer of ``supports`` or ``available``; "" for None and for a reason.

    A new author may return True for a supported case; it would otherwise count as a reason to skip.
    """
    if answer is None or (isinstance(answer, str) and answer.strip()):
        return ""
    gave = "an empty reason" if isinstance(answer, str) else f"a {type(answer).__name__}, {clean(answer)}"
    return f"gave {gave}: give None, or a reason in words"
