"""A comparison in a few sentences: who won, lost and tied, the worst cell, what isn't alike."""

from __future__ import annotations

from collections import Counter

from attnbench.reports.units import number, reach
from attnbench.stored.gate import GateResult
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell, Difference
from attnbench.types.words import count_of

_WORDS = {"slower": "lost (slower)", "faster": "won (faster)", "same": "tied (same)"}


def counts(compared: Compared) -> str:
    """How many cells won, lost, tied, and the rest: one line."""
    found = Counter(cell.verdict for cell in compared.cells)
    order = ("faster", "slower", "same", *(outcome for outcome in OUTCOMES if outcome not in _WORDS))
    said = [f"{found[outcome]} {_WORDS.get(outcome, outcome)}" for outcome in order if found[outcome]]
    return f"{count_of(len(compared.cells), 'cell')}: {', '.join(said) or 'nothing'}"


def worst(compared: Compared) -> ComparedCell | None:
    """The cell with the worst verdict, of those that have a ratio and among them the largest."""
    with_ratio = [cell for cell in compared.cells if cell.ratio is not None]
    return min(with_ratio, key=lambda c: (_rank(c), -(c.ratio or 0.0)), default=None)


def _rank(cell: ComparedCell) -> int:
    """slower before all, then what isn't told, then the rest."""
    return {"slower": 0, "unclear": 1, "same": 2}.get(cell.verdict, 3)


def worst_words(cell: ComparedCell) -> str:
    """Where the worst is and how bad."""
    ratio = cell.ratio or 0.0
    far = reach(ratio, cell.low, cell.high)
    return f"worst: {name(cell)} at {number(ratio, far)} × base ({cell.verdict})"


def name(cell: ComparedCell) -> str:
    """Backend and case, or the case alone where that says it all."""
    return f"{cell.backend} on {cell.case}" if cell.backend else cell.case


def forced_words(compared: Compared) -> str:
    """That a comparison was forced, and over what; "" where it wasn't."""
    if not compared.forced:
        return ""
    over = ", ".join(difference_words(d) for d in compared.differences if d.matters)
    return f"FORCED: the sides were not measured alike, times hardly compare: {over}"


def difference_words(difference: Difference) -> str:
    """A fact and its two values."""
    return f"{difference.fact} ({difference.base} → {difference.new})"


def other_differences(compared: Compared) -> str:
    """What else isn't alike; "" where all is."""
    found = [difference_words(d) for d in compared.differences if not d.matters]
    return f"also unlike, without weight: {', '.join(found)}" if found else ""


def gate_words(result: GateResult) -> str:
    """What the gate says."""
    return f"gate {result.sentence}" if result.exit_code != 3 else f"gate: {result.sentence}"
