"""What went wrong in a worker, as a status and a reason in words."""

from __future__ import annotations

from attnbench.types.record import Status
from attnbench.types.words import one_line

_NO_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory", "unable to allocate")


def classify(failure: BaseException, doing: str) -> tuple[Status, str]:
    """The status of a failure while ``doing`` something ("the call"), and one line that says why."""
    words = one_line(failure)
    if isinstance(failure, MemoryError) or any(sign in words.lower() for sign in _NO_MEMORY):
        return "out_of_memory", f"{doing} ran out of memory: {words}"
    if isinstance(failure, SystemExit):
        return "crashed", f"{doing} called exit({failure.code!r})"
    return "error", f"{doing} raised {words}"
