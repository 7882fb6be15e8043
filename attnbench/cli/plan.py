"""The plan of a run: the time it will take, in words and as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attnbench.cli.output import note, print_listing, say
from attnbench.types.words import count_of, span_words

if TYPE_CHECKING:
    from attnbench.runner.forecast import CaseForecast, Forecast
    from attnbench.runner.options import Options
    from attnbench.types.case import Case
    from attnbench.types.formats import Format


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
