"""Cells: one candidate against the baseline in one trial, with our comparison and other tools' verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from attnbench.runner.options import Options
from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.verdict import benjamini_hochberg, decide
from attnbench.types.extensions import WORDS, SampleSets, VerdictRule, Word
from attnbench.types.words import clean, one_line
from attnbench_selftest.measure import Trial, samples
from attnbench_selftest.plan import FAMILY
from attnbench_selftest.rates import Count


class Peers:
    """Other tools' rules on the samples of a cell. faults: by name, why a rule is no longer asked."""

    def __init__(self, rules: Iterable[VerdictRule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self.faults: dict[str, str] = {}

    def words(self, candidate: SampleSets, baseline: SampleSets) -> dict[str, Word]:
        """The verdict of each rule. A rule that raises, or gives another word, is asked no more."""
        words: dict[str, Word] = {}
        for name in [name for name in self._rules if name not in self.faults]:
            try:
                word = self._rules[name].decide(candidate, baseline)
            except KeyboardInterrupt:
                raise
            except BaseException as failure:
                self.faults[name] = f"raised {one_line(failure)}"
                continue
            if word in WORDS:
                words[name] = word
            else:
                self.faults[name] = f"said {clean(word)}, which is none of {', '.join(WORDS)}"
        return words


@dataclass(frozen=True)
class Cell:
    """A candidate in a trial. cluster: the case. peers: by rule, its word on the same samples."""

    cluster: str
    comparison: Comparison
    peers: dict[str, Word]

    def word(self, p_adjusted: float) -> Word:
        """Our verdict, given the p-value after adjustment for the cell's family."""
        found = self.comparison
        low, high = (found.interval.low, found.interval.high) if found.interval else (None, None)
        return decide(found.ratio, low, high, found.p_value, p_adjusted, Options.delta)

    @property
    def alone(self) -> Word:
        """The verdict where the cell is the whole run: the most readily given."""
        return self.word(self.comparison.p_value)

    def among(self, cells: int) -> Word:
        """The verdict where only this cell of a run's ``cells`` differs: the hardest to get."""
        return self.word(min(1.0, self.comparison.p_value * cells))


def cells_of(trials: Iterable[Trial], candidates: Sequence[str], baseline: str, peers: Peers) -> list[Cell]:
    """A cell for each candidate and trial that have samples of both."""
    found = []
    for trial in trials:
        base = samples(trial.repetitions, baseline)
        for name in candidates:
            comparison = compare(trial.repetitions, name, baseline)
            if comparison is not None:
                words = peers.words(samples(trial.repetitions, name), base)
                found.append(Cell(trial.cluster, comparison, words))
    return found


def families(cells: Sequence[Cell]) -> list[Sequence[Cell]]:
    """Consecutive cells in families of a run's size; the rest is left out."""
    return [cells[start : start + FAMILY] for start in range(0, len(cells) - FAMILY + 1, FAMILY)]


def adjusted_words(family: Sequence[Cell]) -> list[Word]:
    """Verdicts of the cells of one run, with p-values adjusted over them."""
    adjusted = benjamini_hochberg([cell.comparison.p_value for cell in family])
    return [cell.word(p) for cell, p in zip(family, adjusted, strict=True)]


def count(cells: Sequence[Cell], holds: Callable[[Cell], bool]) -> list[Count]:
    """Count the cells for which something holds, by cluster, in order."""
    groups = [list(group) for _, group in groupby(cells, key=lambda cell: cell.cluster)]
    return [Count(sum(map(holds, group)), len(group)) for group in groups]


def peer_rates(groups: Sequence[Sequence[Cell]], word: Word) -> dict[str, float]:
    """The share of groups in which a rule gave ``word`` to any cell, for rules that judged every cell."""
    cells = [cell for group in groups for cell in group]
    names = [name for name in (cells[0].peers if cells else ()) if all(name in cell.peers for cell in cells)]
    return {
        name: sum(any(cell.peers[name] == word for cell in group) for group in groups) / len(groups)
        for name in names
    }
