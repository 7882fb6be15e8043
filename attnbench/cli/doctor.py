"""``attnbench doctor``: check this machine before measuring on it."""

from __future__ import annotations

from dataclasses import asdict

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import print_listing, say
from attnbench.cli.parameters import ALLOCATOR, Whole
from attnbench.types.words import Format


@click.command("doctor")
@click.option(
    "--threads",
    type=Whole(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads of the planned run.",
)
@click.option(
    "--allocator", type=ALLOCATOR, default="keep", show_default=True,
    help="Allocator of the planned run.",
)  # fmt: skip
@format_option
def command(*, threads: int, allocator: str, format_: Format) -> None:
    """Find what would disturb a run on this machine: cores, threads, clocks, memory, allocator, libraries.

    This takes some seconds, longer on a busy machine. A finding that would change a verdict states its effect
    and what helps. The exit status is then 1.

    \b
    attnbench doctor
    attnbench doctor --threads 4 --format json
    """
    from attnbench.cli.progress import steps
    from attnbench.doctor.examine import examine
    from attnbench.doctor.readings import read_machine

    with steps() as show:
        findings = examine(read_machine(threads, allocator, show))
    rows = [asdict(finding) for finding in findings]
    print_listing(rows, ("level", "name", "what", "effect", "remedy"), format_)
    bad = sum(finding.level == "bad" for finding in findings)
    if bad:
        say(f"{bad} of {len(findings)} findings would change a verdict", err=True)
        click.get_current_context().exit(1)
