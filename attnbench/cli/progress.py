"""How long a run will take, and where it stands, on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from attnbench.cli.output import loudness, note, print_listing
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.runner.forecast import CaseForecast, Forecast
    from attnbench.runner.options import Options
    from attnbench.runner.progress import Moment, Progress
    from attnbench.types.case import Case
    from attnbench.types.formats import Format


_BESIDE_CASE = 72
"""Columns of what stands before the case: what is being done, the bar, the time left."""
_LEAST_CASE = 24


@contextmanager
def progress() -> Iterator[Progress]:
    """Something to tell moments to."""
    loud = loudness()
    if loud == "quiet":
        yield lambda moment: None
        return
    if loud == "verbose":
        yield _tell_step
        return
    if not _rewritable():
        yield _Lines().tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    room = console.width - _BESIDE_CASE
    # No refreshing by a thread of its own: it would disturb what is measured.
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[case]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None, left="", case="")

        def tell(moment: Moment) -> None:
            bar.update(
                task,
                description=f"{moment.number}/{moment.cases} {moment.doing}",
                completed=max(moment.number - 1, 0),
                total=moment.cases,
                left=left_words(moment),
                case=_shortened(moment.case, room),
                refresh=True,
            )

        yield tell


def _shortened(case: str, room: int) -> str:
    """The id of a case in so many columns; nothing where they show too little of it."""
    if room < _LEAST_CASE:
        return ""
    return case if len(case) <= room else case[: room - 1] + "…"


def _tell_step(moment: Moment) -> None:
    left = left_words(moment)
    where = f"{moment.number}/{moment.cases} {moment.case}: {moment.doing}"
    click.echo(f"{moment.elapsed_s:7.1f} s  {where}{left and f', {left}'}", err=True)


class _Lines:
    """Tells each case once."""

    def __init__(self) -> None:
        self._told = 0

    def tell(self, moment: Moment) -> None:
        """Print a line if the case is a new one."""
        if moment.number > self._told:
            self._told = moment.number
            left = left_words(moment)
            click.echo(f"{moment.number}/{moment.cases} {moment.case}{left and f', {left}'}", err=True)


def tell_doing(what: str) -> None:
    """Say what is being done, where a line can be rewritten, in place of what was said before; "" for
    nothing.
    """
    if loudness() != "quiet" and _rewritable():
        # A line that is wrapped can't be rewritten.
        what = what[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r\033[K{what}", nl=False, err=True)


def _rewritable() -> bool:
    """Whether stderr is a terminal that moves its cursor as it is told."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def left_words(moment: Moment) -> str:
    """The time left in words; empty before there is an estimate."""
    if moment.left_s is None:
        return ""
    return f"about {span_words(moment.left_s)} left"


def span_words(seconds: float) -> str:
    """A time as long as a person cares to know it: 12 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


COLUMNS = ("case", "cells", "about_s", "timing_s")
CHECK_COLUMNS = ("case", "cells", "about_s", "compiling_s")
"""Of the table, where cases are timed and where they're only checked; other formats show the rest too."""

plan_option = click.option(
    "--plan", is_flag=True, help="Say how long it would take, by case, and run nothing."
)


def print_plan(foreseen: Forecast, options: Options, format_: Format) -> None:
    """The whole plan: data by case to stdout, the line that :func:`plan_words` gives to stderr."""
    columns = COLUMNS if options.timed else CHECK_COLUMNS
    print_listing([_row(case) for case in foreseen.cases], columns, format_)
    note(plan_words(foreseen, options))


def warn_of_busy_cores(cases: Iterable[Case]) -> None:
    """Say on stderr where several threads are going to be measured on cores that other work uses now."""
    from attnbench.runner.machine import allowed_cpus, busy_warning, watch_cores

    threads = max((case.threads for case in cases if case.device == "cpu"), default=1)
    warning = busy_warning(threads, allowed_cpus(), watch_cores()) if threads > 1 else ""
    if warning:
        click.echo(f"attnbench: {warning}", err=True)


def plan_words(foreseen: Forecast, options: Options) -> str:
    """The run in one line: how much there is to do, how long that takes, and what can be changed about it."""
    parts = [
        (foreseen.start_s, "starting up"),
        (sum(case.timing_s for case in foreseen.cases), f"timing ({_sets(options)})"),
        (sum(case.processes_s for case in foreseen.cases), "starting processes"),
        (sum(case.checking_s for case in foreseen.cases), "checking"),
        (sum(case.compiling_s for case in foreseen.cases), "compiling"),
    ]
    told = ", ".join(f"{span_words(seconds)} {what}" for seconds, what in parts if seconds >= 0.5)
    cases, cells = count_of(len(foreseen.cases), "case"), count_of(foreseen.cells, "cell")
    words = f"{cases}, {cells}: about {span_words(foreseen.total_s)}"
    words += f": {told}" if foreseen.cells else ""
    words += "; --budget and --sets set it" if foreseen.cells and options.timed else ""
    slow = sum(case.cells for case in foreseen.cases if case.over_budget)
    if slow:
        words += f"; in {count_of(slow, 'cell')} the fewest calls take longer than the budget"
    return words


def _sets(options: Options) -> str:
    each_s = options.budget_s / options.sets
    each = span_words(each_s) if each_s >= 1 else f"{_two_digits(1000 * each_s)} ms"
    return f"{count_of(options.sets, 'set')} of {each} a cell"


def _two_digits(number: float) -> str:
    """5.6, 56, 560: without an exponent from 100 on."""
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


def _row(case: CaseForecast) -> dict[str, object]:
    seconds = {
        "about_s": case.total_s,
        "timing_s": case.timing_s,
        "processes_s": case.processes_s,
        "checking_s": case.checking_s,
        "compiling_s": case.compiling_s,
    }
    return {"case": case.case, "cells": case.cells} | {name: round(s, 1) for name, s in seconds.items()}
