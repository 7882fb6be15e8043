"""Where a run stands, on stderr."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnbench.cli.output import loudness, note, say
from attnbench.types.words import printable, span_words

if TYPE_CHECKING:
    from attnbench.runner.progress import Moment, Progress

_BESIDE_CASE = 72
"""Columns of what stands before the case: the current step, the bar, the time left."""
_LEAST_CASE = 24


@contextmanager
def progress(plan: str = "") -> Iterator[Progress]:
    """Yield a function that shows a run: its plan, a line for each case that is done, on a terminal a bar.

    On a terminal all this gives way to the answer. It also shows what backends printed whose calls failed:
    each once, and with --verbose at each failure.
    """
    loud = loudness()
    if loud == "normal" and _rewritable():
        with _bar(plan) as show:
            yield show
        return
    if plan:
        note(plan)
    if loud == "quiet":
        yield lambda moment: None
    elif loud == "verbose":
        yield _print_step
    else:
        yield _each_once(_print_row, lambda text: say(text, err=True))


def _each_once(show: Progress, tell: Callable[[str], None]) -> Progress:
    """Return a function that shows a moment, and tells what a backend printed when it first fails."""
    told: set[str] = set()

    def shown(moment: Moment) -> None:
        if moment.printed and moment.failed not in told:
            told.add(moment.failed)
            tell(printed_words(moment))
        show(moment)
        for sentence in moment.advice:
            tell(f"advice: {sentence}")

    return shown


def printed_words(moment: Moment) -> str:
    """Return what a backend printed before its call failed, under a line that says so."""
    return f"{moment.failed} printed, before it failed:\n" + textwrap.indent(moment.printed, "  ")


@contextmanager
def _bar(plan: str) -> Iterator[Progress]:
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
            if row := case_row(moment):
                rows.append(row)
            case = moment.case if len(moment.case) <= room else moment.case[: room - 1] + "…"
            bar.update(
                task,
                description=f"{moment.number}/{moment.cases} {moment.doing}",
                completed=moment.elapsed_s,
                total=moment.elapsed_s + moment.left_s,
                left=left_words(moment),
                case=case if room >= _LEAST_CASE else "",
            )
            live.update(drawn(), refresh=True)

        yield _each_once(show, lambda text: console.print(printable(text), markup=False, highlight=False))


def _print_step(moment: Moment) -> None:
    where = f"{moment.number}/{moment.cases} {moment.case}: {moment.doing}"
    say(f"{moment.elapsed_s:7.1f} s  {where}, {left_words(moment)}", err=True)
    if moment.printed:
        say(printed_words(moment), err=True)
    if moment.trace:
        say(moment.trace.rstrip(), err=True)
    _print_row(moment)
    for sentence in moment.advice:
        say(f"advice: {sentence}", err=True)


def _print_row(moment: Moment) -> None:
    if row := case_row(moment):
        left = f" ({left_words(moment)})" if moment.left_s >= 1 else ""
        say(row + left, err=True)


def case_row(moment: Moment) -> str:
    """Return the answer of a case that is done, in a line.

    "" where it is not done, is the only one, or has sides to compare.
    """
    if not moment.records or moment.cases == 1:
        return ""
    from attnbench.cases.ids import parse_case, short_id
    from attnbench.reports.answer import lead_text
    from attnbench.reports.overview import counted
    from attnbench.stats.answer import answer
    from attnbench.types.compared import parts_of

    if any(parts_of(record.backend)[1] for record in moment.records):
        return ""

    leads = answer(moment.records, moment.times).leads
    found = lead_text(leads[0]) if leads else counted(moment.records).split(": ", 1)[1]
    return f"{moment.number}/{moment.cases} {short_id(parse_case(moment.case))}: {found}"


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
