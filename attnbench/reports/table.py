"""The table that a run ends with: a block for each case, fastest first, and why the others aren't in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attnbench.reports.columns import GAP, NAMES, STYLES, VERDICT, Column, fitting, name_text, time_text
from attnbench.reports.console import string_console, written
from attnbench.reports.footer import footer
from attnbench.reports.judged import Judged
from attnbench.types.record import STATUSES, Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_QUIET = ("unsupported", "unavailable")
_STYLE = {"suspect": "yellow", "unsupported": "dim", "unavailable": "dim"}


def table(judged: Sequence[Judged], width: int = 120, *, colour: bool = False, trace: bool = False) -> str:
    """The records of a run as a table of at most ``width`` columns (60 at least); only ids may be longer.

    trace: show what each call ran, below its case.
    """
    console = string_console(width, colour=colour)
    by_case: dict[str, list[Judged]] = {}
    for one in judged:
        by_case.setdefault(one.record.case, []).append(one)
    columns, widths = fitting([one for one in judged if one.record.status == "ok"], console.width)
    for case, group in by_case.items():
        console.print(case, style="bold", soft_wrap=True)
        _print_block(console, group, columns, widths)
        _print_others(console, [one.record for one in group])
        if trace:
            _print_ran(console, [one.record for one in group])
        _print_notes(console, [one.record for one in group])
        console.print()
    for note in footer(judged, {column.head for column in columns}):
        console.print(note, style="dim")
    return written(console)


def _print_block(
    console: Console, group: Iterable[Judged], columns: Sequence[Column], widths: Sequence[int]
) -> None:
    from rich.padding import Padding
    from rich.table import Table

    right = sorted((one for one in group if one.record.status == "ok"), key=_time)
    if not right:
        return
    block = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    block.add_column(NAMES, width=widths[0], overflow="fold")
    for column, width in zip(columns, widths[1:], strict=True):
        block.add_column(column.head, width=width, justify=column.justify, no_wrap=True)
    for one in right:
        block.add_row(name_text(one.record), *(_cell(column, one) for column in columns))
    console.print(Padding(block, (0, 0, 0, GAP)))


def _cell(column: Column, judged: Judged) -> Text:
    from rich.text import Text

    text = column.cell(judged) or ""
    return Text(text, style=STYLES.get(judged.verdict, "") if column is VERDICT else "")


def _time(judged: Judged) -> float:
    return 0.0 if judged.record.median_ms is None else judged.record.median_ms


def _print_others(console: Console, group: Sequence[Record]) -> None:
    """Those that have no row: each that failed with its reason, then those that can't, gathered by reason."""
    for status in STATUSES:
        those = [record for record in group if record.status == status != "ok"]
        if status in _QUIET:
            sentences = [f"{names} ({reason})" for reason, names in _gathered((r.reason, r) for r in those)]
            if sentences:
                _print_indented(console, f"{status}: {'; '.join(sentences)}", status)
            continue
        for record in those:
            time = time_text(record)
            name = name_text(record) if time is None else f"{name_text(record)} at {time}"
            words = f"{status.replace('_', ' ')}: {name}: {record.reason}"
            _print_indented(console, words, status)


def _print_ran(console: Console, group: Sequence[Record]) -> None:
    for ran, names in _gathered((", ".join(record.ran), record) for record in group if record.ran):
        _print_indented(console, f"ran: {names}: {ran}", "unsupported")


def _print_notes(console: Console, group: Sequence[Record]) -> None:
    for note, names in _gathered((note, record) for record in group for note in record.notes):
        _print_indented(console, f"note: {names}: {note}", "unsupported")


def _gathered(pairs: Iterable[tuple[str, Record]]) -> list[tuple[str, str]]:
    """Each text once, with the names of its backends."""
    names: dict[str, list[str]] = {}
    for text, record in pairs:
        names.setdefault(text, []).append(record.backend)
    return [(text, ", ".join(those)) for text, those in names.items()]


def _print_indented(console: Console, words: str, status: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(words, style=_STYLE.get(status, "red")), (0, 0, 0, GAP)))
