"""Each backend against the baseline of the run: how often faster, slower, the same, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.reports.columns import name_text
from attnbench.reports.html.spans import span
from attnbench.reports.html.words import Name, Piece, Sentence, Tone, sentence, share
from attnbench.reports.judged import Judged
from attnbench.types.record import STATUSES
from attnbench.types.verdict import WORDS, Word
from attnbench.types.words import count_of

MOST_BACKENDS = 6
"""Told in sentences; the table of backends has all."""
MOST_REASONS = 2
TABLE_OF_BACKENDS = "Backends against the baseline"
"""What the table is called on the page."""


@dataclass(frozen=True)
class Standing:
    """How a backend stands against its baseline over a run.

    verdicts, statuses: how many of each. spans: by verdict, its ratios from the least to the most, each to
    the digits that its interval justifies; span: those of all verdicts. least: None where it has no ratio.
    """

    backend: str
    baseline: str
    verdicts: dict[str, int]
    statuses: dict[str, int]
    spans: dict[str, str]
    span: str
    least: float | None

    @property
    def compared(self) -> int:
        """Cases in which it has a verdict."""
        return sum(self.verdicts.values())


def standings(judged: Sequence[Judged], first: Word = "faster") -> list[Standing]:
    """Every backend that is not its own baseline, the one that is ``first`` most often before others."""
    # Whoever was never timed has no baseline in any record.
    baselines = {one.record.backend: one.record.baseline for one in judged if one.record.baseline}
    by_name: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        record = one.record
        if record.backend != record.baseline:
            by_name.setdefault((record.backend, baselines.get(record.backend, "")), []).append(one)
    found = [_standing(name, baseline, those) for (name, baseline), those in by_name.items()]
    return sorted(found, key=lambda one: (-one.verdicts.get(first, 0), one.least or float("inf")))


def against_baseline(judged: Sequence[Judged], first: Word = "faster") -> list[Sentence]:
    """A sentence for each of the backends that have verdicts, in the order of :func:`standings`, and what is
    unclear and why.
    """
    compared = [one for one in standings(judged, first) if one.compared]
    said = [_of_one(one, first) for one in compared[:MOST_BACKENDS]]
    if len(compared) > MOST_BACKENDS:
        more = len(compared) - MOST_BACKENDS
        was = "was" if more == 1 else "were"
        said.append(sentence(f"{count_of(more, 'more backend')} {was} compared: see “{TABLE_OF_BACKENDS}”."))
    return [*said, *_unclear(judged), *_without_ratios(judged)]


def _standing(backend: str, baseline: str, judged: Sequence[Judged]) -> Standing:
    compared = [one for one in judged if one.verdict is not None]
    ratios = [one.record.ratio for one in compared if one.record.ratio is not None]
    verdicts = Counter(one.verdict for one in judged if one.verdict is not None)
    statuses = Counter(one.record.status for one in judged)
    names = {name_text(one.record) for one in judged if one.record.status == "ok"}
    return Standing(
        backend=names.pop() if len(names) == 1 else backend,
        baseline=baseline,
        verdicts={word: verdicts[word] for word in WORDS if verdicts[word]},
        statuses={status: statuses[status] for status in STATUSES if statuses[status]},
        spans={word: span([one.record for one in compared if one.verdict == word]) for word in WORDS},
        span=span([one.record for one in compared]),
        least=min(ratios, default=None),
    )


def _of_one(one: Standing, first: Word) -> Sentence:
    counts = [(word, count) for word, count in one.verdicts.items() if count]
    told = [
        f"{word} in {f'{count:,}' if place else share(count, one.compared, 'case', 'its')}{_by(one, word)}"
        for place, (word, count) in enumerate(counts)
    ]
    words: list[Piece] = [Name(one.backend), " against ", Name(one.baseline), f": {'; '.join(told)}"]
    only: dict[str, Tone] = {"faster": "good", "unclear": "unsure"}
    tone = only.get(counts[0][0], "plain") if len(counts) == 1 else "plain"
    if first == "slower" and one.verdicts.get("slower"):
        tone = "bad"
    return sentence(words, ".", tone=tone)


def _by(one: Standing, word: str) -> str:
    """By how much, where that is proved: of what is unclear a number would claim more."""
    if word == "faster":
        return f", where it takes {one.spans[word]} of the time"
    if word == "slower":
        return f", where it takes {one.spans[word]} times as long"
    return ""


def _unclear(judged: Sequence[Judged]) -> list[Sentence]:
    family = sum(one.p_adjusted is not None for one in judged)
    reasons = Counter(one.why for one in judged if one.verdict == "unclear")
    count = sum(reasons.values())
    if not count:
        return []
    whys = "; ".join(
        f"{why} ({n:,})" if len(reasons) > 1 else why for why, n in reasons.most_common(MOST_REASONS)
    )
    more = "; and other reasons, which stand in the rows" if len(reasons) > MOST_REASONS else ""
    verb = "is" if count == 1 else "are"
    return [
        sentence(f"{count:,} of {count_of(family, 'ratio')} {verb} unclear: {whys}{more}.", tone="unsure")
    ]


def _without_ratios(judged: Sequence[Judged]) -> list[Sentence]:
    timed = [one.record for one in judged if one.record.status == "ok" and one.record.median_ms is not None]
    if not timed or any(record.ratio is not None for record in timed):
        return []
    baseline = timed[0].baseline or "none"
    return [sentence("There are no ratios: the baseline ", Name(baseline), " has no time.", tone="unsure")]
