"""Cells: one contender against the baseline in one trial, with our comparison and what other rules say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from attnbench.compare.comparison import Comparison, compare
from attnbench.compare.verdict import benjamini_hochberg, decide
from attnbench.selftest.bounds import Count
from attnbench.selftest.peers import Peers
from attnbench.selftest.trials import Trial, samples, shortened
from attnbench.types.verdict import Word

FAMILY = 40
"""How many cells a run has, in what is claimed of runs."""


@dataclass(frozen=True)
class Cell:
    """A contender in a trial. cluster: the case. peers: by rule, its word on the same samples."""

    cluster: str
    contender: str
    comparison: Comparison
    peers: dict[str, Word]

    def word(self, p_adjusted: float, delta: float) -> Word:
        """Our verdict, given the p-value that the family of the cell leaves it."""
        found = self.comparison
        low, high = (found.interval.low, found.interval.high) if found.interval else (None, None)
        return decide(found.ratio, low, high, found.p_value, p_adjusted, delta)


def cells_of(
    trials: Iterable[Trial],
    contenders: Sequence[str],
    baseline: str,
    *,
    part: float = 1.0,
    leave_out: bool = True,
    peers: Peers | None = None,
) -> list[Cell]:
    """A cell for each contender and trial that have samples of both, of the first ``part`` of the time."""
    found = []
    for trial in trials:
        sets = trial.sets if part == 1 else shortened(trial.sets, part)
        base = samples(sets, baseline)
        for name in contenders:
            comparison = compare(sets, name, baseline, leave_out=leave_out)
            if comparison is not None:
                words = {} if peers is None else peers.words(samples(sets, name), base)
                found.append(Cell(trial.cluster, name, comparison, words))
    return found


def alone(cell: Cell, delta: float) -> Word:
    """The verdict where the cell is all there is: the most readily given."""
    return cell.word(cell.comparison.p_value, delta)


def among(cell: Cell, delta: float, family: int = FAMILY) -> Word:
    """The verdict where the cell is the only one of ``family`` that differs: the hardest to get."""
    return cell.word(min(1.0, cell.comparison.p_value * family), delta)


def families(cells: Sequence[Cell], delta: float, size: int = FAMILY) -> list[list[Word]]:
    """Verdicts of consecutive cells in families of ``size``, adjusted within each; the rest is left out."""
    found = []
    for start in range(0, len(cells) - size + 1, size):
        family = cells[start : start + size]
        adjusted = benjamini_hochberg([cell.comparison.p_value for cell in family])
        found.append([cell.word(p, delta) for cell, p in zip(family, adjusted, strict=True)])
    return found


def count(cells: Sequence[Cell], holds: Callable[[Cell], bool]) -> list[Count]:
    """In how many cells something holds, by cluster, in order."""
    groups = [list(group) for _, group in groupby(cells, key=lambda cell: cell.cluster)]
    return [Count(sum(map(holds, group)), len(group)) for group in groups]


def peer_rates(cells: Sequence[Cell], word: Word) -> dict[str, float]:
    """How often each of the other rules said ``word``, of the rules that judged every cell."""
    if not cells:
        return {}
    names = [name for name in cells[0].peers if all(name in cell.peers for cell in cells)]
    return {name: sum(cell.peers[name] == word for cell in cells) / len(cells) for name in names}


def peer_families(cells: Sequence[Cell], word: Word, size: int = FAMILY) -> dict[str, float]:
    """In what share of families of consecutive cells each of the other rules said ``word`` of any."""
    starts = range(0, len(cells) - size + 1, size)
    if not starts:
        return {}
    groups = [cells[start : start + size] for start in starts]
    return {
        name: sum(any(cell.peers.get(name) == word for cell in group) for group in groups) / len(groups)
        for name in peer_rates(cells, word)
    }
