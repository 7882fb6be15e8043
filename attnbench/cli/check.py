"""``attnbench check``: right or wrong, without timing; with ``--plugin`` alone, the cases of the kit."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from attnbench.cli.options import (
    CommonFirst,
    measuring_options,
    options_of,
    overrides_of,
    part_asked,
)  # fmt: skip
from attnbench.cli.output import note, print_run, record_format, say, view_of
from attnbench.cli.parameters import load_plugins, named_plugins
from attnbench.cli.progress import progress
from attnbench.cli.run import measure


@click.command("check", cls=CommonFirst)
@measuring_options()
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> None:
    """Check backends against the oracle without timing them. Without cases, use the suite smoke.

    With --plugin but neither cases nor --backend, attnbench chooses cases from what the plugin declares, and
    options such as --mask narrow them. The report then gives advice.

    \b
    attnbench check edges --backend flex
    attnbench check edges --plan
    attnbench check textbook --pass both
    attnbench check --plugin my_kernel.py
    attnbench check --plugin my_kernel.py --dtype bfloat16 --pass both
    """
    if any(chosen[name] for name in ("words", "backends", "resume")) or not named_plugins():
        measure(ctx, chosen, timed=False)
    else:
        _check_plugins(ctx, chosen)


def _check_plugins(ctx: click.Context, chosen: dict[str, Any]) -> NoReturn:
    """Check all backends and rules that named plugins bring; print the report, and exit by it.

    The report goes to stdout; in other formats than ``table`` the records do, and the report to stderr.

    Raises:
        BadInput: they bring neither.
    """
    from attnbench.api import start
    from attnbench.cases.ids import case_id, parse_case
    from attnbench.cases.select import Selection, shard_words
    from attnbench.testing.judge import brought_by, judging_plan, part_of, plan, reported

    registry = load_plugins()
    format_ = record_format(chosen["format_"], registry)
    if chosen["plan"]:
        raise click.UsageError("--plan needs cases, or a --backend, beside --plugin", ctx)
    found = brought_by(named_plugins(), registry)
    options = overrides_of(chosen)
    for rule in options.rules:
        registry.rule(rule)
    planned = plan(registry, found.backends, found.rules, options)
    selection = part_asked(Selection(tuple(map(parse_case, planned.cases(large=True)))), chosen)
    if words := shard_words(selection):
        note(words)
    if selection.shard is not None:
        planned = part_of(planned, {case_id(case) for case in selection.cases}, f"shard {selection.shard}")
    asked = planned.cases(large=True)
    with progress() as tell:
        run = None
        if asked:
            running = options_of(chosen, timed=False)
            run = start(judging_plan(asked, registry, running, selection.shard), chosen["out"], tell)
    report = reported(planned, () if run is None else run.records, registry)
    if run is not None:
        note(f"stored in {run.path}")
        if format_ != "table":
            print_run(run, format_, view_of(chosen))
    say(str(report), err=format_ != "table")
    ctx.exit(report.exit_code)
