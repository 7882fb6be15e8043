"""Data to stdout, whole; how wide and how colourful it may be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attnbench.reports.judged import Judged
    from attnbench.stored.gate import GateResult
    from attnbench.types.compared import Compared
    from attnbench.types.formats import Format

PIPE_WIDTH = 120


def print_records(judged: Sequence[Judged], format_: Format, *, trace: bool = False) -> None:
    """Print records and their verdicts in a format; ``trace``: what each call ran too."""
    from attnbench.reports.render import render

    print_text(render(judged, format_, width=width(), colour=colourful(), trace=trace))


def print_compared(compared: Compared, gate: GateResult, format_: Format) -> None:
    """Print a comparison and what the gate says of it."""
    from attnbench.reports.compared.render import render_compared

    print_text(render_compared(compared, gate, format_, width=width(), colour=colourful()))


def print_listing(rows: Sequence[dict[str, Any]], columns: Sequence[str], format_: Format) -> None:
    """Print rows; a table shows ``columns``."""
    from attnbench.reports.listing import listing

    print_text(listing(rows, columns, format_, width=width(), colour=colourful()))


def width() -> int:
    """Columns of the terminal, or of COLUMNS; 120 where stdout is neither."""
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def colourful() -> bool:
    """Whether stdout is a terminal whose user hasn't asked for no colour (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Print a text that ends in its own newline."""
    click.echo(text, nl=False)
