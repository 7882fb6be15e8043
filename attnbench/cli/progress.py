"""The plan of a run, and where the run stands, on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnbench.cli.output import loudness, note, print_listing, say
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.runner.forecast import CaseForecast, Forecast
    from attnbench.runner.options import Options
    from attnbench.runner.progress import Moment, Progress
    from attnbench.types.case import Case
    from attnbench.types.formats import Format


_BESIDE_CASE = 72
"""Columns of what stands before the case: the current step, the bar, the time left."""
_LEAST_CASE = 24


@contextmanager
def progress() -> Iterator[Progress]:
    """Yield a function that shows a run: a line for each case that is done, and on a terminal a bar."""
    loud = loudness()
    if loud == "quiet":
        yield lambda moment: None
    elif loud == "verbose":
        yield _print_step
    elif not _rewritable():
        yield _print_row
    else:
        with _bar() as show:
            yield show


@contextmanager
def _bar() -> Iterator[Progress]:
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

        def show(moment: Moment) -> None:
            if row := case_row(moment):
                bar.console.print(row, markup=False, highlight=False)
            case = moment.case if len(moment.case) <= room else moment.case[: room - 1] + "…"
            bar.update(
                task,
                description=f"{moment.number}/{moment.cases} {moment.doing}",
                completed=moment.elapsed_s,
                total=moment.elapsed_s + moment.left_s,
                left=left_words(moment),
                case=case if room >= _LEAST_CASE else "",
                refresh=True,
            )

        yield show


def _print_step(moment: Moment) -> None:
    where = f"{moment.number}/{moment.cases} {moment.case}: {moment.doing}"
    say(f"{moment.elapsed_s:7.1f} s  {where}, {left_words(moment)}", err=True)
    _print_row(moment)


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


def span_words(seconds: float) -> str:
    """Return a time to the digits that matter before a run: 12 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


def print_plan(foreseen: Forecast, options: Options, format_: Format) -> None:
    """Print the plan: data by case to stdout, the line of :func:`plan_words` to stderr."""
    columns = ("case", "cells", "about_s", "timing_s" if options.timed else "compiling_s")
    print_listing([_row(case) for case in foreseen.cases], columns, format_)
    note(plan_words(foreseen, options))


def warn_of_busy_cores(cases: Iterable[Case]) -> None:
    """Warn on stderr if several threads will share cores with other work."""
    from attnbench.runner.machine import allowed_cpus, busy_warning, watch_cores

    threads = max((case.threads for case in cases if case.device == "cpu"), default=1)
    warning = busy_warning(threads, allowed_cpus(), watch_cores()) if threads > 1 else ""
    if warning:
        say(f"attnbench: {warning}", err=True)


def plan_words(foreseen: Forecast, options: Options) -> str:
    """Return the plan in one line: the number of cells, the time they take, the options that change it."""
    cases = foreseen.cases
    each_s = options.budget_s / options.sets
    each = span_words(each_s) if each_s >= 1 else f"{1000 * each_s:.{1 if each_s < 0.01 else 0}f} ms"
    parts = [
        (foreseen.start_s, "starting up"),
        (sum(case.timing_s for case in cases), f"timing ({count_of(options.sets, 'set')} of {each} a cell)"),
        (sum(case.processes_s for case in cases), "starting processes"),
        (sum(case.checking_s for case in cases), "checking"),
        (sum(case.compiling_s for case in cases), "compiling"),
    ]
    words = f"{count_of(len(cases), 'case')}, {count_of(foreseen.cells, 'cell')}: "
    words += f"about {span_words(foreseen.total_s)}"
    if foreseen.cells:
        words += ": " + ", ".join(
            f"{span_words(seconds)} {what}" for seconds, what in parts if seconds >= 0.5
        )
        words += "; change it by --budget and --sets" if options.timed else ""
    slow = sum(case.cells for case in cases if case.over_budget)
    if slow:
        words += f"; {count_of(slow, 'cell')} will take longer than the budget, even with the fewest calls"
    return words


def _row(case: CaseForecast) -> dict[str, object]:
    names = ("timing_s", "processes_s", "checking_s", "compiling_s")
    seconds = {"about_s": case.total_s} | {name: getattr(case, name) for name in names}
    return {"case": case.case, "cells": case.cells} | {name: round(s, 1) for name, s in seconds.items()}
