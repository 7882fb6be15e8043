"""Where a run stands, on stderr: a line that is rewritten on a terminal, a line for each case elsewhere.

With --quiet nothing is told, with --verbose a line for each step.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from attnbench.cli.loudness import loudness

if TYPE_CHECKING:
    from attnbench.runner.moment import Moment, Progress

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
