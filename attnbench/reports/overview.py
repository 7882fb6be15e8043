"""The overview of several cases: missing backends, the fastest of each case, and the matrix of ratios."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attnbench.reports.answer import (
    ABSENT,
    FASTEST,
    TIED,
    UNSURE,
    Grid,
    backends_grid,
    cases_grid,
    key_text,
    totals_grid,
)
from attnbench.reports.formats import bare_table
from attnbench.reports.judged import Judged
from attnbench.reports.names import shared_words
from attnbench.stats.answer import Answer
from attnbench.stats.sign_test import LEVEL, fewest_sets
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, Status, status_words
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from rich.console import Console


FEW_SETS = f"few sets: to win a case takes {fewest_sets(LEVEL)} sets, see --sets and --budget"
_MARK_STYLES = {FASTEST: "bold green", TIED: "green", UNSURE: "dim", ABSENT: "dim"}


def counted(records: Sequence[Record]) -> str:
    """Count the cases, and the records of each status."""
    counts = Counter(record.status for record in records)
    said = ", ".join(f"{counts[status]} {status_words(status)}" for status in STATUSES if counts[status])
    return f"{count_of(len({record.case for record in records}), 'case')}: {said or 'no records'}"


def print_answer(console: Console, judged: Sequence[Judged], answer: Answer) -> set[str]:
    """Print the fastest backend of each case, and each backend over all cases; return the heads."""
    records = [one.record for one in judged]
    cases, counts = counted(records).split(":", 1)
    console.print(f"{cases}, all {shared_words(record.case for record in records)}:{counts}")
    _print_absent(console, records)
    console.print()
    numbered = cases_grid(judged, answer, console.width)
    _print_grid(console, numbered)
    console.print()
    backends, others = backends_grid(judged, answer)
    for part in _parts(backends, console.width):
        _print_grid(console, part)
    print_lines(console, filter(None, (others, key_text(answer))))
    if any(lead.sure == "few sets" for lead in answer.leads):
        print_lines(console, [FEW_SETS])
    return {"time", "verdict", *numbered.heads, *backends.heads} if answer.leads else {"rms/ref"}


def print_totals(console: Console, judged: Sequence[Judged], answer: Answer) -> None:
    """Print what all counted calls take, where they were counted."""
    totals = totals_grid(judged, answer)
    if totals is not None:
        console.print()
        _print_grid(console, totals)


def _parts(grid: Grid, width: int) -> Iterator[Grid]:
    """Divide a grid of too many cases; each part begins with the same columns."""
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


def _print_grid(console: Console, grid: Grid) -> None:
    from rich.text import Text

    block = bare_table(1)
    for head in grid.heads:
        right, folds = head in grid.right, head == "case"
        block.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=not folds)
    for row in grid.rows:
        block.add_row(*(Text(cell, style=_MARK_STYLES.get(cell[:1], "")) for cell in row))
    console.print(block)


def _print_absent(console: Console, records: Sequence[Record]) -> None:
    """Print each failure and each reason why backends do not run, once for the run."""
    from rich.text import Text

    numbers = {case: place for place, case in enumerate(dict.fromkeys(r.case for r in records), start=1)}
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
    for head, those in (
        ("not here", [record for record in declined if record.backend not in ran]),
        (f"not in all cases ({ABSENT})", [record for record in declined if record.backend in ran]),
    ):
        sentences = [
            f"{names} ({reason})" for reason, names in gathered(zip(_reasons(those), those, strict=True))
        ]
        if sentences:
            print_lines(console, [f"{head}: {'; '.join(sentences)}"])


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
