"""The overview of several cases: missing backends, the fastest of each case, and the matrix of ratios."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attnbench.reports.answer import (
    ABSENT,
    BOTH,
    FASTEST,
    TIED,
    UNSURE,
    Grid,
    backends_grid,
    busy_text,
    case_list,
    cases_gap,
    cases_grid,
    key_lines,
    numbered,
    totals_grid,
)
from attnbench.reports.columns import KIND
from attnbench.reports.formats import bare_table
from attnbench.reports.judged import Judged, Part
from attnbench.reports.names import shared_words
from attnbench.stats.answer import Answer
from attnbench.stats.sign_test import LEVEL, fewest_sets
from attnbench.types.device import UNKNOWN
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, Status, status_words
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from rich.console import Console


FEW_SETS = f"few sets: to win a case takes {fewest_sets(LEVEL)} sets, see --sets and --budget"
_MARK_STYLES = {FASTEST: "bold green", TIED: "green", BOTH: "dim", UNSURE: "dim", ABSENT: "dim"}


def counted(records: Sequence[Record]) -> str:
    """Count the cases, and the records of each status."""
    counts = Counter(record.status for record in records)
    said = ", ".join(f"{counts[status]} {status_words(status)}" for status in STATUSES if counts[status])
    return f"{count_of(len({record.case for record in records}), 'case')}: {said or 'no records'}"


def print_answer(console: Console, parts: Sequence[Part], *, reasons: bool) -> set[str]:
    """Print the fastest backend of each case, and each backend over all cases; return the heads.

    The cases of all kinds of device stand in one table; then each kind has a part of its own. reasons: say
    why there are no ratios.
    """
    from rich.text import Text

    several, cases = len(parts) > 1, cases_grid(parts, console.width)
    heads: set[str] = set()
    records = [one.record for part in parts for one in part.judged]
    shared = shared_words(record.case for record in records)
    console.print(counted(records).replace(":", f", all {shared}:" if shared else ":", 1))
    if several:
        console.print()
        _print_grid(console, cases, cases_gap(console.width))
    for part, answer, numbers in numbered(parts):
        records = [one.record for one in part.judged]
        if several:
            console.print(Text(f"\n{part_head(part)}", style="bold"))
            console.print(counted(records))
        else:
            print_lines(console, [machine_line(part)])
        _print_absent(console, records, numbers)
        console.print()
        if not several:
            _print_grid(console, cases, cases_gap(console.width))
            console.print()
        backends, others = backends_grid(part.judged, answer, numbers)
        for block in _blocks(backends, console.width):
            _print_grid(console, block)
        few = FEW_SETS if any(lead.sure == "few sets" for lead in answer.leads) else ""
        print_lines(console, filter(None, (others, *key_lines(answer, numbers), few)))
        print_lines(console, no_ratios(part.judged) if reasons else ())
        print_end(console, answer, numbers)
        if answer.leads:
            heads |= {"time", "verdict", *cases.heads, *backends.heads}
    return heads or {"rms/ref"}


def part_head(part: Part) -> str:
    """Return the kind of device of a part, with its runs, and how much of them other runs replace."""
    again = f"; {count_of(part.again, 'other measurement')} of its cases left out" if part.again else ""
    torch = f", torch {part.torch}" if part.torch else ""
    return f"{part.kind}: {count_of(len(part.runs), 'run')}{again}{torch}"


def machine_line(part: Part) -> str:
    """Return where a part was measured, and what ``ok`` means."""
    known = ("" if part.kind == UNKNOWN else part.kind, part.torch and f"torch {part.torch}")
    return "; ".join(filter(None, (", ".join(filter(None, known)), "ok: right by the float64 oracle")))


def print_end(console: Console, answer: Answer, numbers: Mapping[str, int]) -> None:
    """Print what all counted calls take, where they were counted, and whether the machine was busy."""
    totals = totals_grid(answer, numbers)
    if totals is not None:
        console.print()
        _print_grid(console, totals)
    if busy := busy_text(answer):
        console.print(busy, style="yellow")


def timed(judged: Sequence[Judged]) -> list[Record]:
    """Return the records with a time."""
    return [one.record for one in judged if one.record.status == "ok" and one.record.median_ms is not None]


def no_ratios(judged: Sequence[Judged]) -> list[str]:
    """Say why there are no ratios, in a list that is empty where there are some."""
    records = timed(judged)
    if not records or any(record.ratio is not None for record in records):
        return []
    return [f"no ratios: the baseline {records[0].baseline} has no time; run it too"]


def _blocks(grid: Grid, width: int) -> Iterator[Grid]:
    """Divide a grid of too many cases; each block begins with the same columns."""
    first = len([head for head in grid.heads if not head.isdecimal()])
    columns = list(zip(grid.heads, *grid.rows, strict=True))
    widths = [max(map(len, column)) + 1 for column in columns]
    least = sum(widths[:first])
    count = len(columns) - first
    if not count:
        return
    each = max(1, (width - least + 1) // max(widths[first:]))
    if least + sum(widths[first:]) <= width + 1:
        each = count
    each = -(-count // -(-count // each))
    for start in range(first, len(columns), each):
        heads, *rows = zip(*columns[:first], *columns[start : start + each], strict=True)
        yield Grid(heads, tuple(rows), grid.right)


def _print_grid(console: Console, grid: Grid, gap: int = 1) -> None:
    from rich.text import Text

    block = bare_table(gap)
    for head in grid.heads:
        right, folds = head in grid.right, head in ("case", KIND)
        block.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=not folds)
    for row in grid.rows:
        block.add_row(*(Text(cell, style=_MARK_STYLES.get(cell[:1], "")) for cell in row))
    console.print(block)


def _print_absent(console: Console, records: Sequence[Record], numbers: Mapping[str, int]) -> None:
    """Print each failure and each reason why backends do not run, once for the run."""
    from rich.text import Text

    failed: dict[tuple[Status, str, str], list[int]] = {}
    for record, reason in zip(records, _reasons(records), strict=True):
        if record.status != "ok" and not MEANING[record.status].declined:
            failed.setdefault((record.status, record.backend, reason), []).append(numbers[record.case])
    for (status, name, reason), where in failed.items():
        places = f"case{'s' if len(where) > 1 else ''} {', '.join(map(str, where))}"
        words = f"{status_words(status)}: {name} in {places}: {reason}"
        console.print(Text(words, style=MEANING[status].style))
    ran = {record.backend for record in records if not MEANING[record.status].declined}
    declined = [record for record in records if MEANING[record.status].declined]
    nowhere = [record for record in declined if record.backend not in ran]
    sentences = [f"{names} ({why})" for why, names in gathered(zip(_reasons(nowhere), nowhere, strict=True))]
    lines = [f"not here: {'; '.join(sentences)}"] if sentences else []
    print_lines(console, lines + _not_everywhere([one for one in declined if one.backend in ran], numbers))


def _not_everywhere(records: Sequence[Record], numbers: Mapping[str, int]) -> list[str]:
    """Say in which cases backends do not run, and why: a line for the same cases and reason."""
    places: dict[tuple[str, str], list[int]] = {}
    for reason, record in zip(_reasons(records), records, strict=True):
        places.setdefault((reason, record.backend), []).append(numbers[record.case])
    alike: dict[tuple[str, str], list[str]] = {}
    for (reason, name), cases in places.items():
        alike.setdefault((case_list(cases), reason), []).append(name)
    return [
        f"{ABSENT} in case{'s' * (not cases.isdecimal())} {cases}: {', '.join(names)} ({why})"
        for (cases, why), names in alike.items()
    ]


def _reasons(records: Sequence[Record]) -> list[str]:
    """The reasons of records; of those that differ in numbers alone the first, and without names of rules.

    A failure is the backend's own, so it is not told with another backend's numbers.
    """
    masked = [re.sub(rf"\b{re.escape(record.rule)}\b", "this rule", record.reason) for record in records]
    keys = [
        ("" if MEANING[record.status].declined else record.backend, re.sub(r"\d[\d.]*", "0", mask))
        for record, mask in zip(records, masked, strict=True)
    ]
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, record in zip(keys, records, strict=True):
        alike.setdefault(key, []).append((record.rule, record.reason))
    return [
        mask if len({rule for rule, _ in alike[key]}) > 1 else alike[key][0][1]
        for key, mask in zip(keys, masked, strict=True)
    ]


def gathered(pairs: Iterable[tuple[str, Record]]) -> list[tuple[str, str]]:
    """List each text once, with the names of its backends."""
    names: dict[str, dict[str, None]] = {}
    for text, record in pairs:
        names.setdefault(text, {})[record.backend] = None
    return [(text, ", ".join(those)) for text, those in names.items()]


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines in a soft colour."""
    for line in lines:
        console.print(line, style="dim")
