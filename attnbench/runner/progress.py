"""What a run tells while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


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
    """Tells progress with an estimate of the time left, and adds up where the time went.

    expected_s: how long each case was expected to take before the run; without it nothing is told of the time
    left before the first case is done.
    """

    def __init__(self, cases: int, progress: Progress | None, expected_s: Sequence[float] = ()) -> None:
        self.cases = cases
        self._expected_s = expected_s
        self.phases_s: dict[str, float] = {}
        self._progress = progress
        self._start = time.monotonic()
        self._phase_start = self._start
        self._number = 0
        self._case = ""
        self._case_start: float | None = None
        self._durations_s: list[float] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    def begin_case(self, case: str) -> None:
        """The next case begins."""
        now = time.monotonic()
        if self._case_start is not None:
            self._durations_s.append(now - self._case_start)
        self._case_start = now
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
        if self._case_start is None:
            return None
        begun_s = time.monotonic() - self._case_start
        done = len(self._durations_s)
        if len(self._expected_s) == self.cases:
            mean_s = sum(self._expected_s) / self.cases
            # As if one case more, an average one, had gone as expected: the first alone says little.
            expected_s, taken_s = sum(self._expected_s[:done]) + mean_s, sum(self._durations_s) + mean_s
            factor = taken_s / expected_s if expected_s else 1.0
            if begun_s > self._expected_s[done] * factor and expected_s:
                # What is late says so at once, and not when it is done: one case may be minutes.
                factor = (taken_s + begun_s) / (expected_s + self._expected_s[done])
            now_s, after_s = self._expected_s[done] * factor, sum(self._expected_s[done + 1 :]) * factor
        elif done:
            # The median, because the few cases on which backends compile take many times longer.
            now_s = median(self._durations_s)
            after_s = now_s * (self.cases - self._number)
        else:
            return None
        return max(0.0, now_s - begun_s) + after_s
