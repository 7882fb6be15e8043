"""``attnbench selftest judge``: whether the check refuses what is wrong, and nothing that is right."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from attnbench.cli.loudness import note
from attnbench.cli.output import colourful, width
from attnbench.cli.parameters import OneOf, Whole
from attnbench.cli.progress import progress
from attnbench.types.errors import BadInput

WITHOUT = (
    "near", "guards", "canaries", "weights", "deep_change", "one_key", "loud", "quiet", "strided", "graded",
    "renewal",
)  # fmt: skip
FULL_SEEDS = 3


@click.command("judge", short_help="Wrong backends are refused, every one, and no right one is.")
@click.option("--full", is_flag=True, help="More cases of each, in three seeds: up to ten minutes.")
@click.option(
    "--seeds", type=Whole(1), metavar="N", help="So many selections of cases, each with new inputs."
)
@click.option(
    "--first", type=Whole(1), metavar="N", default=1, show_default=True, help="Number of the first seed."
)
@click.option(
    "--without",
    multiple=True,
    type=OneOf("check", WITHOUT),
    metavar="CHECK",
    help=f"Leave a check out, to see what it is worth; repeatable: {', '.join(WITHOUT)}.",
)
@click.option(
    "--add",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    multiple=True,
    metavar="FILE",
    help="Count in what an earlier --json wrote, as of other seeds; repeatable.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the runs' files in this folder."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write everything found to this file.",
)
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the tables to this file.",
)
@click.pass_context
def judge(
    ctx: click.Context,
    /,
    full: bool,
    seeds: int | None,
    first: int,
    without: tuple[str, ...],
    add: tuple[Path, ...],
    keep: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Backends that are wrong, each in its way, are all refused, and right ones nowhere.

    More than two hundred wrong ones and some dozens of right ones that are written differently are checked as
    any backend is, on cases in which their mistakes can show, in which every two rules, masks, dtypes,
    lengths, layers and passes meet. What refused them is counted, and what nothing else refused.

    Without --full a minute, in one seed, with as few cases as give everyone one. Exit status: 1 where a
    wrong one passed or a right one was refused.

    \b
    attnbench selftest judge
    attnbench selftest judge --full --json judged.json
    """
    from attnbench.selftest.judge import Hearing, hear, merged, read_finding, write_finding
    from attnbench.selftest.judge_plan import BRIEF, FULL
    from attnbench.selftest.judge_runs import registry
    from attnbench.selftest.judge_table import judge_markdown, judge_tables, last_line

    for path in (json_file, markdown_file):
        if path is not None and not path.absolute().parent.is_dir():
            raise BadInput(f"can't write {str(path)!r}: there is no folder {str(path.parent)!r}")
    earlier = [read_finding(path) for path in add]
    count = seeds or (FULL_SEEDS if full else 1)
    numbers = tuple(range(first, first + count))
    hearing = Hearing(FULL if full else BRIEF, numbers, tuple(dict.fromkeys(without)))
    note(f"selftest judge: about {hearing.estimated_s:.0f} s on two quiet cores")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attnbench-")))
        folder.mkdir(parents=True, exist_ok=True)
        finding = hear(hearing, registry(), folder, stack.enter_context(progress()))
    finding = merged([*earlier, finding])
    found = finding.judged
    verdict = last_line(found)
    click.echo(judge_tables(found, finding.facts, width=width(), colour=colourful()))
    click.echo(verdict)
    if json_file is not None:
        write_finding(json_file, finding, verdict)
    if markdown_file is not None:
        markdown_file.write_text(judge_markdown(found, finding.facts), encoding="utf-8")
    ctx.exit(0 if found.fine else 1)
