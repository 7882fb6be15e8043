"""What acts while nobody calls it: handlers of signals, timers, functions that see others being called.

A backend that leaves one behind can do, when its output is looked at, what its timed call has left undone.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Hook = tuple[str, Callable[[], Any], Callable[[Any], object] | None]
"""Its name in words, what reads it, what puts an earlier value back (None where nothing can)."""

_SIGNALS = ("SIGTERM", "SIGINT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGIO")
_TIMERS = {
    "real": signal.ITIMER_REAL, "virtual": signal.ITIMER_VIRTUAL, "profiling": signal.ITIMER_PROF,
}  # fmt: skip
_TOOLS = 6


def hooks() -> Iterator[Hook]:
    """All of them."""
    for number in (getattr(signal, name) for name in _SIGNALS):
        yield (
            f"the handler of {number.name}",
            partial(signal.getsignal, number),
            partial(_set_handler, number),
        )
    for name, which in _TIMERS.items():
        yield f"whether the {name} timer runs", partial(_runs, which), partial(_stop, which)
    yield "the function that traces calls", sys.gettrace, sys.settrace
    yield "the function that profiles calls", sys.getprofile, sys.setprofile
    yield "the tools that monitor the interpreter", _tools, None


def _set_handler(number: signal.Signals, handler: Any) -> None:
    # None is a handler that was not set from Python: nobody can name it.
    if handler is not None:
        signal.signal(number, handler)


def _runs(timer: int) -> bool:
    return any(signal.getitimer(timer))


def _stop(timer: int, before: object) -> None:
    # None runs at the start; and what was left of one before has passed by now.
    signal.setitimer(timer, 0.0)


def _tools() -> tuple[str | None, ...]:
    """Of ``sys.monitoring``, which there is from Python 3.12 on, by number."""
    monitoring = getattr(sys, "monitoring", None)
    return () if monitoring is None else tuple(map(monitoring.get_tool, range(_TOOLS)))
