"""``attnbench history``: how times changed from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, width
from attnbench.cli.parameters import NameOf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnbench.types.compared import Measured
    from attnbench.types.formats import Format


@click.command("history")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE | FOLDER]...")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case; repeatable.")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=NameOf("backends"),
    metavar="NAME",
    help="Only this backend; repeatable.",
)
@format_option
def command(
    files: tuple[Path, ...], cases: tuple[str, ...], backends: tuple[str, ...], format_: Format
) -> None:
    """Show how times changed from run to run; without files, over the folder results.

    Of each backend on each case a line for each run: date, commit, median, ratio to the run's baseline, and
    the verdict against the run before that was measured alike. Files are runs of attnbench, merged ones too,
    or pytest-benchmark's JSON.

    \b
    attnbench history nightly --backend sdpa_flash
    """
    from attnbench.compare.history import history
    from attnbench.compare.stored import compare_sides
    from attnbench.reports.history import render_history
    from attnbench.results.read import read_side

    runs = read_side(files or [Path("results")])
    for run in runs:
        for problem in run.problems:
            click.echo(problem, err=True)
    wanted, names = _known_cases(cases, runs), _known_backends(backends, runs)
    steps = history(runs, compare_sides, cases=wanted, backends=names)
    click.echo(render_history(steps, format_, width=width(), colour=colourful()), nl=False)


def _known_cases(words: Sequence[str], runs: Sequence[Measured]) -> list[str]:
    """Ids, in full; raises :class:`BadInput` for one that no run has."""
    from attnbench.cases.ids import case_id, parse_case
    from attnbench.types.errors import BadCase, BadInput
    from attnbench.types.words import unknown_name

    known = dict.fromkeys(cell.case for run in runs for cell in run.cells)
    found = []
    for word in words:
        try:
            name = word if word in known else case_id(parse_case(word))
        except BadCase:
            name = word
        if name not in known:
            raise BadInput(f"in these runs there is {unknown_name('case', word, tuple(known))}")
        found.append(name)
    return found


def _known_backends(names: Sequence[str], runs: Sequence[Measured]) -> Sequence[str]:
    from attnbench.types.errors import BadInput
    from attnbench.types.words import unknown_name

    known = dict.fromkeys(cell.backend for run in runs for cell in run.cells if cell.backend)
    for name in names:
        if name not in known:
            raise BadInput(f"in these runs there is {unknown_name('backend', name, tuple(known))}")
    return names
