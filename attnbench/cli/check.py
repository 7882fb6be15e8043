"""``attnbench check``: right or wrong, without timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from attnbench.cli.finish import check_devices, finish, gib, resumed
from attnbench.cli.measuring_options import measuring_options
from attnbench.cli.options import selected
from attnbench.cli.plan import print_plan
from attnbench.cli.plugins_here import load_plugins, named_plugins
from attnbench.cli.record_format import own_format, record_format


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
        from attnbench.cli.check_plugins import check_plugins

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
