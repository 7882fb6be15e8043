"""``attnbench check --plugin FILE``: what a plugin brings, on the cases of the conformance kit."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from attnbench.cli.loudness import note
from attnbench.cli.progress import progress
from attnbench.cli.record_format import print_run

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.runner.options import Options
    from attnbench.types.formats import Format
    from attnbench.types.reporter import Reporter


HANGS_S = 20.0
"""From when on asking backends what they support is told as hanging: hundreds of cases take no second."""


def check_plugins(
    ctx: click.Context,
    registry: Registry,
    words: Sequence[str],
    options: Options,
    out: Path,
    format_: Format | Entry[Reporter],
) -> NoReturn:
    """Check all backends and rules that named plugins bring; print the report, and exit by it.

    The report goes to stdout; in other formats than ``table`` the records do, and the report to stderr.

    Raises:
        BadInput: they bring neither.
    """
    from attnbench.api import loaded
    from attnbench.testing.judge import judged, plan, reported
    from attnbench.testing.locating import brought_by

    found = brought_by(words, registry)
    # Here code of plugins says what it supports, in this process: where it hangs, stderr says at which line.
    faulthandler.dump_traceback_later(HANGS_S, file=2)
    try:
        planned = plan(registry, found.backends, found.rules)
    finally:
        faulthandler.cancel_dump_traceback_later()
    asked = planned.cases(large=True)
    with progress() as tell:
        path = judged(asked, registry, options, out, tell) if asked else None
    run = None if path is None else loaded(path, registry)
    report = reported(planned, () if run is None else run.records, registry)
    if path is not None:
        note(f"stored in {path}")
    if run is not None and format_ != "table":
        print_run(run, format_, trace=False)
    click.echo(str(report), err=format_ != "table")
    ctx.exit(1 if report.problems else 3 if report.unavailable else 0)
