"""The sentences above all runs of a page: what to use, what users have today against it, and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import TORCHS
from attnbench.reports.answer import busy_text, case_numbers, steps_words
from attnbench.reports.caches import cache_words
from attnbench.reports.html.words import (
    Sentence,
    busy,
    failure_words,
    isolated,
    use_words,
)
from attnbench.reports.judged import ReportPart
from attnbench.reports.names import heading_of, listed_values, short_names, span, threads_text
from attnbench.reports.overview import HOT_DECODE, KEPT_MEMORY, checked_words, hot_words, kept_words
from attnbench.reports.run import Run
from attnbench.stats.answer import is_failure
from attnbench.types.mask import mask_text
from attnbench.types.words import capital, count_of, first_of, printable

_ALL_RUNS = "all runs"
_MOST_RUNS = 6
"""Of more runs without steps none is told above all."""


def user_has(part: ReportPart) -> tuple[str, ...]:
    """Return the backends that users have without attnbench: torch's function, and the baseline."""
    timed = {one.record.backend for one in part.judged if one.record.median_ms is not None}
    baseline = None if part.answer is None else part.answer.baseline
    return tuple(dict.fromkeys(name for name in (TORCHS, baseline) if name in timed and name is not None))


def whole_findings(parts: Sequence[ReportPart], labels: Sequence[str]) -> list[Sentence]:
    """Return sentences over all runs, those on one run together. labels: of the parts.

    What to use in whole suites comes before steps of models.
    """
    several = len(parts) > 1
    found = [
        one
        for part, label in sorted(zip(parts, labels, strict=True), key=lambda one: not is_told(one[0], parts))
        for one in _of_part(part, parts, label if several else "")
    ]
    shared = [*_checked(parts), *_hot(parts, labels), *_busy(parts)]
    if several:
        # What is said of one run alone stands with what else is said of it.
        found += [replace(one, run=one.run or _ALL_RUNS) for one in shared]
        runs = list(dict.fromkeys(one.run for one in found))
        return sorted(found, key=lambda one: runs.index(one.run))
    return [*found, *shared]


def part_findings(part: ReportPart, parts: Sequence[ReportPart]) -> list[Sentence]:
    """Say at a part which backends to use, unless that is told above all, and what was disturbed."""
    if len(parts) == 1:
        return []
    has_steps = part.answer is not None and bool(part.answer.totals)
    uses = [] if has_steps or is_told(part, parts) else use_words(part)
    return [*uses, *busy(part)]


def _checked(parts: Sequence[ReportPart]) -> list[Sentence]:
    records = [one.record for part in parts for one in part.judged]
    wrong = any(is_failure(record) for record in records)
    return [Sentence("", checked_words(records), "bad" if wrong else "plain")] if records else []


def _hot(parts: Sequence[ReportPart], labels: Sequence[str]) -> list[Sentence]:
    """Say whose memory was not as in a model. Of several runs they are named, of one the sentence is its."""
    found: list[Sentence] = []
    for words_of, words in ((hot_words, HOT_DECODE), (kept_words, KEPT_MEMORY)):
        its = [(label, told) for part, label in zip(parts, labels, strict=True) if (told := words_of(part))]
        if len(its) == 1:
            label, told = its[0]
            run = label if len(parts) > 1 else ""
            found.append(Sentence("", f"{told if told != words else capital(told)}.", "unsure", run))
        elif its:
            runs = first_of([label for label, _ in its], _MOST_RUNS)
            found.append(Sentence("", f"{runs}: {words}.", "unsure"))
    return found


def _busy(parts: Sequence[ReportPart]) -> list[Sentence]:
    words = busy_text(*(part.answer for part in parts if part.answer is not None))
    return [Sentence("", f"{words}.", "unsure")] if words else []


def is_told(part: ReportPart, parts: Sequence[ReportPart]) -> bool:
    """Return whether what to use by cases is told above all: alone, or of few runs without steps."""
    return len(parts) == 1 or (
        len(parts) <= _MOST_RUNS and not (part.answer is not None and part.answer.totals)
    )


def _steps(part: ReportPart, run: str = "") -> Iterator[Sentence]:
    """Say of each stage of a step what to use."""
    if part.answer is None:
        return
    names = short_names(case_numbers([part]))
    for words, proved in steps_words(
        part.answer, names, part.suites, part.asked, busy=bool(part.suites or run)
    ).items():
        text = isolated(words) if part.suites else capital(words)
        yield Sentence("", f"{text}.", "good" if proved else "unsure", run)


def _of_part(part: ReportPart, parts: Sequence[ReportPart], run: str) -> Iterator[Sentence]:
    """Say what to use, in a step of a model by stage or else by cases, what fails, and what caches cost.

    run: as of :class:`Sentence`.
    """
    if part.answer is None:
        return
    yield from _steps(part, run)
    yield from use_words(part, run) if is_told(part, parts) else failure_words(part, run)
    for words in cache_words(part.caches):
        yield Sentence("", f"{words}.", run=run)


def cases_words(ids: Iterable[str]) -> str:
    """Say what the cases of a run are: rules, sizes, masks, dtype, pass, device and threads."""
    cases = [parse_case(case) for case in dict.fromkeys(ids)]
    if not cases:
        return ""
    shared = any(case.Hkv != case.H for case in cases)
    names = ("B", "H", *(["Hkv"] if shared else []), "Lq", "Lk", "D")
    sizes = [f"{name} {span([getattr(case, name) for case in cases])}" for name in names]
    caches = {case.cache for case in cases}
    words = [
        listed_values(case.rule for case in cases),
        ", ".join(sizes),
        f"mask {listed_values(mask_text(case.mask) for case in cases)}",
        listed_values(case.dtype for case in cases),
        listed_values(case.pass_ for case in cases),
        listed_values(case.device for case in cases),
        "" if caches == {"hot"} else f"{listed_values(sorted(caches))} inputs",
        threads_text(cases),
    ]
    return f"{count_of(len(cases), 'case')}: {' · '.join(filter(None, words))}"


def run_labels(run: Run, parts: Sequence[ReportPart]) -> list[str]:
    """Name each part by its suite: of several days by the date too, or else by the time or the place."""
    days = {run.manifests[part.runs[0]].started[:10] for part in parts}
    for letters in (0, 10, 16) if len(days) == 1 else (10, 16):
        found = [_run_label(run, part, letters) for part in parts]
        if len(set(found)) == len(found):
            return found
    return [f"{label} ({place})" for place, label in enumerate(found, start=1)]


def _run_label(run: Run, part: ReportPart, letters: int) -> str:
    first = part.runs[0]
    suite = heading_of(run.manifests[first]) or printable(run.paths[first].name)
    return f"{isolated(suite)} {run.manifests[first].started[:letters].replace('T', ' ')}".rstrip()
