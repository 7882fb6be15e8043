"""The progress of a run: where it stands, the time left, and where the time went."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.results.format import StoredRun
    from attnbench.types.record import Record


@dataclass(frozen=True)
class Moment:
    """The progress of a run: ``done`` of ``cases``, now with case ``number``.

    Cases are not always run in their order. left_s: an estimate. records, times: of the case once it is
    ``done``; the times are those that :func:`attnbench.stats.answer.answer` takes. failed: the backend whose
    call has just failed, or ""; printed: its last lines, trace: its traceback. advice: sentences for authors,
    from the case that is done. problem: a sentence on the first failure, which can't wait for the report.
    """

    number: int
    cases: int
    case: str
    doing: str
    elapsed_s: float
    left_s: float
    records: tuple[Record, ...] = ()
    times: tuple[tuple[str, int, Mapping[str, float]], ...] = ()
    failed: str = ""
    printed: str = ""
    trace: str = ""
    advice: tuple[str, ...] = ()
    done: int = 0
    problem: str = ""


Progress = Callable[[Moment], None]

SLOW_PREPARATION_MS, SLOW_PREPARATIONS = 3000.0, 3
"""After so many preparations that take so long, an author is told what to declare."""


class Clock:
    """Reports progress with an estimate of the time left, and adds up where the time went.

    groups: the cases that are measured together, each with the time that it is expected to take. order: the
    ids of all cases of the run, which number them.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        groups: Sequence[Mapping[str, float]] = (),
        order: Sequence[str] = (),
    ) -> None:
        self.phases_s: dict[str, float] = {}
        self._progress = progress
        self._advised: set[str] = set()
        self._places = {case: place for place, case in enumerate(order, 1)}
        self._expected_s = [sum(group.values()) for group in groups]
        self._start = self._phase_start = time.monotonic()
        self._number = 0
        # A run that goes on has some behind it.
        self._done = max(0, len(order) - sum(map(len, groups)))
        self._first_start = self._group_start = self._start

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    def begin_group(self) -> None:
        """Note that the next group of cases begins."""
        self._group_start = time.monotonic()
        if self._number == 0:
            self._first_start = self._group_start
        self._number += 1

    def notify(self, case: str, doing: str) -> None:
        """Report what the run does now."""
        if self._progress is not None:
            self._progress(self._moment(case, doing))

    def tell_failure(self, case: str, backend: str, printed: str, trace: str) -> None:
        """Report what a backend printed and raised whose call failed."""
        if self._progress is not None:
            moment = self._moment(case, f"{backend} failed")
            self._progress(replace(moment, failed=backend, printed=printed, trace=trace))

    def finish(self, case: str, stored: StoredRun, compiling: Collection[str] = ()) -> None:
        """Report that a case is done. stored: the run so far. compiling: backends that declare it."""
        self._done += 1
        if self._progress is not None:
            records = tuple(record for record in stored.records if record.case == case)
            times = tuple((one.case, one.index, one.median_ns) for one in stored.times if one.case == case)
            advice = tuple(self._advice(records, stored, compiling))
            moment = self._moment(case, "done")
            self._progress(replace(moment, records=records, times=times, advice=advice))

    def _advice(
        self, records: Sequence[Record], stored: StoredRun, compiling: Collection[str]
    ) -> Iterator[str]:
        """Yield what to declare for each backend whose preparation has been slow often; each once."""
        for record in records:
            name, took_ms = record.backend, record.prepare_ms or 0.0
            if took_ms < SLOW_PREPARATION_MS or name in compiling or name in self._advised:
                continue
            own = [other.prepare_ms or 0.0 for other in stored.records if other.backend == name]
            if sum(other >= SLOW_PREPARATION_MS for other in own) >= SLOW_PREPARATIONS:
                self._advised.add(name)
                yield (
                    f"{name} takes seconds to prepare in each case ({took_ms / 1e3:.0f} s here): declare "
                    "Backend(..., compiles=True), so that suites give it few cases"
                )

    def _moment(self, case: str, doing: str) -> Moment:
        number, cases = self._places[case], len(self._places)
        return Moment(number, cases, case, doing, self.elapsed_s, self._left_s(), done=self._done)

    def spend(self, phase: str) -> None:
        """Count the time since the last call towards ``phase``."""
        now = time.monotonic()
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + now - self._phase_start
        self._phase_start = now

    def _left_s(self) -> float:
        done = self._number - 1
        mean_s = sum(self._expected_s) / len(self._expected_s)
        # One average group is added as if it had gone as expected, since the first alone says little.
        expected_s = sum(self._expected_s[:done]) + mean_s
        taken_s = self._group_start - self._first_start + mean_s
        begun_s = time.monotonic() - self._group_start
        if expected_s and begun_s > self._expected_s[done] * taken_s / expected_s:
            # A group that is late counts at once, because it may take minutes.
            taken_s, expected_s = taken_s + begun_s, expected_s + self._expected_s[done]
        factor = taken_s / expected_s if expected_s else 1.0
        now_s = max(0.0, self._expected_s[done] * factor - begun_s)
        return now_s + sum(self._expected_s[done + 1 :]) * factor
