"""Failures in a worker, as a status, a reason and a check."""

from __future__ import annotations

import traceback

from attnbench.ipc.messages import Failed
from attnbench.types.status import Check, Status
from attnbench.types.words import clean, one_line
from attnbench.worker.gradients import NoGradient

_LONGEST_TRACE = 8000
_NO_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory", "unable to allocate")


class Refused(Exception):  # noqa: N818
    """A request ended with a status, a reason and, if a check failed, its name."""

    def __init__(self, status: Status, reason: str, check: Check = "") -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason
        self.check: Check = check


class NotPrepared(Refused):
    """Preparation ended with a status other than ok."""


class WrongOutput(Refused):
    """A call did not return what the case requires, or changed what it must leave alone."""

    def __init__(self, reason: str, check: Check = "output_form") -> None:
        super().__init__("mismatch", reason, check)


def failed(failure: BaseException, doing: str) -> Failed:
    """Return the answer to a request that raised while ``doing`` something ("the call")."""
    trace = _traceback(failure)
    if isinstance(failure, Refused):
        return Failed(failure.status, clean(failure.reason), failure.check, trace)
    check: Check = "graph" if isinstance(failure, NoGradient) else ""
    if isinstance(failure, ModuleNotFoundError):
        check = "requires"
    return Failed(*classify(failure, doing), check, trace)


def _traceback(failure: BaseException) -> str:
    """Return the traceback of an exception, its end if it is long; for a refusal that of its cause."""
    raised = failure.__cause__ if isinstance(failure, Refused) else failure
    try:
        return "".join(traceback.format_exception(raised))[-_LONGEST_TRACE:] if raised else ""
    except Exception:
        # Its message can't be read.
        return ""


def classify(failure: BaseException, doing: str) -> tuple[Status, str]:
    """Return the status of an exception of a backend's code, and one line that says why."""
    words = one_line(failure)
    if isinstance(failure, MemoryError) or any(sign in words.lower() for sign in _NO_MEMORY):
        return "out_of_memory", f"{doing} ran out of memory: {words}"
    if isinstance(failure, SystemExit):
        code = failure.code
        shown = repr(clean(code)) if isinstance(code, str) else clean(code)
        return "crashed", f"{doing} called exit({shown})"
    return "error", f"{doing} raised {words}"


def no_answer(answer: object) -> str:
    """Describe an invalid answer of ``supports`` or ``available``; "" for None and for a reason.

    A new author may return True for a supported case; it would otherwise count as a reason to skip.
    """
    if answer is None or (isinstance(answer, str) and answer.strip()):
        return ""
    gave = "an empty reason" if isinstance(answer, str) else f"a {type(answer).__name__}, {clean(answer)}"
    return f"gave {gave}: give None, or a reason in words"
