"""Each backend against the baseline of the run: how often faster, slower, the same, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.reports.columns import name_text
from attnbench.reports.html.words import Name, Piece, Sentence, sentence, share, some
from attnbench.reports.judged import Judged
from attnbench.reports.units import number
from attnbench.types.record import STATUSES
from attnbench.types.verdict import WORDS

MOST_BACKENDS = 6
"""Told in sentences; the table of backends has all."""
MOST_REASONS = 2


@dataclass(frozen=True)
class Standing:
    """How a backend stands against its baseline over a run.

    verdicts, statuses: how many of each. least, most: of its ratios, None where it has none.
    """

    backend: str
    baseline: str
    verdicts: dict[str, int]
    statuses: dict[str, int]
    least: float | None
    most: float | None

    @property
    def span(self) -> str:
        """Its ratios from the least to the most; "" where it has none."""
        if self.least is None or self.most is None:
            return ""
        least, most = number(self.least, most=3), number(self.most, most=3)
        return least if least == most else f"{least} to {most}"

    @property
    def compared(self) -> int:
        """Cases in which it has a verdict."""
        return sum(self.verdicts.values())


def standings(judged: Sequence[Judged]) -> list[Standing]:
    """Every backend that is not its own baseline, the one that is faster most often first."""
    by_name: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        record = one.record
        if record.backend != record.baseline:
            by_name.setdefault((record.backend, _baseline(judged, record.backend)), []).append(one)
    found = [_standing(name, baseline, those) for (name, baseline), those in by_name.items()]
    return sorted(found, key=lambda one: (-one.verdicts.get("faster", 0), one.least or float("inf")))


def against_baseline(judged: Sequence[Judged]) -> list[Sentence]:
    """A sentence for each of the backends that have verdicts, and what is unclear and why."""
    compared = [one for one in standings(judged) if one.compared]
    said = [_of_one(one) for one in compared[:MOST_BACKENDS]]
    if len(compared) > MOST_BACKENDS:
        more = some(len(compared) - MOST_BACKENDS, "more backend")
        said.append(sentence(f"{more} were compared: the table of backends has all."))
    return [*said, *_unclear(judged), *_without_ratios(judged)]


def _baseline(judged: Sequence[Judged], backend: str) -> str:
    named = (one.record.baseline for one in judged if one.record.backend == backend and one.record.baseline)
    return next(named, "")


def _standing(backend: str, baseline: str, judged: Sequence[Judged]) -> Standing:
    ratios = [one.record.ratio for one in judged if one.verdict is not None and one.record.ratio is not None]
    verdicts = Counter(one.verdict for one in judged if one.verdict is not None)
    statuses = Counter(one.record.status for one in judged)
    names = {name_text(one.record) for one in judged if one.record.status == "ok"}
    return Standing(
        backend=names.pop() if len(names) == 1 else backend,
        baseline=baseline,
        verdicts={word: verdicts[word] for word in WORDS if verdicts[word]},
        statuses={status: statuses[status] for status in STATUSES if statuses[status]},
        least=min(ratios, default=None),
        most=max(ratios, default=None),
    )


def _of_one(one: Standing) -> Sentence:
    counts = [(word, count) for word, count in one.verdicts.items() if count]
    told = [f"{word} in {share(counts[0][1], one.compared, 'case')}" for word, _ in counts[:1]]
    told += [f"{word} in {count:,}" for word, count in counts[1:]]
    words: list[Piece] = [Name(one.backend), " against ", Name(one.baseline), f": {', '.join(told)}"]
    if one.span:
        words.append(f"; it takes {one.span} of the time")
    only = {"faster": "good", "same": "plain", "unclear": "unsure"}
    tone = only.get(counts[0][0], "plain") if len(counts) == 1 else "plain"
    return sentence(words, ".", tone=tone)  # type: ignore[arg-type]


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
    return [sentence(f"{count:,} of {some(family, 'ratio')} {verb} unclear: {whys}{more}.", tone="unsure")]


def _without_ratios(judged: Sequence[Judged]) -> list[Sentence]:
    timed = [one.record for one in judged if one.record.status == "ok" and one.record.median_ms is not None]
    if not timed or any(record.ratio is not None for record in timed):
        return []
    baseline = timed[0].baseline or "none"
    return [sentence("There are no ratios: the baseline ", Name(baseline), " has no time.", tone="unsure")]
