"""A comparison as a table: a block for each case, then what all of it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from attnbench.reports.columns import GAP
from attnbench.reports.compared.rows import HEADS, cell_words
from attnbench.reports.compared.summary import (
    counts,
    forced_words,
    gate_words,
    name,
    other_differences,
    worst,
    worst_words,
)  # fmt: skip
from attnbench.reports.console import string_console, written
from attnbench.stored.gate import GateResult
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "slower": "red", "mismatch": "red", "missing": "red", "unclear": "yellow", "faster": "green",
}  # fmt: skip
_LEFT = ("backend", "verdict")
_DROPPED_FIRST = ("told from", "interval", "base")
"""What a narrow terminal does without."""
_NARROW_REASON = 28
MOST_CELLS = 500
"""More than these stand in other formats alone."""


def table(compared: Compared, gate: GateResult, width: int = 120, *, colour: bool = False) -> str:
    """A comparison as a table of at most ``width`` columns (60 at least); only ids may be longer."""
    from rich.text import Text

    console = string_console(width, colour=colour)
    console.print(Text(f"base: {compared.base}\nnew:  {compared.new}"), soft_wrap=True)
    if compared.forced:
        console.print(Text(forced_words(compared), style="bold red"))
    console.print()
    by_case: dict[str, list[ComparedCell]] = {}
    shown = _worst_cells(compared.cells)
    for cell in shown:
        by_case.setdefault(cell.case, []).append(cell)
    columns, widths = _fitting(shown, console.width)
    for case, cells in by_case.items():
        console.print(case, style="bold", soft_wrap=True)
        _print_cells(console, cells, columns, widths)
        console.print()
    if len(shown) < len(compared.cells):
        console.print(f"{len(compared.cells) - len(shown)} more cells: --format json")
    _print_summary(console, compared, gate)
    return written(console)


def _worst_cells(cells: Sequence[ComparedCell]) -> Sequence[ComparedCell]:
    """All cells, or of very many those with the worst verdicts, in their order: nobody reads more."""
    if len(cells) <= MOST_CELLS:
        return cells
    worst_first = sorted(range(len(cells)), key=lambda i: OUTCOMES.index(cells[i].verdict))
    return [cells[i] for i in sorted(worst_first[:MOST_CELLS])]


def _fitting(cells: Sequence[ComparedCell], width: int) -> tuple[list[str], list[int]]:
    """The columns that have something to show and fit beside the reasons, and their widths."""
    words = [cell_words(cell) for cell in cells if cell.verdict != "none"]
    columns = [head for head in HEADS if any(row[head] for row in words)]
    widths = {head: max([len(head), *(len(row[head]) for row in words)]) for head in columns}
    for dropped in _DROPPED_FIRST:
        if sum(widths[head] + GAP for head in columns) + GAP + _NARROW_REASON <= width:
            break
        columns = [head for head in columns if head != dropped]
    return columns, [widths[head] for head in columns]


def _print_cells(
    console: Console, cells: Sequence[ComparedCell], columns: Sequence[str], widths: Sequence[int]
) -> None:
    """Rows of those that should have two times, then those that can't have any, gathered by reason."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    rows = [cell for cell in cells if cell.verdict != "none"]
    block = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for head, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "left" if head in _LEFT else "right"
        block.add_column(head, width=width, justify=justify, no_wrap=head != "backend")
    block.add_column("why" if any(cell.reason for cell in rows) else "", overflow="fold")
    for cell in rows:
        words = {head: Text(text) for head, text in cell_words(cell).items()}
        words["verdict"].stylize(_STYLES.get(cell.verdict, ""))
        block.add_row(*(words[head] for head in columns), Text(cell.reason))
    if rows:
        console.print(Padding(block, (0, 0, 0, GAP)))
    gathered: dict[str, list[str]] = {}
    for cell in cells:
        if cell.verdict == "none":
            gathered.setdefault(cell.reason, []).append(cell.backend or cell.case)
    for reason, names in gathered.items():
        console.print(Padding(Text(f"none: {', '.join(names)}: {reason}", style="dim"), (0, 0, 0, GAP)))


def _print_summary(console: Console, compared: Compared, gate: GateResult) -> None:
    from rich.text import Text

    console.print(Text(counts(compared), style="bold"))
    least = worst(compared)
    if least is not None:
        console.print(Text(worst_words(least)), soft_wrap=True)
    for cell, why in gate.ignored:
        console.print(Text(f"ignored by the gate: {name(cell)} ({cell.verdict}): {why}"), soft_wrap=True)
    for warning in gate.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    console.print(Text(gate_words(gate), style="green" if gate.exit_code == 0 else "bold red"))
    if other_differences(compared):
        console.print(Text(other_differences(compared), style="dim"))
    for convention in compared.conventions:
        console.print(Text(convention, style="dim"))
