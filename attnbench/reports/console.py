"""Where tables are written before anybody sees them: a console that writes into a string."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NARROWEST = 60
"""Columns of the narrowest console: in fewer no table can be read."""


def string_console(width: int, *, colour: bool = False) -> Console:
    """A console of ``width`` columns (60 at least) that keeps what is printed; see :func:`written`."""
    from rich.console import Console

    return Console(
        file=io.StringIO(), width=max(width, NARROWEST), force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip


def written(console: Console) -> str:
    """What was printed on a :func:`string_console`, without spaces at the ends of lines."""
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def bare_table() -> Table:
    """A table without lines, two spaces between its columns."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
