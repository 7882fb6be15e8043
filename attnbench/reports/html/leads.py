"""Who is the fastest of a case, and whether that is proved.

A record's verdict is against the baseline; that the fastest is faster than the *others* is another question.
It is answered as any: ratios to the fastest from pairs of the same sets, the same sign test, adjusted over
all such ratios of the run. The fastest was found by looking at the same samples, which favours it; but one is
told as sole only where every other is proved slower, so for a lead to be wrong the test must be wrong about
one certain pair: of k identical backends some one is told as sole in at most k times 0.2 % of cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attnbench.compare.verdict import Verdict, verdicts
from attnbench.stored.within import against
from attnbench.types.record import Record, SetLine

Kind = Literal["sole", "level", "unclear", "alone", "none"]


@dataclass(frozen=True)
class Rival:
    """Another backend of the case: its record with its ratio to the fastest, and what that amounts to.

    verdict: None where the two have no sets in common.
    """

    record: Record
    verdict: Verdict | None

    @property
    def proved_slower(self) -> bool:
        """Whether it is known to be slower than the fastest."""
        return self.verdict is not None and self.verdict.word == "slower"

    @property
    def proved_same(self) -> bool:
        """Whether it is known to be as fast, within the least effect."""
        return self.verdict is not None and self.verdict.word == "same"


@dataclass(frozen=True)
class Lead:
    """The fastest backend of a case and the others that have a time there, the next one first.

    best: None where no backend has a time.
    """

    case: str
    best: Record | None
    rivals: tuple[Rival, ...]

    @property
    def kind(self) -> Kind:
        """sole: all others are proved slower. level: those that aren't are proved as fast. unclear: neither.

        alone: no other has a time. none: no backend has.
        """
        if self.best is None:
            return "none"
        if not self.rivals:
            return "alone"
        if not self.beside:
            return "sole"
        return "level" if all(rival.proved_same for rival in self.beside) else "unclear"

    @property
    def beside(self) -> tuple[Rival, ...]:
        """Those that are not proved slower than the fastest."""
        return tuple(rival for rival in self.rivals if not rival.proved_slower)


def leads(records: Sequence[Record], sets: Mapping[str, Sequence[SetLine]]) -> list[Lead]:
    """The lead of each case that has a record, in their order. Only records of status ``ok`` take part."""
    timed: dict[str, list[Record]] = {record.case: [] for record in records}
    for record in records:
        if record.status == "ok" and record.median_ms is not None:
            timed[record.case].append(record)
    best = {case: min(those, key=_time, default=None) for case, those in timed.items()}
    to_best = [
        against(record, first, list(sets.get(case, ())), first.delta or 0.0)
        for case, first in best.items()
        if first is not None
        for record in timed[case]
        if record is not first
    ]
    said = verdicts(to_best)
    rivals: dict[str, list[Rival]] = {case: [] for case in timed}
    for record in to_best:
        rivals[record.case].append(Rival(record, said.get((record.case, record.backend))))
    return [Lead(case, best[case], tuple(sorted(rivals[case], key=_distance))) for case in timed]


def _time(record: Record) -> tuple[float, str]:
    return (record.median_ms or 0.0, record.backend)


def _distance(rival: Rival) -> tuple[float, str]:
    record = rival.record
    return (record.ratio if record.ratio is not None else float("inf"), record.backend)
