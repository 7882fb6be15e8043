"""A case with dropout in the verifier: moments of draws, and outputs compared with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from attnbench.inputs.draw import Stored, widen
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import OUT, PLAIN
from attnbench.oracle.moments import Moments, solve_moments
from attnbench.types.record import DropoutNumbers
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.verifier.case import CaseVerifier
from attnbench.verifier.tally import Tally, dropout_calls, judge_tally, telling_rows

if TYPE_CHECKING:
    Parts = Mapping[str, Stored]


DROPOUT = "dropout"
"""Stands among the stress inputs that failed."""


class DropoutVerifier(CaseVerifier):
    """A case whose outputs differ from call to call, and are compared by their statistics.

    The plain reference computes the answer without dropout. Symmetries hold: they move or scale weights and
    values, and dropped weights are as random elsewhere.
    """

    def __init__(self, opening: rm.OpenCase, rule: Rule) -> None:
        super().__init__(opening, rule)
        self._moments: dict[int, Moments] = {}
        self._tallies: dict[str, tuple[int, Tally]] = {}
        self._timed: dict[int, Tally] = {}

    @property
    def calls(self) -> int:
        """Return how many outputs on the same inputs are compared."""
        return dropout_calls(self.case, None if self.rows is None else len(self.rows))

    def score(self, who: str, index: int, parts: Parts) -> str:
        """Check one output alone."""
        if who == PLAIN:
            return super().score(who, index, parts)
        return self._alone(index, 0, parts)

    def tally(self, who: str, index: int, parts: Parts) -> None:
        """Add one of many outputs on the same draw, which :meth:`judge` checks together."""
        if who not in self._tallies or self._tallies[who][0] != index:
            self._tallies[who] = index, self._tally(index)
        self._add(self._tallies[who][1], index, 0, parts)

    def judge(self, who: str, left_out: Collection[str] = (), arithmetic: str = "") -> rm.Judged:
        """Return the verdict on all tallied outputs, and forget them; always by the limits of the dtype."""
        index, tally = self._tallies.pop(who)
        if not tally.not_finite and len(tally.along) < self.calls:
            raise ValueError(f"{len(tally.along)} outputs to judge where {self.calls} are needed")
        numbers, problem = judge_tally(tally, **self._limits(index))
        check: Check = ""
        if problem:
            hint = self._hint(index)
            problem, check = problem + hint, "rule_forms" if hint else "dropout"
        return rm.Judged(None, problem, (DROPOUT,) if problem else (), dropout=_finite(numbers), check=check)

    def begin_timed(self) -> None:
        """Prepare for the outputs of timed calls of one process."""
        self._timed = {}

    def score_timed(self, index: int, change: int, parts: Parts, arithmetic: str = "") -> str:
        """Check the output of a timed call alone, and tally it for :meth:`end_timed`."""
        problem = self._alone(index, change, parts)
        if problem:
            return problem
        if index not in self._timed:
            self._timed[index] = self._tally(index)
        self._add(self._timed[index], index, change, parts)
        return ""

    def end_timed(self) -> str:
        """Return the fault of the outputs of timed calls on one draw together; "" for none."""
        together, self._timed = self._timed, {}
        for index, tally in together.items():
            if len(tally.along) > 1:
                _, problem = judge_tally(tally, **self._limits(index))
                if problem:
                    return f"with other outputs of timed calls on the same values: {problem}"
        return ""

    def unseen(self) -> bool:
        """Return whether no row shows dropout."""
        last = len(self.stress_inputs) - 1
        return telling_rows(self._tally(last), rms_limit=self._limits(last)["rms_limit"]) == 0

    def _alone(self, index: int, change: int, parts: Parts) -> str:
        tally = self._tally(index)
        self._add(tally, index, change, parts)
        _, problem = judge_tally(tally, **self._limits(index))
        return problem + self._hint(index) if problem else ""

    def _tally(self, index: int) -> Tally:
        return Tally(self.case, self._moments_of(index), self.rows)

    def _add(self, tally: Tally, index: int, change: int, parts: Parts) -> None:
        _, made = self._after(index, change)
        tally.add(self._undone(self._part(OUT), parts[OUT], made))

    def _moments_of(self, index: int) -> Moments:
        """Return the moments of a draw, solved once."""
        if index not in self._moments:
            drawn = self.draw(index)
            a, b, c = (widen(array, self.case.dtype) for array in drawn.inputs.values())
            self._moments[index] = solve_moments(
                self.case, self.rule, self.wide, (a, b, c), drawn.expected[OUT], self.rows
            )
        return self._moments[index]

    def _limits(self, index: int) -> dict[str, float]:
        """Return the errors that rounding explains on a draw."""
        accuracy, _ = self._plain_verdict(index)
        return {"rms_limit": accuracy.rms_limit, "max_limit": accuracy.max_limit}

    def _hint(self, index: int) -> str:
        """Return a sentence if the plain reference is wrong too, else ""."""
        _, problem = self._plain_verdict(index)
        return f". The plain reference, without dropout, is wrong too: {problem}" if problem else ""


def _finite(numbers: DropoutNumbers | None) -> DropoutNumbers | None:
    """Return numbers that a file can hold; None if one is infinite or NaN."""
    if numbers is None or not all(math.isfinite(each) for each in msgspec.structs.astuple(numbers)):
        return None
    return numbers
