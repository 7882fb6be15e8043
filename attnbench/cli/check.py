"""``attnbench check``: right or wrong, without timing; with ``--plugin``, on the cases of the kit."""

from __future__ import annotations

import faulthandler
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.finish import measure, print_run
from attnbench.cli.options import SELECTING, measuring_options
from attnbench.cli.output import note
from attnbench.cli.plugins_here import named_plugins
from attnbench.cli.progress import progress

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.runner.options import Options
    from attnbench.types.extensions import Reporter
    from attnbench.types.formats import Format


HANGS_S = 20.0
"""From when on asking backends what they support is told as hanging: hundreds of cases take no second."""


def check_plugins(
    ctx: click.Context,
    chosen: dict[str, Any],
    registry: Registry,
    options: Options,
    format_: Format | Entry[Reporter],
) -> NoReturn:
    """Check all backends and rules that named plugins bring; print the report, and exit by it.

    The report goes to stdout; in other formats than ``table`` the records do, and the report to stderr.

    Raises:
        BadInput: they bring neither.
    """
    from attnbench.api import start
    from attnbench.testing.judge import judging_plan, plan, reported
    from attnbench.testing.locating import brought_by

    if chosen["plan"]:
        raise click.UsageError("--plan is of cases: name some, or a --backend, beside --plugin", ctx)
    found = brought_by(named_plugins(), registry)
    # Here code of plugins says what it supports, in this process: where it hangs, stderr says at which line.
    faulthandler.dump_traceback_later(HANGS_S, file=2)
    try:
        planned = plan(registry, found.backends, found.rules)
    finally:
        faulthandler.cancel_dump_traceback_later()
    asked = planned.cases(large=True)
    with progress() as tell:
        run = start(judging_plan(asked, registry, options), chosen["out"], tell) if asked else None
    report = reported(planned, () if run is None else run.records, registry)
    if run is not None:
        note(f"stored in {run.path}")
        if format_ != "table":
            print_run(run, format_, trace=False)
    click.echo(str(report), err=format_ != "table")
    ctx.exit(1 if report.problems else 3 if report.unavailable else 0)


@click.command("check")
@measuring_options()
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> None:
    """Check backends against the oracle without timing them; without cases, on the suite smoke.

    With --plugin and neither cases nor backends, what the plugin brings is checked on cases made of what it
    declares, and the report says what to do.

    \b
    attnbench check edges --backend flex
    attnbench check edges --plan
    attnbench check textbook --pass both
    attnbench check --plugin my_kernel.py
    """
    alone = named_plugins() and not chosen["backends"] and not any(chosen[name] for name in SELECTING)
    measure(ctx, chosen, timed=False, instead=check_plugins if alone else None)
