"""How long a run will take, in a line before it and in a table instead of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from attnbench.cli.loudness import note
from attnbench.cli.output import print_listing
from attnbench.cli.progress import span_words
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.runner.forecast import CaseForecast, Forecast
    from attnbench.runner.options import Options
    from attnbench.types.case import Case
    from attnbench.types.formats import Format

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
    from attnbench.runner.busy import busy_warning, watch_cores
    from attnbench.runner.machine import allowed_cpus

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
