"""What went wrong in a worker, as a status and a reason in words."""

from __future__ import annotations

from attnbench.types.record import Status

_NO_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory", "unable to allocate")
_LONGEST_REASON = 600


def classify(failure: BaseException, doing: str) -> tuple[Status, str]:
    """The status of a failure while ``doing`` something ("the call"), and one line that says why."""
    words = one_line(failure)
    if isinstance(failure, MemoryError) or any(sign in words.lower() for sign in _NO_MEMORY):
        return "out_of_memory", f"{doing} ran out of memory: {words}"
    if isinstance(failure, SystemExit):
        return "crashed", f"{doing} called exit({failure.code!r})"
    return "error", f"{doing} raised {words}"


def one_line(failure: BaseException) -> str:
    """Type and message of an exception on one line of bounded length."""
    try:
        message = " ".join(str(failure).split())
    except Exception:
        message = "(its message can't be read)"
    text = f"{type(failure).__name__}: {message}" if message else type(failure).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"
