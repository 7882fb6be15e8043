"""The answer of a run as cells and rows: the fastest backend of each case, and each backend over the cases.

Tables, Markdown, JSON, CSV, frames and the page all take it from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnbench.reports.columns import KIND, UNCERTAIN, arithmetic_text, time_text
from attnbench.reports.judged import JudgedRecord, ReportPart
from attnbench.reports.names import short_names
from attnbench.reports.units import duration, duration_interval, number, plus_minus, ratio, reach
from attnbench.stats.answer import Lead, RunAnswer, TimeRatio, Total
from attnbench.stats.tests import ends
from attnbench.types.record import Record
from attnbench.types.status import MEANING
from attnbench.types.words import count_of

if TYPE_CHECKING:
    import pandas as pd

FASTEST, TIED, UNSURE, BOTH, ABSENT = "*", "=", "?", "~", "–"
WIDE = 100
"""From so many characters on there is room for two spaces between columns."""
BUSY_SHARE = 0.1
"""A run with a larger share of disturbed measurements says so."""
FEW_CASES = 0.25
"""A backend without a mean and with no more than this share of the cases has no line in the matrix."""
MOST_IN_MATRIX = 1000
"""The matrix of backends has cells for no more cases."""
_MOST_TIES = 3
STEP, FASTEST_OF_EACH = "all counted calls", "the fastest of each case"
_MOST_LOST, _WORTH = 3, 0.01
"""A total names so many cases in which it loses most, if each is so large a share of it."""

SUMMARY: dict[str, tuple[str, str]] = {
    "kind": (
        "str",
        "`case`: the fastest backend of a case. `backend`: a backend over the common cases. `step`: all "
        "counted calls, with one backend, or with the fastest of each case where `backend` is missing.",
    ),
    "case": ("str", "Id of the case."),
    "backend": ("str", "The fastest backend, or the backend."),
    "median_ms": ("float64", "Its time in the case, or in one step."),
    "low_ms": ("float64", "Lower end of the interval of that time."),
    "high_ms": ("float64", "Upper end of that interval."),
    "ratio": ("float64", "Its ratio in the case, or the geometric mean of its ratios over the common cases."),
    "ratio_low": ("float64", "Lower end of the interval of the ratio."),
    "ratio_high": ("float64", "Upper end of that interval."),
    "confidence": ("float64", "Confidence of that interval, or of that of the time in one step."),
    "baseline": ("str", "The backend that the ratio is to."),
    "sure": ("str", "`clear`, `tie`, `few sets` or `alone`: how sure the lead is."),
    "ties": ("str", "The backends that are not shown to be slower."),
    "next": ("str", "The next backend."),
    "next_ratio": ("float64", "Its time over that of the fastest."),
    "next_low": ("float64", "Lower end of the interval of that ratio."),
    "next_high": ("float64", "Upper end of that interval."),
    "cases": ("Int64", "Cases that the backend has a time for."),
    "stage": ("str", "The part of a step that its counted calls are of, as `decode`; missing for all of it."),
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
            | {"stage": total.stage or None}
            | {"median_ms": total.ms, "low_ms": low, "high_ms": high, "confidence": confidence}
        )
    return rows


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
    """A table of text. right: the heads whose cells are aligned to the right. gap: spaces between columns."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str]
    gap: int = 1


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


def cases_grid(parts: Sequence[ReportPart], width: int = 1000) -> Grid:
    """Return a row for each case: its number and short id, its fastest backend, time, and how sure that is.

    On several kinds of device a case has a row for each kind. Texts are shortened so that a line has at most
    ``width`` characters, if that is possible.
    """
    numbers, several = case_numbers(parts), len(parts) > 1
    names = short_names(numbers)
    leads = {(lead.best.case, part.kind): lead for part in parts if part.answer for lead in part.answer.leads}
    if not leads:
        listed = tuple((str(n), names[case]) for case, n in numbers.items())
        return Grid(("#", "case"), listed, frozenset({"#"}))
    there = {(one.record.case, part.kind) for part in parts for one in part.judged}
    heads = ("#", "case", *((KIND,) if several else ()), "fastest", "time", "next × as long, or ties")
    known: list[tuple[str, ...]] = []
    shown: list[Lead | None] = []
    for case, n in numbers.items():
        first = (str(n), names[case])
        for kind in (part.kind for part in parts if (case, part.kind) in there):
            lead = leads.get((case, kind))
            who, time = (_who(lead.best), time_text(lead.best) or "") if lead else ("", "")
            known.append((*first, *((kind,) if several else ()), who, time))
            shown.append(lead)
            first = ("", "")
    gap = 2 if width >= WIDE else 1
    room = width - sum(max(map(len, column)) + gap for column in zip(heads[:-1], *known, strict=True))
    tight = any(len(_next_text(lead, room)) > room for lead in leads.values())
    last = [_next_text(lead, room, tight=tight) if lead else "" for lead in shown]
    rows = tuple((*cells, text) for cells, text in zip(known, last, strict=True))
    return Grid(heads, rows, frozenset({"#", "time"}), gap)


def _who(record: Record) -> str:
    return record.backend + arithmetic_text(record)


def lead_text(lead: Lead) -> str:
    """Say in a sentence which backend is the fastest of a case, and how sure that is."""
    best = f"{_who(lead.best)}, {time_text(lead.best)}"
    if lead.following is None:
        return f"only {best}"
    if lead.sure == "tie":
        return f"fastest: {best}, {_next_text(lead)}"
    few = "; too few sets to be sure" if lead.sure == "few sets" else ""
    return f"fastest: {best}; {_who(lead.following)} takes {_compared_text(lead.takes)} times as long{few}"


def _next_text(lead: Lead, room: int = 1000, *, tight: bool = False) -> str:
    """Name those that may be as fast, as many as there is room for; without a tie the next backend."""
    if lead.sure == "tie":
        count = len(lead.ties)
        texts = [
            f"or {', '.join(lead.ties[:shown])}{f' +{count - shown} more' if shown < count else ''}"
            for shown in range(min(count, _MOST_TIES), 0, -1)
        ]
        return next((text for text in texts if len(text) <= room), texts[-1])
    if lead.following is None:
        return ""
    few = ": few sets" if lead.sure == "few sets" else ""
    return f"{_who(lead.following)} {_compared_text(lead.takes, tight=tight)}{few}"


def takes_text(compared: TimeRatio | None) -> str:
    """The number of a quotient, without its interval; "" for None."""
    return "" if compared is None else ratio(compared.ratio, *ends(compared)[:2])[0]


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


def backends_grid(
    judged: Sequence[JudgedRecord], answer: RunAnswer, numbers: Mapping[str, int]
) -> tuple[Grid, str]:
    """Return a row for each backend that ran: its mean, its wins, and a cell for each case by number.

    Backends that ran in few cases are not in the grid but in a sentence, which may be "". Of many cases
    there are no cells, which nobody would find again; the sentence then says where they are.
    """
    many = ""
    if len(numbers) > MOST_IN_MATRIX:
        many = f"more than {MOST_IN_MATRIX:,} cases: --csv and --html have the ratio in each"
        numbers = {}
    cells = {(one.record.case, one.record.backend): one for one in judged}
    leads = {lead.best.case: lead for lead in answer.leads}
    ran = Counter(one.record.backend for one in judged if not MEANING[one.record.status].declined)
    wins = {one.backend: f"{one.wins}+{one.ties}" if one.ties else str(one.wins) for one in answer.standings}
    means = {one.backend: _compared_text(one.mean, tight=True) for one in answer.standings if one.mean}
    if answer.baseline in means:
        means[answer.baseline] = "1"
    columns = {head: column for head, column in (("mean", means), ("wins", wins)) if column}
    rows, others = [], []
    coarse = {one.record.backend: text for one in judged if (text := arithmetic_text(one.record))}
    for name in dict.fromkeys([*wins, *ran]):
        row = [_cell(cells.get((case, name)), leads.get(case)) for case in numbers]
        if not many and name not in means and ran[name] <= FEW_CASES * len(numbers):
            placed = zip(numbers.values(), row, strict=True)
            shown = (f"{text} in {n}" for n, text in placed if text not in ("", ABSENT))
            others.append(f"{name} {', '.join(shown)}")
            continue
        told = (column.get(name, "") for column in columns.values())
        rows.append((name + coarse.get(name, ""), *told, *row))
    places = [str(place) for place in numbers.values()]
    words = f"in few cases: {'; '.join(others)}" if others else many
    return Grid(("backend", *columns, *places), tuple(rows), frozenset([*columns, *places])), words


def totals_grids(answer: RunAnswer, numbers: Mapping[str, int]) -> Iterator[Grid]:
    """Yield for each stage a row for its counted calls with each backend, and where it loses most."""
    for stage in dict.fromkeys(total.stage for total in answer.totals):
        yield _totals_grid([total for total in answer.totals if total.stage == stage], numbers)


def _totals_grid(totals: Sequence[Total], numbers: Mapping[str, int]) -> Grid:
    best = totals[0]
    rows = []
    for total in totals:
        low, high, _ = ends(total)
        spread = UNCERTAIN if low is None or high is None else duration_interval(total.ms, low, high)
        time = duration(total.ms, reach(total.ms, low, high))
        lost = sorted(
            ((ms - best.by_case[case], numbers[case]) for case, ms in total.by_case.items()), reverse=True
        )
        worst = [f"{duration(ms)} in {n}" for ms, n in lost[:_MOST_LOST] if ms > _WORTH * total.ms]
        rows.append((total.backend or FASTEST_OF_EACH, time, spread, ", ".join(worst)))
    missing = [str(numbers[case]) for case in best.missing if case in numbers]
    named = f"case {', '.join(missing)}" if len(missing) <= _MOST_LOST else f"{len(missing)} cases"
    step = f"{STEP} of {best.stage}" if best.stage else STEP
    head = f"{step} but {named}" if missing else step
    numbers_of = frozenset({"time", "interval"})
    return Grid((head, "time", "interval", "loses most in case"), tuple(rows), numbers_of)


def _cell(judged: JudgedRecord | None, lead: Lead | None) -> str:
    """The marks and the ratio of a backend in a case; where nothing is timed, its rms/ref."""
    if judged is None:
        return ""
    record = judged.record
    if record.status != "ok":
        return ABSENT if MEANING[record.status].declined else MEANING[record.status].short
    if record.ratio is not None:
        text = _two_places(record.ratio)
    elif record.median_ms is not None:
        text = time_text(record) or ""
    else:
        return "ok" if record.accuracy is None else number(record.accuracy.error_budget)
    unsure = judged.verdict == "unclear"
    if lead is None or lead.sure == "alone" or record.backend not in (lead.best.backend, *lead.ties):
        return (UNSURE if unsure else "") + text
    if lead.sure == "clear":
        return FASTEST + text
    return (BOTH if unsure else TIED) + text


def _two_places(value: float) -> str:
    return "1" if value == 1 else number(value, 0.0, most=3 if 1 <= value < 10 else 2)


def key_lines(answer: RunAnswer, numbers: Mapping[str, int]) -> list[str]:
    """Explain the marks of the matrix, and its columns. numbers: of the cases."""
    if not answer.leads:
        return [f"rms/ref of each backend in each case; {ABSENT} not run"]
    name, mean = answer.baseline, ""
    marks = f"{FASTEST}: fastest; {TIED}: may be the fastest"
    if name is not None:
        unsure = f"{UNSURE}: unclear against {name}; {BOTH}: {TIED} and {UNSURE}"
        marks = f"× {name}'s time; {marks}; {unsure}"
    marks += f"; {ABSENT}: not run"
    if common := answer.common:
        few = f"cases {case_list(numbers[case] for case in common)}"
        over = "all cases" if len(common) == len(answer.leads) else few
        mean = f"mean: geometric, of {over}, ± over repetitions. "
    return [marks, f"{mean}wins: cases where it is + may be the fastest"]


def busy_text(answer: RunAnswer) -> str:
    """Say that other processes disturbed the run; "" where they did not."""
    if answer.disturbed <= BUSY_SHARE * answer.timed:
        return ""
    return (
        f"{answer.disturbed} of {count_of(answer.timed, 'measurement')} were disturbed: use an idle machine, "
        "or --budget 1 (seconds)"
    )
