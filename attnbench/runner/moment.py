"""What a run tells while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """Where a run stands: case ``number`` of ``cases``; left_s is an estimate, None before there is one."""

    number: int
    cases: int
    case: str
    doing: str
    elapsed_s: float
    left_s: float | None


Progress = Callable[[Moment], None]


class Clock:
    """Tells progress with an estimate of the time left, and adds up where the time went."""

    def __init__(self, cases: int, progress: Progress | None) -> None:
        self.cases = cases
        self.phases_s: dict[str, float] = {}
        self._progress = progress
        self._start = time.monotonic()
        self._phase_start = self._start
        self._number = 0
        self._case = ""
        self._first_case_start: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    def begin_case(self, case: str) -> None:
        """The next case begins."""
        if self._first_case_start is None:
            self._first_case_start = time.monotonic()
        self._number += 1
        self._case = case

    def tell(self, doing: str) -> None:
        """Say what is being done now."""
        if self._progress is not None:
            self._progress(
                Moment(self._number, self.cases, self._case, doing, self.elapsed_s, self._left_s())
            )

    def spend(self, phase: str) -> None:
        """Put the time since the last call down to ``phase``."""
        now = time.monotonic()
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + now - self._phase_start
        self._phase_start = now

    def _left_s(self) -> float | None:
        done = self._number - 1
        if done < 1 or self._first_case_start is None:
            return None
        return (time.monotonic() - self._first_case_start) / done * (self.cases - done)
