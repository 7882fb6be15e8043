"""What --format means where records are printed: a format of attnbench, or one that a plugin brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from attnbench.cli.output import print_records, print_text
from attnbench.types.errors import BadInput
from attnbench.types.formats import FORMATS, Format

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.run import Run
    from attnbench.types.reporter import Reporter


def record_format(ctx: click.Context, word: str, registry: Registry) -> Format | Entry[Reporter]:
    """The format that a word asks for; a usage error with the nearest where there is none."""
    if word in FORMATS:
        return word
    try:
        return registry.reporter(word)
    except BadInput as unknown:
        option = next(param for param in ctx.command.params if param.name == "format_")
        raise click.BadParameter(str(unknown), ctx, option) from unknown


def own_format(word: str, what: str) -> Format:
    """The format that a word asks for where no records are printed.

    Raises:
        BadInput: it is a plugin's, which prints records only.
    """
    if word not in FORMATS:
        raise BadInput(
            f"--format {word}: {what}, and formats of plugins print records; there are {', '.join(FORMATS)}"
        )
    return word


def print_run(run: Run, format_: Format | Entry[Reporter], *, trace: bool) -> None:
    """Print the records of a run, or of several as one.

    Raises:
        PluginFailed: the reporter of a plugin failed.
    """
    if isinstance(format_, str):
        print_records(run.judged, format_, trace=trace)
        return
    from attnbench.reports.reported import reported, run_facts
    from attnbench.reports.rows import record_row

    facts = run_facts(run.manifests, run.paths, run.unfinished)
    print_text(reported(format_, [record_row(one) for one in run.judged], facts))
