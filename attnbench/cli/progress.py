"""Where a run stands, on stderr."""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from attnbench.cli.output import loudness, note, say
from attnbench.types.status import MEANING, status_words
from attnbench.types.words import count_of, printable, span_words

if TYPE_CHECKING:
    from attnbench.runner.progress import Moment, Progress
    from attnbench.types.record import Record

_BESIDE_CASE = 72
"""Columns of what stands before the case: the current step, the bar, the time left."""
_LEAST_CASE = 24
MOST_WRONG = 3
"""The most lines of cases that are not right, where the report names them by their fault."""


@contextmanager
def progress(plan: str = "", cases: Sequence[str] = (), *, wrong_only: bool = False) -> Iterator[Progress]:
    """Yield a function that shows a run: its plan, a line for each case that is done, on a terminal a bar.

    cases: the ids of all, where they are known; lines then name only what differs, as the tables do.
    wrong_only: without a terminal, lines for the first cases that are not right and each quarter of all. On a
    terminal all this gives way to the answer. It also shows what backends printed whose calls failed:
    each once, and with --verbose at each failure.
    """
    from attnbench.reports.names import short_names

    loud, names = loudness(), short_names(cases) if len(cases) > 1 else {}
    if loud == "normal" and _rewritable():
        with _bar(plan, names) as show:
            yield show
        return
    if plan:
        note(plan)
    if loud == "quiet":
        yield lambda moment: None
    elif loud == "verbose":
        yield partial(_print_step, _row_printer(names))
    else:
        print_row = _tally_printer(names) if wrong_only else _row_printer(names)
        yield _each_once(print_row, lambda text: say(text, err=True))


def _each_once(show: Progress, tell: Callable[[str], None]) -> Progress:
    """Return a function that shows a moment, and tells what a backend printed when it first fails."""
    told: set[str] = set()

    def shown(moment: Moment) -> None:
        if moment.printed and moment.failed not in told:
            told.add(moment.failed)
            tell(printed_words(moment))
        show(moment)
        for sentence in sentences(moment):
            tell(sentence)

    return shown


def sentences(moment: Moment) -> list[str]:
    """Return what follows the line of a case: the first problem, and advice."""
    return [
        *([f"problem: {moment.problem}"] if moment.problem else []),
        *(f"advice: {sentence}" for sentence in moment.advice),
    ]


def printed_words(moment: Moment) -> str:
    """Return what a backend printed before its call failed, under a line that says so."""
    return f"{moment.failed} printed, before it failed:\n" + textwrap.indent(moment.printed, "  ")


@contextmanager
def _bar(plan: str, names: Mapping[str, str]) -> Iterator[Progress]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.text import Text

    console = Console(stderr=True)
    room = console.width - _BESIDE_CASE
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[case]}", markup=False),
        console=console,
        auto_refresh=False,
    )
    task = bar.add_task("starting", total=None, left="", case="")
    rows: list[str] = []
    head = [Text(plan)] if plan else []
    # Lines that do not fit could not be taken away again.
    most = max(1, console.height - 2 - len(plan) // console.width)

    def drawn() -> Group:
        return Group(*head, *(Text(row, no_wrap=True, overflow="ellipsis") for row in rows[-most:]), bar)

    # No refreshing by a thread of its own: it would disturb what is measured.
    with Live(drawn(), console=console, auto_refresh=False, transient=True) as live:

        def show(moment: Moment) -> None:
            if row := case_row(moment, names):
                rows.append(row)
            case = moment.case if len(moment.case) <= room else moment.case[: room - 1] + "…"
            bar.update(
                task,
                description=f"{moment.done}/{moment.cases} {moment.doing}",
                completed=moment.elapsed_s,
                total=moment.elapsed_s + moment.left_s,
                left=left_words(moment),
                case=case if room >= _LEAST_CASE else "",
            )
            live.update(drawn(), refresh=True)

        yield _each_once(show, lambda text: console.print(printable(text), markup=False, highlight=False))


def _print_step(print_row: Progress, moment: Moment) -> None:
    where = f"{moment.number}/{moment.cases} {moment.case}: {moment.doing}"
    say(f"{moment.elapsed_s:7.1f} s  {where}, {left_words(moment)}", err=True)
    if moment.printed:
        say(printed_words(moment), err=True)
    if moment.trace:
        say(moment.trace.rstrip(), err=True)
    print_row(moment)
    for sentence in sentences(moment):
        say(sentence, err=True)


def _row_printer(names: Mapping[str, str]) -> Progress:
    """Return a function that prints the line of a case that is done, with the time left where it is news."""
    said = ""

    def print_row(moment: Moment) -> None:
        nonlocal said
        if row := case_row(moment, names):
            left = left_words(moment) if moment.left_s >= 1 else ""
            say(row + (f" ({left})" if left and left != said else ""), err=True)
            said = left

    return print_row


def _tally_printer(names: Mapping[str, str]) -> Progress:
    """Return a function that prints how many cases a check has, a line for each of the first wrong cases,
    and a count each eighth."""
    wrong, eighth, begun = 0, 0, False

    def print_row(moment: Moment) -> None:
        nonlocal wrong, eighth, begun
        if not begun:
            begun = True
            say(f"checking {count_of(moment.cases - moment.done, 'case')} ({left_words(moment)})", err=True)
        if not moment.records:
            return
        if any(not (record.passed or MEANING[record.status].declined) for record in moment.records):
            wrong += 1
            if wrong <= MOST_WRONG and (row := case_row(moment, names)):
                say(row + (" (further ones are counted)" if wrong == MOST_WRONG else ""), err=True)
        if 8 * moment.done // moment.cases > eighth:
            eighth = 8 * moment.done // moment.cases
            found = f"{wrong} of them not right" if wrong else "none wrong"
            left = f" ({left_words(moment)})" if moment.done < moment.cases else ""
            say(f"{moment.done} of {moment.cases} cases checked, {found}{left}", err=True)

    return print_row


def case_row(moment: Moment, names: Mapping[str, str] | None = None) -> str:
    """Return the answer of a case that is done, in a line with its number in the tables.

    names: of cases, by id, where they are known. "" where it is not done, is the only one, or has sides to
    compare.
    """
    if not moment.records or moment.cases == 1:
        return ""
    from attnbench.cases.ids import parse_case, short_id
    from attnbench.reports.answer import lead_text
    from attnbench.stats.answer import answer
    from attnbench.types.compared import parts_of

    if any(parts_of(record.backend)[1] for record in moment.records):
        return ""

    leads = answer(moment.records, moment.times).leads
    found = lead_text(leads[0]) if leads else _outcomes(moment.records)
    name = (names or {}).get(moment.case) or short_id(parse_case(moment.case))
    return f"#{moment.number} {name}: {found}"


def _outcomes(records: Sequence[Record]) -> str:
    """Return the status of the only backend, with the variant that shows it, or count those of several."""
    if len(records) == 1 and records[0].failed_case:
        from attnbench.testing.problems import variant_words

        return f"wrong {variant_words(records[0])}"
    counts = Counter(status_words(record.status) for record in records)
    return ", ".join(word if len(records) == 1 else f"{count} {word}" for word, count in counts.items())


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step, on a terminal that can rewrite its line."""
    from rich.console import Console
    from rich.live import Live

    quiet = loudness() == "quiet" or not _rewritable()
    console = Console(stderr=True, quiet=quiet, highlight=False)
    # No refreshing by a thread of its own: it would disturb what is measured.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda step: live.update(step, refresh=True)


def _rewritable() -> bool:
    """Return whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def left_words(moment: Moment) -> str:
    """Return the time left in words."""
    return f"about {span_words(moment.left_s)} left"
