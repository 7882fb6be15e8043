"""``attnbench check``: right or wrong, without timing; with ``--plugin``, on the cases of the kit."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.finish import check_devices, finish, gib, own_format, print_run, record_format, resumed
from attnbench.cli.options import measuring_options, selected
from attnbench.cli.output import note
from attnbench.cli.plugins_here import load_plugins, named_plugins
from attnbench.cli.progress import print_plan, progress

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.runner.options import Options
    from attnbench.types.extensions import Reporter
    from attnbench.types.formats import Format


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


@click.command("check")
@measuring_options()
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    backends: tuple[str, ...],
    out: Path,
    resume: Path | None,
    timeout: float,
    memory_limit: float | None,
    plan: bool,
    trace: bool,
    format_: str,
    **chosen: Any,
) -> None:
    """Check backends against the oracle without timing them; without cases, on the suite smoke.

    With --plugin and neither cases nor backends, what the plugin brings is checked on cases made of what it
    declares, and the report says what to do.

    \b
    attnbench check edges --backend flex
    attnbench check edges --plan
    attnbench check textbook --pass both
    attnbench check --plugin my_kernel.py
    """
    registry = load_plugins()
    printed = record_format(ctx, format_, registry)
    if resume is not None:
        finish(ctx, resumed(ctx, resume, registry), printed, registry, trace=trace)
    from attnbench.api import foresee, make_options, start

    options = make_options(timeout=timeout, memory_limit=gib(memory_limit), timed=False)
    if named_plugins() and not backends and not any(chosen.values()):
        if plan:
            raise click.UsageError("--plan is of cases: name some, or a --backend, beside --plugin", ctx)

        check_plugins(ctx, registry, named_plugins(), options, out, printed)
    selection = selected(registry, chosen, timed=False)
    check_devices(selection)
    if plan:
        foreseen = foresee(selection, backends or None, registry, options, out)
        print_plan(foreseen, options, own_format(format_, "--plan prints no records"))
        return
    finish(
        ctx,
        lambda tell: start(selection, backends or None, registry, options, out, tell),
        printed,
        registry,
        trace=trace,
    )
