"""The map of a run: a row for each case, a column for each backend, times as long as the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from attnbench.reports.answer import (
    ABSENT,
    ASKED_KEY,
    FASTEST,
    NOT_ASKED,
    TIED,
    case_cell,
    lacks_asked,
    missing_mark,
    tied_text,
    times_text,
)
from attnbench.reports.columns import KERNEL_CONVENTION, name_text, ratio_text
from attnbench.reports.judged import JudgedRecord, ReportPart
from attnbench.stats.answer import Lead, RunAnswer, contended
from attnbench.types.compared import HEAD, parts_of
from attnbench.types.record import Record
from attnbench.types.status import MEANING, status_words

STEPS = (1.25, 2.0, 5.0)
"""Where a cell takes the next colour."""
OF_FASTEST = (
    f"Times as long as the fastest of the case, in pairs of samples. {FASTEST}: the fastest; "
    f"{TIED}: may be the fastest; {ABSENT}: not run."
)
_ORDER = (
    "First stand backends to use, then torch's function and the baseline, then the others by their means."
)
OF_BASE = f"Times as long as base. {TIED}: may be as fast; {ABSENT}: not run."


@dataclass(frozen=True)
class Tile:
    """A backend on a case. tone: its colour, a class of the style sheet. title: the same in words."""

    text: str
    tone: str
    title: str


@dataclass(frozen=True)
class Heat:
    """The map. key: what its numbers are. rows: by case, a cell for each backend."""

    key: str
    backends: tuple[str, ...]
    rows: Mapping[str, tuple[Tile, ...]]


def heat_of(part: ReportPart, users: Sequence[str]) -> Heat | None:
    """Return the map of a part of a report; None where nothing is timed.

    In a live comparison the numbers are those of the head side over the base side. users: backends that users
    have, which stand behind those that lead.
    """
    live = part.answer is None
    shown = [one for one in part.judged if not live or parts_of(one.record.backend)[1] == HEAD]
    if not any(one.record.median_ms is not None for one in shown):
        return None
    leads = {} if part.answer is None else {lead.best.case: lead for lead in part.answer.leads}
    column = _columns(one.record for one in shown if not MEANING[one.record.status].declined)
    names = dict.fromkeys(column.values())
    if part.answer is not None:
        names = _ordered(names, part.answer, users)
    by_case: dict[str, dict[str, JudgedRecord]] = {}
    for one in shown:
        name = column.get(name_text(one.record), name_text(one.record))
        by_case.setdefault(one.record.case, {})[name] = one
    rows = {
        case: tuple(
            _cell(those[name], leads.get(case), live) if name in those else _missing(part, case, name)
            for name in names
        )
        for case, those in by_case.items()
    }
    key = OF_BASE if live else OF_FASTEST
    if lacks_asked(part):
        key += f" {ASKED_KEY}."
    if any(one.record.kernel_of for one in shown):
        key += f" {KERNEL_CONVENTION}."
    if users:
        key += f" {_ORDER}"
    return Heat(key, tuple(names), rows)


def _columns(records: Iterable[Record]) -> dict[str, str]:
    """Return the column of each name: a backend that says more of itself in one way has that column only.

    Of a case that it fails in, nobody knows the kernel that it would run.
    """
    names: dict[str, dict[str, None]] = {}
    for record in records:
        names.setdefault(record.backend, {})[name_text(record)] = None
    return {
        name: next((one for one in own if one != backend), name) if len(own) == 2 else name
        for backend, own in names.items()
        for name in own
    }


def _ordered(names: Mapping[str, None], answer: RunAnswer, users: Sequence[str]) -> dict[str, None]:
    """Put the backends that lead most cases first, then those of users, then those of the least mean."""
    leading = set(answer.chosen.values())
    standing = [one.backend for one in answer.standings]

    def place(name: str) -> tuple[bool, bool, int]:
        backend = _backend_of(name)
        mean = standing.index(backend) if backend in standing else len(standing)
        return backend not in leading, backend not in users, mean

    return dict.fromkeys(sorted(names, key=place))


def _backend_of(name: str) -> str:
    """Return the backend of a column, whose name may say more of it."""
    return name.partition(" → ")[0].partition(" (")[0]


def _missing(part: ReportPart, case: str, name: str) -> Tile:
    """The cell of a column that a case has no record for."""
    mark = missing_mark(part, case, _backend_of(name))
    return Tile(mark, "absent", "not asked" if mark == NOT_ASKED else "not run")


def _cell(one: JudgedRecord, lead: Lead | None, live: bool) -> Tile:
    record = one.record
    if record.status != "ok":
        if MEANING[record.status].declined:
            return Tile(ABSENT, "absent", f"{status_words(record.status)}: {record.reason}")
        return Tile(MEANING[record.status].short, "failed", f"{status_words(record.status)}: {record.reason}")
    if live:
        return _against_base(one)
    if lead is None or record.median_ms is None:
        return Tile(ABSENT, "absent", "not timed")
    text = case_cell(one, lead)
    if record.backend == lead.best.backend:
        if contended(record):
            return Tile(text, "likely", "the fastest, less sure: other work disturbed most of its samples")
        return Tile(text, "tied" if lead.ties else "best", f"{'may be ' if lead.ties else ''}the fastest")
    over = lead.over[record.backend]
    title = f"{times_text(over, bounds=True)} times as long as {lead.best.backend}"
    if text == TIED:
        up_to = tied_text(over, bounds=True).removeprefix(TIED)
        return Tile(text, "tied", f"may be as fast as {lead.best.backend}{up_to}")
    # By the number that is shown: 1.2476 reads as 1.25.
    return Tile(text, _tone(float(text)), title)


def _against_base(one: JudgedRecord) -> Tile:
    record = one.record
    if record.ratio is None:
        return Tile(ABSENT, "absent", "nothing to compare with")
    text = ratio_text(record)[0]
    if one.verdict == "faster":
        return Tile(text, "best", "faster than base")
    if one.verdict == "slower":
        return Tile(text, _tone(max(record.ratio, STEPS[0])), "slower than base")
    return Tile(TIED, "tied", f"{text} ×, {one.verdict}")


def _tone(ratio: float) -> str:
    return f"step{sum(ratio >= step for step in STEPS)}"
