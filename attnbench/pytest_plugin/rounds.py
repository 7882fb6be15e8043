"""Between the rounds of pytest-benchmark: now and then the inputs get other values, in place.

What a backend keeps of earlier calls is wrong from then on. Nothing of it falls into a round's time: the
values are written, and one call is made that warms what writing has cooled, before the round begins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from attnbench.pytest_plugin.watched import Watched


def watch_rounds(benchmark: Any, watched: Watched, renew: Callable[[], None]) -> None:
    """Have ``renew`` called before rounds that are drawn at random, less and less often.

    benchmark: the fixture, whose way to make a round is wrapped. Where a pytest-benchmark has none by that
    name, calls are timed and compared as ever, on the same inputs.
    """
    make = getattr(benchmark, "_make_runner", None)
    if make is None:
        return
    drawn = Drawn()

    def made(function: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        runner = make(function, args, kwargs)
        used = 0

        def one_round(*words: Any, **named: Any) -> Any:
            nonlocal used
            used += 1
            if drawn.now():
                renew()
            before = watched.last().number
            watched.watch.in_round = True
            try:
                return runner(*words, **named)
            finally:
                last = watched.last()
                # A round that is made for itself alone may hand its output to the user.
                watched.watch.end_round(last, called=last.number > before, shown=used == 1)

        return one_round

    benchmark._make_runner = made


class Drawn:
    """Which rounds it is: one of the first, then each time about twice as many later."""

    def __init__(self) -> None:
        self._rounds = 0
        self._next = 1 + secrets.randbelow(3)

    def now(self) -> bool:
        """Whether it is the next round; to be asked once for each."""
        self._rounds += 1
        if self._rounds <= self._next:
            return False
        self._next = self._rounds + secrets.randbelow(2 * self._rounds)
        return True
