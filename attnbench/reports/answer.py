"""The answer of a run as cells and rows: the fastest backend of each case, and each backend over the cases.

Tables, Markdown, JSON, CSV, frames and the page all take it from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import IN_PROGRAM, TORCHS
from attnbench.reports.columns import KIND, UNCERTAIN, Column, arithmetic_text, time_text
from attnbench.reports.columns import TIED as TIED
from attnbench.reports.judged import JudgedRecord, ReportPart
from attnbench.reports.names import conditions_words, short_names
from attnbench.reports.units import (
    duration,
    duration_interval,
    last_place,
    number,
    plus_minus,
    ratio,
    reach,
    times,
    upper_end,
)
from attnbench.stats.answer import Lead, RunAnswer, TimeRatio, Total, is_busy, is_failure
from attnbench.stats.tests import ends
from attnbench.types.record import Record
from attnbench.types.status import MEANING
from attnbench.types.words import count_of, first_of

if TYPE_CHECKING:
    import pandas as pd

    from attnbench.stats.caches import CacheStep

FASTEST, ABSENT, NOT_ASKED = "1", "·", "–"
"""A backend without a time that its run asked, and one that the run of the case did not ask."""
NARROW, WIDE = 80, 100
"""From so many characters on there is room for the next backend of each case, and from ``WIDE`` on for two
spaces between columns."""
MOST_IN_MATRIX = 1000
"""The matrix of backends has cells for no more cases."""
_MOST_TIES, MOST_LISTED = 2, 3
"""Of a tie of so many backends a table, and a sentence, has all names."""
STEP, FASTEST_OF_EACH = "all counted calls", "the fastest of each case"
NOT_PROVED = "which is faster is not proved"
NOT_LESS = "not proved to be less"
NOT_OF_SUM = "not proved for the sum"
RATIO_DECIDES = "× decides: it is of the same repetitions"
BRACKETS = (
    "[a, b]: the interval of the number before it, of 95 % confidence or more; behind a range over cases, "
    "from the lowest to the highest end of their intervals; of a whole step, taken within each repetition"
)
_APART = 1.05
"""One time is shown to be less than another if so many times its upper end are."""
_MOST_LOST, _WORTH = 3, 0.01
"""A total names so many cases in which it loses most, if each is so large a share of it."""

SUMMARY: dict[str, tuple[str, str]] = {
    "kind": (
        "str",
        "`case`: the fastest backend of a case. `backend`: a backend over the common cases. `step`: all "
        "counted calls, with one backend, or with the fastest of each case where `backend` is missing. "
        "`cache`: the same with one way to hold the cache, where cases differ in that.",
    ),
    "case": ("str", "Id of the case; of a cache that of the case without `kv=`, where nobody counted calls."),
    "backend": ("str", "The fastest backend, or the backend."),
    "median_ms": ("float64", "Its time in the case, or in one step."),
    "low_ms": ("float64", "Lower end of the interval of that time."),
    "high_ms": ("float64", "Upper end of that interval."),
    "ratio": (
        "float64",
        "Its ratio in the case, or the geometric mean of its ratios over the common cases; of a cache the "
        "time over that of the fastest with the cache in the dtype.",
    ),
    "ratio_low": ("float64", "Lower end of the interval of the ratio."),
    "ratio_high": ("float64", "Upper end of that interval."),
    "confidence": ("float64", "Confidence of that interval, or of that of the time in one step."),
    "baseline": ("str", "The backend that the ratio is to."),
    "sure": ("str", "`clear`, `tie`, `few repetitions` or `alone`: how sure the lead is."),
    "ties": ("str", "The backends that are not shown to be slower than any other."),
    "next": ("str", "The next backend."),
    "next_ratio": ("float64", "Its time over that of the fastest."),
    "next_low": ("float64", "Lower end of the interval of that ratio."),
    "next_high": ("float64", "Upper end of that interval."),
    "cases": ("Int64", "Cases that the backend has a time for."),
    "stage": (
        "str",
        "The part of a step that its counted calls are of, as `decode`; missing for all of it.",
    ),
    "without": (
        "str",
        "What such a step computes beside its cases, as its suite says; missing for nothing.",
    ),
    "threads": (
        "Int64",
        "Threads of these calls, where a step was measured with several numbers of them; else missing.",
    ),
    "cache": ("str", "How keys and values are held, as `kv=` has it; `dtype` for numbers of the dtype."),
    "kv_bytes": ("float64", "Bytes of a token in that cache, over all layers of the step."),
    "cache_error": ("float64", "What that cache changes in the exact output, RMS over RMS."),
    "common": ("Int64", "Number of the common cases."),
    "wins": ("Int64", "Cases in which it is clearly the fastest."),
    "shared": ("Int64", "Cases in which it shares the lead."),
    "device_kind": ("str", "Kind of device."),
    "run": ("str", "Id of the run; of a backend over several runs empty."),
}
"""The columns of the summary in JSON, CSV and frames: type and contents."""
_OF_RECORD = (
    "case", "backend", "median_ms", "low_ms", "high_ms", "ratio", "ratio_low", "ratio_high", "baseline",
)  # fmt: skip
"""Those that a case has from the record of its fastest backend."""


def summary_rows(part: ReportPart) -> list[dict[str, Any]]:
    """Return a row for each case, then one for each backend; None stands for missing values."""
    answer, runs = part.answer, {one.record.case: one.run for one in part.judged}
    if answer is None:
        return []
    only = next(iter(runs.values()), "") if len(part.runs) == 1 else ""
    empty: dict[str, Any] = dict.fromkeys(SUMMARY) | {"baseline": answer.baseline, "run": only}
    empty["device_kind"] = part.kind
    rows = []
    for lead in answer.leads:
        best = lead.best
        row = empty | {name: getattr(best, name) for name in _OF_RECORD}
        row |= {"kind": "case", "confidence": best.ratio_confidence, "run": runs[best.case]}
        row |= {"sure": lead.sure, "ties": "; ".join(lead.ties)}
        row |= {"next": None if lead.following is None else lead.following.backend}
        rows.append(row | _numbers(lead.takes, ("next_ratio", "next_low", "next_high")))
    for one in answer.standings:
        row = empty | _numbers(one.mean, ("ratio", "ratio_low", "ratio_high"))
        row |= {"kind": "backend", "backend": one.backend, "cases": one.cases, "common": len(answer.common)}
        rows.append(row | {"wins": one.wins, "shared": one.ties, "confidence": ends(one.mean)[2]})
    for total in answer.totals:
        low, high, confidence = ends(total)
        rows.append(
            empty
            | {"kind": "step", "backend": total.backend, "cases": len(total.by_case)}
            | {"stage": total.stage or None, "threads": total.threads or None}
            | {"without": "; ".join(total.without) or None}
            | {"median_ms": total.ms, "low_ms": low, "high_ms": high, "confidence": confidence}
        )
    return rows + [empty | row for step in part.caches for row in _cache_rows(step)]


def _cache_rows(step: CacheStep) -> Iterator[dict[str, Any]]:
    for cache in step.caches:
        told: dict[str, Any] = {"kind": "cache", "case": step.case or None}
        told |= {
            "stage": step.stage or None,
            "threads": step.threads or None,
            "without": "; ".join(step.without) or None,
            "cache": cache.word,
            "kv_bytes": cache.kv_bytes,
            "cache_error": cache.error,
            "baseline": None,
        }
        for total in cache.totals:
            low, high, confidence = ends(total)
            row = told | _numbers(cache.over.get(total.backend), ("ratio", "ratio_low", "ratio_high"))
            row |= {"backend": total.backend, "cases": len(total.by_case), "confidence": confidence}
            yield row | {"median_ms": total.ms, "low_ms": low, "high_ms": high}


def _numbers(compared: TimeRatio | None, names: tuple[str, str, str]) -> dict[str, float | None]:
    low, high, _ = ends(compared)
    return dict(zip(names, (None if compared is None else compared.ratio, low, high), strict=True))


def summary_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Make a frame of :func:`summary_rows`."""
    import pandas as pd

    dtypes = {name: dtype for name, (dtype, _) in SUMMARY.items() if dtype != "str"}
    return pd.DataFrame(rows, columns=list(SUMMARY)).astype(dtypes)


@dataclass(frozen=True)
class Grid:
    """A table of text.

    right: the heads whose cells are aligned to the right. gap: spaces between columns. above: a line that
    explains the table and those that follow. marked: the heads whose cells are times as long as the fastest.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str]
    gap: int = 1
    above: str = ""
    marked: frozenset[str] = frozenset()


def case_numbers(parts: Sequence[ReportPart]) -> dict[str, int]:
    """Number the cases of a report, for all its parts alike."""
    cases = dict.fromkeys(one.record.case for part in parts for one in part.judged)
    return {case: place for place, case in enumerate(cases, start=1)}


def numbered(parts: Sequence[ReportPart]) -> Iterator[tuple[ReportPart, RunAnswer, dict[str, int]]]:
    """Yield each part that has an answer, with the numbers of its cases, which all parts share."""
    numbers = case_numbers(parts)
    for part in parts:
        own = {one.record.case for one in part.judged}
        if part.answer is not None:
            yield part, part.answer, {case: n for case, n in numbers.items() if case in own}


def case_list(numbers: Iterable[int]) -> str:
    """Write numbers of cases in short: 1-6, 10, 12."""
    runs: list[list[int]] = []
    for place in sorted(numbers):
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


KEY = f"×: so many times as long as the fastest   {TIED}: may be the fastest   {ABSENT}: not run"
"""Explains both tables of the answer, above the first."""
ASKED_KEY = f"{NOT_ASKED}: not asked"


def count_asked(asked: Mapping[str, frozenset[str]], cases: Iterable[str]) -> int:
    """Return how many backends were asked by name for each of these cases; 0 where that is not one number
    above 1."""
    counts = {len(asked.get(case, ())) for case in cases}
    return counts.pop() if len(counts) == 1 and counts != {1} else 0


def missing_mark(part: ReportPart, case: str, backend: str) -> str:
    """Return what stands for a backend that has no record in a case."""
    return NOT_ASKED if backend not in part.asked.get(case, {backend}) else ABSENT


def lacks_asked(part: ReportPart) -> bool:
    """Return whether a run of a part did not ask a backend that another of its runs asked and that ran."""
    ran = {one.record.backend for one in part.judged if not MEANING[one.record.status].declined}
    return any(not ran <= names for names in part.asked.values())


def cases_grid(parts: Sequence[ReportPart], width: int = 1000, *, details: bool = False) -> Grid:
    """Return a row for each case: its number and short id, the backend to use, its time, and the next ones.

    On several kinds of device a case has a row for each kind. Where all parts have the same baseline, its
    time over the fastest's has a column. Where nothing is timed, only the cases with a failure have a row.
    details: with intervals, and all cases. A terminal narrower than ``NARROW`` has no next backends.
    """
    numbers, several = case_numbers(parts), len(parts) > 1
    names = short_names(numbers)
    leads = {
        (lead.best.case, part.kind): (lead, part.answer.chosen[lead.best.case])
        for part in parts
        if part.answer
        for lead in part.answer.leads
    }
    if not leads:
        kept = {one.record.case for part in parts for one in part.judged if details or is_failure(one.record)}
        listed = tuple((str(n), names[case]) for case, n in numbers.items() if case in kept)
        return Grid(("#", "case"), listed, frozenset({"#"}))
    cells = {(one.record.case, part.kind, one.record.backend): one for part in parts for one in part.judged}
    there = {(case, kind) for case, kind, _ in cells}
    baseline = _baseline_of(parts)
    against = () if baseline is None else (f"{baseline} ×",)
    following = ("next ×",) if width >= NARROW else ()
    heads = ("#", "case", *((KIND,) if several else ()), "use", "time", *against, *following)
    most = _MOST_TIES if width >= WIDE else 1
    rows: list[tuple[str, ...]] = []
    for case, n in numbers.items():
        first = (str(n), names[case])
        for part in (part for part in parts if (case, part.kind) in there):
            kind = part.kind
            lead, chosen = leads.get((case, kind), (None, ""))
            use, time = "", ""
            if lead:
                use, time = use_text(lead, chosen, most), time_text(cells[case, kind, chosen].record) or ""
            told: list[str] = []
            if baseline is not None:
                missing = missing_mark(part, case, baseline)
                told = [case_cell(cells.get((case, kind, baseline)), lead, missing=missing)]
            told += [next_text(lead, details=details) if lead else ""] if following else []
            rows.append((*first, *((kind,) if several else ()), use, time, *told))
            first = ("", "")
    gap = 2 if width >= WIDE else 1
    key = f"{KEY}   {ASKED_KEY}" if any(map(lacks_asked, parts)) else KEY
    return Grid(heads, tuple(rows), frozenset({"#", "time", *against}), gap, key, frozenset(against))


def _baseline_of(parts: Sequence[ReportPart]) -> str | None:
    """The baseline of all parts, if it is one and has a time somewhere."""
    baselines = {part.answer.baseline for part in parts if part.answer is not None}
    return baselines.pop() if len(baselines) == 1 else None


def backend_text(record: Record) -> str:
    """The backend of a record, with a coarser arithmetic."""
    return record.backend + arithmetic_text(record)


def use_text(lead: Lead, chosen: str, most: int = _MOST_TIES) -> str:
    """The backends to use: at most so many that tie by name, more by number, since the matrix marks them."""
    best = backend_text(lead.best)
    names = [best if name == lead.best.backend else name for name in lead.candidates]
    names.sort(key=lambda name: name != (best if chosen == lead.best.backend else chosen))
    return " or ".join(names) if len(names) <= most else f"any of {len(names)}"


def slower(lead: Lead) -> dict[str, TimeRatio]:
    """Return the backends that may not be as fast as the fastest of a case, the next one first."""
    others = {name: takes for name, takes in lead.over.items() if name not in lead.ties}
    return dict(sorted(others.items(), key=lambda one: one[1].ratio))


def next_text(lead: Lead, *, details: bool) -> str:
    """Name the next backend that does not tie, with its time over the fastest's."""
    few = "few repetitions" if lead.sure == "few repetitions" else ""
    others = slower(lead)
    if not others:
        return few
    name, takes = next(iter(others.items()))
    told = f"{name} {_over_fastest(takes, bounds=details)}"
    return f"{told}: {few}" if few else told


def times_text(takes: TimeRatio, *, bounds: bool = False) -> str:
    """A time over the fastest's, in the digits that its interval supports.

    bounds: with that interval, "?" where there is none.
    """
    low, high, _ = ends(takes)
    if not bounds:
        return times(takes.ratio, low, high)[0]
    text, interval = times(takes.ratio, low, high)
    return f"{text} {interval}" if interval else text + UNCERTAIN


def range_text(leads: Sequence[Lead], backend: str) -> tuple[str, int]:
    """Return a backend's least and largest time over the fastest's, and in how many cases it is slower.

    Behind them stands the interval that holds those of all these cases, "?" if one has none.
    """
    return ratios_text([others[backend] for lead in leads if backend in (others := slower(lead))])


def ratios_text(found: Iterable[TimeRatio]) -> tuple[str, int]:
    """Return the least and the largest of the ratios that are not below 1, and their number.

    Behind them stands the interval that holds those of all, "?" if one has none.
    """
    ratios = sorted((one for one in found if one.ratio >= 1), key=lambda one: one.ratio)
    if not ratios:
        return "", 0
    least, most = (times_text(one) for one in (ratios[0], ratios[-1]))
    # 3 and 3.00 are no range.
    takes = min(least, most, key=len) if float(least) == float(most) else f"{least} to {most}"
    # In the digits that each has in tables.
    known = [(one.interval, times_text(one, bounds=True).partition(" ")[2]) for one in ratios if one.interval]
    if len(known) < len(ratios):
        return takes + UNCERTAIN, len(ratios)
    low = min(known, key=lambda one: one[0].low)[1].partition(", ")[0]
    high = max(known, key=lambda one: one[0].high)[1].partition(", ")[2]
    return f"{takes} {low}, {high}", len(ratios)


def lead_text(lead: Lead, known: Sequence[str] = ()) -> str:
    """Say which backend to use in a case, what may be as fast, and what users know or brought takes.

    known: those that they brought.
    """
    best, others = lead.best, slower(lead)
    time = f"{backend_text(best)} {time_text(best)}" if lead.ties else time_text(best)
    # The words of the table.
    told = [f"use {use_text(lead, best.backend)}: {time}"]
    if lead.sure == "alone":
        return f"{told[0]}; no other backend has a time"
    if len(lead.ties) >= _MOST_TIES:
        told.append(f"{listed(lead.ties)} may be as fast")
    told_of = (TORCHS, best.baseline, *known)
    names = [name for place, name in enumerate(others) if place == 0 or name in told_of]
    if names:
        first, *more = names
        takes = [f"{first} takes {_compared_text(others[first])} times as long"]
        takes += [f"{name} {_compared_text(others[name])}" for name in more]
        told.append(", ".join(takes))
    if lead.sure == "few repetitions":
        told.append("too few repetitions to be sure")
    return "; ".join(told)


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence: a, b and c."""
    if 1 < len(names) <= MOST_LISTED:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return first_of(names, MOST_LISTED - 1)


def _compared_text(compared: TimeRatio | None, *, tight: bool = False) -> str:
    if compared is None:
        return UNCERTAIN
    value, interval = compared.ratio, compared.interval
    if interval is None:
        return number(value) + UNCERTAIN
    text, bounds = ratio(value, interval.low, interval.high)
    far = reach(value, interval.low, interval.high) or 0.0
    # ±149 % would be read as a negative time.
    return f"{text} ±{plus_minus(value, far)}" if tight and far < value else f"{text} {bounds}"


def backends_grid(part: ReportPart, answer: RunAnswer, numbers: Mapping[str, int]) -> Grid | None:
    """Return a row for each backend that ran, with a cell for each case by number.

    A cell has the time over that of the fastest; where nothing was timed, rms/ref. None for more cases than
    anybody would find again.
    """
    if len(numbers) > MOST_IN_MATRIX:
        return None
    judged = part.judged
    cells = {(one.record.case, one.record.backend): one for one in judged}
    leads = {lead.best.case: lead for lead in answer.leads}
    ran = {one.record.backend for one in judged if not MEANING[one.record.status].declined}
    coarse = {one.record.backend: text for one in judged if (text := arithmetic_text(one.record))}
    rows = []
    for name in dict.fromkeys([*(one.backend for one in answer.standings), *sorted(ran)]):
        row = (
            case_cell(cells.get((case, name)), leads.get(case), missing=missing_mark(part, case, name))
            for case in numbers
        )
        rows.append((name + coarse.get(name, ""), *row))
    places = frozenset(map(str, numbers.values()))
    heads = ("× in case" if leads else "backend", *map(str, numbers.values()))
    above = "" if leads else f"rms/ref of each backend in each case; {ABSENT}: not run"
    return Grid(heads, tuple(rows), places, above=above, marked=places if leads else frozenset())


def standings_grid(answer: RunAnswer) -> Grid:
    """Return a row for each backend: its mean ratio to the baseline, its wins and ties."""
    rows = []
    for one in answer.standings:
        is_baseline = one.backend == answer.baseline
        lacking = "not in all" if answer.common else ""
        mean = lacking if one.mean is None else "1" if is_baseline else _compared_text(one.mean, tight=True)
        rows.append((one.backend, mean, *map(str, (one.wins, one.ties, one.cases))))
    heads = ("backend", f"mean time/{answer.baseline or 'baseline'}", "wins", "ties", "cases")
    return Grid(heads, tuple(rows), frozenset(heads[1:]), 2)


def totals_grids(
    answer: RunAnswer, numbers: Mapping[str, int | str], *, details: bool = False, bounds: bool = False
) -> Iterator[Grid]:
    """Yield for each stage a row for its counted calls with each backend, and where it loses most.

    numbers: what stands for each case, its number or a name. bounds: with intervals beside times and ratios;
    details: with a column for those of times.
    """
    for totals in _stages(answer).values():
        grid = _totals_grid(answer, totals, numbers, details=details, bounds=bounds or details)
        # A row alone compares nothing; but the sentence of the step lacks the interval of its time.
        if bounds or details or len(grid.rows) > 1:
            yield grid


def _stages(answer: RunAnswer) -> dict[tuple[str, int], list[Total]]:
    """Totals by their stage and threads; the first is that of the fastest backend of each case."""
    found: dict[tuple[str, int], list[Total]] = {}
    for total in answer.totals:
        found.setdefault((total.stage, total.threads), []).append(total)
    return found


def stage_words(stage: str, threads: int) -> str:
    """Return a stage with the number of threads that it was measured with, where there are several."""
    return f"{stage or STEP} with {count_of(threads, 'thread')}" if threads else stage


def is_of_step(stage: str) -> bool:
    """Return whether counts of a stage are those of one step; of no stage nobody knows."""
    return stage != "" and not stage.endswith(IN_PROGRAM)


def most_saved_words(answers: Iterable[RunAnswer], default: str) -> str:
    """Say how long attention of a step takes with torch's function, of which a choice saves a part, or
    attention in a stage of a program; "" if nobody counted calls.

    answers: of one stage the last counts.
    """
    found = {
        (stage, threads): f"{_spread_time(total)} of {'a step of ' if is_of_step(stage) else ''}"
        f"{stage_words(stage, threads)}{without(total.without)}"
        for answer in answers
        for (stage, threads), totals in _stages(answer).items()
        for total in totals
        if total.backend == default and stage and not total.missing
    }
    if not found:
        return ""
    took = ", ".join(found.values())
    return (
        f"with torch's function, attention takes {took}, measured alone (a call takes longer "
        "between other work): that is about the most that a choice could save"
    )


def threads_words(answer: RunAnswer) -> list[str]:
    """Say for each stage with which number of threads it is the fastest, where it was measured with several.

    Compared are the totals of the fastest backend of each case.
    """
    by_stage: dict[str, list[Total]] = {}
    for (stage, threads), totals in _stages(answer).items():
        if threads:
            by_stage.setdefault(stage, []).append(totals[0])
    told, best_of = [], {}
    for stage, found in by_stage.items():
        best, *others = sorted(found, key=lambda total: total.ms)
        if not others or any(total.missing for total in found):
            continue
        times = [f"{_spread_time(best)} with {count_of(best.threads, 'thread')}"]
        times += [f"{_spread_time(total)} with {total.threads}" for total in others]
        high, low = ends(best)[1], ends(others[0])[0]
        # Apart by more than what rounding to the digits of a table hides.
        sure = high is not None and low is not None and _APART * high < low
        others_too = "".join(f" and with {total.threads}" for total in others)
        advice = (
            f"{NOT_PROVED}: time your whole program with torch.set_num_threads({best.threads}){others_too}"
        )
        if sure:
            best_of[stage] = best.threads
            advice = (
                f"call torch.set_num_threads({best.threads}) if your program has others, and time all of it"
            )
        told.append(f"attention in {stage or STEP}{without(best.without)} takes {', '.join(times)}: {advice}")
    if len(set(best_of.values())) > 1:
        each = " and ".join(f"{threads} for {stage or STEP}" for stage, threads in best_of.items())
        told.append(f"a program that does both sets its threads before each: {each}")
    return told


def steps_words(
    answer: RunAnswer,
    numbers: Mapping[str, int | str],
    suites: Mapping[str, str] = MappingProxyType({}),
    asked: Mapping[str, frozenset[str]] = MappingProxyType({}),
    *,
    busy: bool = False,
) -> dict[str, bool]:
    """Say for each stage which backend to use, and how much longer a step takes with what users have.

    Each sentence comes with whether it is proved: of a stage, that a step takes longer with what users have.
    A proved number of threads comes first, since it is what a reader can do at once. numbers: what stands for
    each case, its number or a name. suites: by case, where a report has several; the sentence of a stage of
    one suite begins with it. asked: as of :class:`~attnbench.reports.judged.ReportPart`. busy: whether a
    sentence tells which winners other work disturbed, where no line on the whole run does.
    """
    of_stages = {}
    for those in _stages(answer).values():
        own = {suites.get(case, "") for case in those[0].by_case}
        suite = [*own] if len(own) == 1 and own != {""} else []
        conditions = conditions_words(those[0].by_case)
        before = [f"{name} ({conditions})" for name in suite]
        count = count_asked(asked, those[0].by_case)
        before += [f"of the {count} backends asked"] if count else []
        words = ", ".join([*before, _step_words(answer, those, numbers)])
        of_stages[words] = _proves(answer, those)
        its = {case: str(numbers[case]) for case in those[0].by_case}
        if busy and (winners := disturbed_words(answer, its)):
            stage = stage_words(those[0].stage, those[0].threads) or STEP
            of_stages[", ".join([*suite, f"{stage}: {winners}"])] = False
    threads = {words: NOT_PROVED not in words for words in threads_words(answer)}
    sure = {words: True for words, proved in threads.items() if proved}
    return sure | of_stages | threads


def _step_words(answer: RunAnswer, totals: Sequence[Total], numbers: Mapping[str, int | str]) -> str:
    best, *others = totals
    leaders = Counter(answer.chosen[case] for case in best.by_case)
    time = _total_time(best) + (" of attention a step" if is_of_step(best.stage) else "")
    which = named(*leaders) if len(leaders) == 1 else listed(list(_shares(answer, best, leaders)))
    words = f"use {which}, {time}"
    # One backend everywhere is simpler than a choice by case, so the best of them is told too.
    rivals = [total for total in others if not is_best(total) and (len(leaders) > 1 or total.tied)]
    users = [total for total in _users(answer, totals) if total not in rivals[:1]]
    against = [_against_best(answer, best, total, numbers) for total in (*rivals[:1], *users)]
    against += _in_some_cases(answer, totals)
    head = (stage_words(best.stage, best.threads) or STEP) + without(_lacking(best, numbers))
    return "; ".join([f"{head}: {words}", *against])


def _shares(answer: RunAnswer, best: Total, leaders: Counter[str]) -> Iterator[str]:
    """Name each backend to use in a step with the number of its cases; of several rules with its own."""
    leads = [lead for lead in answer.leads if lead.best.case in best.by_case]
    rules = {case: parse_case(case).rule for case in best.by_case}
    for place, (name, count) in enumerate(leaders.most_common()):
        its = dict.fromkeys(rules[case] for case in best.by_case if answer.chosen[case] == name)
        of = f" for {listed(list(its))}" if len(set(rules.values())) > 1 else ""
        cases = f"{count}" if place else count_of(count, "case")
        ties = tied_words([lead for lead in leads if answer.chosen[lead.best.case] == name], name)
        yield f"{name}{of} in {cases}{f' ({ties})' if ties else ''}"


def tied_words(leads: Sequence[Lead], use: str) -> str:
    """Say in how many of these cases others may be as fast as the one to use, as few of them; "" in none."""
    ties = [lead for lead in leads if lead.sure == "tie"]
    if not ties:
        return ""
    rivals = dict.fromkeys(name for lead in ties for name in lead.candidates if name != use)
    others = f" with {' or '.join(rivals)}" if len(rivals) <= _MOST_TIES else ""
    where = "" if len(leads) == 1 else " in each" if len(ties) == len(leads) else f" in {len(ties)}"
    return f"tied{where}{others}"


def disturbed_words(answer: RunAnswer, names: Mapping[str, str]) -> str:
    """Say in which cases other work disturbed the backend to use, and if it leads all the same; "" in none.

    names: of the cases. Many are counted.
    """
    found = {names[case]: ratio for case, ratio in answer.chosen_disturbed.items() if case in names}
    if not found:
        return ""
    clear = {
        names[lead.best.case] for lead in answer.leads if lead.sure == "clear" and lead.best.case in names
    }
    few = len(found) <= _MOST_TIES

    def these(those: Sequence[str]) -> str:
        return listed(those) if few else count_of(len(those), "case")

    where = listed([*found]) if few else f"{len(found)} of {len(names):,} cases"
    proved = [name for name, ratio in found.items() if name in clear and not ratio]
    unsure = [name for name, ratio in found.items() if ratio]
    if len(found) == 1:
        words = f"other work disturbed the winner of {where}: its time"
        if unsure:
            return f"{words} and its lead are less sure"
        return f"{words} is less sure{', its lead is proved' if proved else ''}"
    words = f"other work disturbed the winners of {where}: their times are less sure"
    told = [f"the lead in {these(proved)} is proved"] if proved else []
    told += [f"{'that' if proved else 'the lead'} in {these(unsure)} is less sure too"] if unsure else []
    return "; ".join([words, ", ".join(told)]) if told else words


def _in_some_cases(answer: RunAnswer, totals: Sequence[Total]) -> Iterator[str]:
    """Say how much longer a step takes with what users have where that computes only some of its cases.

    So it is with torch's function beside recurrent layers, for which the backends to use stand in.
    """
    leads = [lead for lead in answer.leads if lead.best.case in totals[0].by_case]
    for total, where in _users_in_some(answer, totals[0]):
        name, over = named(total.backend or ""), total_times_text(total, bounds=True)
        if total.tied:
            takes, _ = range_text(leads, total.backend or "")
            yield f"{name} takes {takes} times as long {where}"
        else:
            yield f"with {name} {where} it takes {_total_time(total)}, {over} times as long"


def _users_in_some(answer: RunAnswer, best: Total) -> Iterator[tuple[Total, str]]:
    """Yield each total of what users have that is slower in some cases of a step and lacks others, and where.

    That is the rules that it computes, or if cases of one rule differ in that, in how many it is slower.
    """
    leads = [lead for lead in answer.leads if lead.best.case in best.by_case]
    for total in answer.partial:
        _, count = range_text(leads, total.backend or "")
        own = total.stage == best.stage and total.threads == best.threads
        if own and count and total.backend in (TORCHS, answer.baseline):
            ran = {
                lead.best.case
                for lead in leads
                if total.backend in {*lead.over, *lead.candidates, lead.best.backend}
            }
            of = {parse_case(case).rule for case in ran}
            lacks = {parse_case(case).rule for case in best.by_case if case not in ran}
            told = f"in {count} of {count_of(len(best.by_case), 'case')}"
            yield total, f"for {listed(sorted(of))}" if of.isdisjoint(lacks) else told


def _users(answer: RunAnswer, totals: Sequence[Total]) -> list[Total]:
    """Return the totals of torch's function and the baseline, where they are not the fastest."""
    known = (TORCHS, answer.baseline)
    return [total for total in totals[1:] if total.backend in known and not is_best(total)]


def _proves(answer: RunAnswer, totals: Sequence[Total]) -> bool:
    """Return whether a step is proved to take longer with what users have; where that is the fastest itself,
    whether it is so clearly in one case at least."""
    users = _users(answer, totals)
    clear = any(lead.sure == "clear" and lead.best.case in totals[0].by_case for lead in answer.leads)
    proved = any(not total.tied and ends(total.over)[0] is not None for total in users)
    return proved if users else clear


def named(backend: str) -> str:
    """Return a backend in a sentence; torch's function as such."""
    return f"torch's function ({backend})" if backend == TORCHS else backend


def _against_best(answer: RunAnswer, best: Total, total: Total, numbers: Mapping[str, int | str]) -> str:
    name = named(total.backend or "")
    if not total.tied:
        return f"{name} takes {total_times_text(total, bounds=True)} times as long"
    time = f"{_time_beside(total, best)}{f', {NOT_LESS}' if _reads_less(total, best) else ''}"
    if lost := _slower_in(answer, total):
        return f"{name} is slower in {_cases_named(lost, numbers)}, which is {NOT_OF_SUM} ({time})"
    return f"{name} may be as fast ({time})"


def _slower_in(answer: RunAnswer, total: Total) -> list[str]:
    """Return the cases of a total in which its backend is proved to be slower than the fastest.

    The sum may tie all the same: it has one value a repetition, and other cases vary in it.
    """
    few = {lead.best.case for lead in answer.leads if lead.sure == "few repetitions"}
    lost = {lead.best.case for lead in answer.leads if total.backend in slower(lead)} - few
    return [case for case in total.by_case if case in lost]


def _reads_less(total: Total, best: Total) -> bool:
    """Return whether the time of a total reads as less than that of a better one.

    Of a tie the backend to use is the one that serves most cases, which need not have the least time. What is
    slower in each repetition may lack some of those in which the machine was slow; ``×`` compares only those
    that both have.
    """
    return total.ms < best.ms and _total_time(total) != _total_time(best)


def _step_of(total: Total, numbers: Mapping[str, int | str]) -> str:
    """The calls that a total is of, and the cases that have no time."""
    words = stage_words(total.stage, total.threads) or STEP
    lacking = first_of(_lacking(total, numbers), 1)
    return (f"step of {words}" if is_of_step(total.stage) else words) + without([lacking] if lacking else [])


def _lacking(total: Total, numbers: Mapping[str, int | str]) -> tuple[str, ...]:
    """Name what a total lacks: its cases that have no time, and what no case says."""
    missing = [case for case in total.missing if case in numbers]
    return (_cases_named(missing, numbers), *total.without) if missing else total.without


def _cases_named(cases: Sequence[str], numbers: Mapping[str, int | str]) -> str:
    few = len(cases) <= _MOST_LOST
    return f"case {', '.join(str(numbers[case]) for case in cases)}" if few else f"{len(cases)} cases"


def without(left_out: Sequence[str]) -> str:
    """Name behind a step what its total lacks; "" where that is nothing."""
    return f" without {listed(left_out)}" if left_out else ""


def _total_time(total: Total) -> str:
    low, high, _ = ends(total)
    return duration(total.ms, reach(total.ms, low, high))


def _time_beside(total: Total, best: Total) -> str:
    """The time of a total; to the place of the least where its own digits would read as less than that."""
    places = [last_place(one.ms, reach(one.ms, *ends(one)[:2])) for one in (total, best)]
    shown, least = (round(one.ms, -place) for one, place in zip((total, best), places, strict=True))
    if shown < least and total.ms >= best.ms:
        return duration(total.ms, 10.0 ** places[1])
    return _total_time(total)


def _spread_time(total: Total) -> str:
    """The time of a total with its interval, where it has one."""
    low, high, _ = ends(total)
    spread = "" if low is None or high is None else f" {duration_interval(total.ms, low, high)}"
    return f"{_total_time(total)}{spread}"


def is_best(total: Total) -> bool:
    """Return whether a total is the least: its backend, if it has one, is the fastest of each case."""
    return total.over is None or ends(total.over)[:2] == (1.0, 1.0)


def total_times_text(total: Total, *, bounds: bool = False) -> str:
    """The time of a total over the least, in the digits that its interval supports; bounds: with that.

    Below 10 it has tenths at least: 1.4 as "1" would read as the fastest.
    """
    if total.over is None or is_best(total):
        return FASTEST
    if total.tied:
        return tied_text(total.over, bounds=bounds)
    low, high, _ = ends(total.over)
    text, interval = times(total.over.ratio, low, high, tenths=True)
    return " ".join(filter(None, (text, interval))) if bounds else text


def _totals_grid(
    answer: RunAnswer,
    totals: Sequence[Total],
    numbers: Mapping[str, int | str],
    *,
    details: bool,
    bounds: bool,
) -> Grid:
    best = totals[0]
    candidates = {lead.best.case: lead.candidates for lead in answer.leads}
    rows = []
    # One backend that is the fastest of each case says it all.
    told_of = totals[1:] if any(map(is_best, totals[1:])) else totals
    in_rows = sorted(told_of, key=lambda one: (not is_best(one), one.over.ratio if one.over else 1.0))
    for place, total in enumerate(in_rows):
        # Nothing is lost where it may be the fastest.
        slow = [case for case in total.by_case if total.backend not in candidates[case]]
        lost = sorted(
            ((total.by_case[case] - best.by_case[case], numbers[case]) for case in slow),
            key=lambda one: one[0],
            reverse=True,
        )
        worst = [f"{duration(ms)} in {n}" for ms, n in lost[:_MOST_LOST] if ms > _WORTH * total.ms]
        told = _sum_cells(total, best, details=details, bounds=bounds)
        worst += [NOT_OF_SUM] if worst and total.tied and _slower_in(answer, total) else []
        less = [NOT_LESS] if total.tied and _reads_less(total, best) else []
        if not total.tied and any(_reads_less(total, above) for above in (best, *in_rows[:place])):
            less = [RATIO_DECIDES]
        rows.append((total.backend or FASTEST_OF_EACH, *told, ", ".join(less or worst)))
    for total, where in _users_in_some(answer, best):
        told = _sum_cells(total, best, details=details, bounds=bounds)
        more_ms = {case: ms - best.by_case[case] for case, ms in total.by_case.items()}
        most = max(more_ms, key=more_ms.__getitem__)
        name = f"{total.backend} {where}, the rest as above"
        rows.append((name, *told, f"{duration(more_ms[most])} in {numbers[most]}"))
    columns = ("time", *(["interval"] if details else []), "×")
    last = ("loses most in case",) if any(row[-1] for row in rows) else ()
    return Grid(
        (_step_of(best, numbers), *columns, *last),
        tuple(row if last else row[:-1] for row in rows),
        frozenset(columns),
        2,
        marked=frozenset({"×"}),
    )


def _sum_cells(total: Total, best: Total, *, details: bool, bounds: bool) -> tuple[str, ...]:
    """Return the time of a sum, its interval with ``details``, and its ratio."""
    low, high, _ = ends(total)
    spread = UNCERTAIN if low is None or high is None else duration_interval(total.ms, low, high)
    time = _time_beside(total, best)
    over = total_times_text(total, bounds=bounds)
    return (time, spread, over) if details else (f"{time} {spread}" if bounds else time, over)


def case_cell(
    judged: JudgedRecord | None, lead: Lead | None, *, bounds: bool = False, missing: str = ABSENT
) -> str:
    """The time of a backend over that of the fastest of a case; where nothing is timed, its rms/ref.

    bounds: with the interval of the ratio, of a tie its upper end. missing: what stands for no record.
    """
    if judged is None:
        return missing
    record = judged.record
    if record.status != "ok":
        return ABSENT if MEANING[record.status].declined else MEANING[record.status].short
    if lead is None or record.median_ms is None:
        return "ok" if record.accuracy is None else number(record.accuracy.error_budget)
    takes = lead.over.get(record.backend)
    if lead.ties and record.backend in lead.candidates:
        return tied_text(takes, bounds=bounds)
    return FASTEST if takes is None else _over_fastest(takes, bounds=bounds)


def _over_fastest(takes: TimeRatio, *, bounds: bool) -> str:
    """The time of what does not tie over the fastest's. Of too few repetitions nothing ties, but a ratio of
    pairs may be below 1."""
    return tied_text(takes, bounds=bounds) if takes.ratio < 1 else times_text(takes, bounds=bounds)


def tied_text(takes: TimeRatio | None, *, bounds: bool = False) -> str:
    """The mark of what may be the fastest; bounds: with how many times as long it may take.

    Its ratio has no number: in pairs of samples it may be below 1, beside a 1 for the least time.
    """
    low, high, _ = ends(takes)
    if not bounds or takes is None or low is None or high is None:
        return TIED
    end = upper_end(takes.ratio, low, high)
    return f"{TIED} [up to {end}]" if float(end) > 1 else TIED


def over_columns(
    columns: Sequence[Column], parts: Sequence[ReportPart], *, bounds: bool = False
) -> list[Column]:
    """Return columns in which times over the fastest's are those of the answer, which marks ties.

    bounds: with the intervals, of ties too.
    """
    leads: dict[tuple[str, str, str], Lead] = {}
    for part in parts:
        by_case = {} if part.answer is None else {lead.best.case: lead for lead in part.answer.leads}
        leads |= {
            (one.record.case, one.run, one.device_kind): by_case[one.record.case]
            for one in part.judged
            if one.record.case in by_case
        }

    def in_answer(column: Column) -> Column:
        def cell(one: JudgedRecord) -> str | None:
            lead = leads.get((one.record.case, one.run, one.device_kind))
            if lead is None or one.record.status != "ok" or one.record.ratio_to_best is None:
                return column.cell(one)
            return case_cell(one, lead, bounds=bounds)

        return replace(column, cell=cell)

    return [in_answer(column) if column.head == "×best" else column for column in columns]


def mean_words(answer: RunAnswer, numbers: Mapping[str, int]) -> str:
    """Explain the columns of :func:`standings_grid`."""
    words = "wins: cases where it is the fastest; ties: where it may be"
    if not answer.common:
        return words
    few = f"cases {case_list(numbers[case] for case in answer.common)}"
    over = "all cases" if len(answer.common) == len(answer.leads) else few
    return f"mean: geometric, of {over}, ± over repetitions; {words}"


def busy_text(*answers: RunAnswer, of_all: bool = True) -> str:
    """Say that other processes disturbed these runs, and whether the fastest; "" where they did not.

    of_all: of all runs; it says what helps too, and nothing where a few were.
    """
    count, timed = sum(one.disturbed for one in answers), sum(one.timed for one in answers)
    if not (is_busy(count, timed) if of_all else count):
        return ""
    was = "was" if count == 1 else "were"
    fastest = sum(len(one.chosen_disturbed) for one in answers)
    among = (
        "the fastest of a case"
        if fastest == count == 1
        else f"{fastest or 'none'} of them the fastest of a case"
    )
    remedy = "use an idle machine, or a longer --budget"
    if all(one.crowded for one in answers if one.disturbed):
        # Nobody else need be there: what takes the samples runs beside them.
        remedy = "with as many threads as cores attnbench itself disturbs too"
        remedy += ": use a longer --budget" if fastest else ""
    words = f"{count} of {count_of(timed, 'measurement')} {was} disturbed, {among}"
    return f"{words}: {remedy}" if of_all else words
