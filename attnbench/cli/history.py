"""``attnbench history``: how times changed from run to run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, print_text, told_side, width
from attnbench.cli.parameters import BACKEND
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.words import Format, unknown_name


@click.command("history")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE | FOLDER]...")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Show only this case. Repeatable.")
@click.option(
    "--backend", "backends", multiple=True, type=BACKEND, metavar="NAME",
    help="Show only this backend. Repeatable.",
)  # fmt: skip
@format_option
def command(
    files: tuple[Path, ...], cases: tuple[str, ...], backends: tuple[str, ...], format_: Format
) -> None:
    """Show how times changed from run to run. Without files, read the folder results.

    Each backend has a line for each run on each case: date, commit, median, ratio to the baseline, and the
    verdict against the last run under the same conditions. Files are runs of attnbench, also merged ones, or
    JSON of pytest-benchmark.

    \b
    attnbench history nightly --backend sdpa_flash
    """
    from attnbench.compare.history import history
    from attnbench.reports.history import render_history

    runs = told_side(files or [Path("results")])
    cells = [cell for run in runs for cell in run.cells]
    wanted = _known("case", {word: _full_id(word) for word in cases}, [cell.case for cell in cells])
    names = _known("backend", {name: name for name in backends}, [c.backend for c in cells if c.backend])
    steps = history(runs, cases=wanted, backends=names)
    print_text(render_history(steps, format_, width=width(), colour=colourful()))


def _full_id(word: str) -> str:
    """Return the full id of a case; the word itself where it is not an id, as in other tools' files."""
    from attnbench.cases.ids import case_id, parse_case

    try:
        return case_id(parse_case(word))
    except BadCase:
        return word


def _known(kind: str, names: dict[str, str], known: Iterable[str]) -> list[str]:
    """Return the names, given by the words for them; raises :class:`BadInput` for one that no run has."""
    there = dict.fromkeys(known)
    for word, name in names.items():
        if name not in there:
            raise BadInput(f"these runs have {unknown_name(kind, word, there)}")
    return list(names.values())
