"""A comparison of two sides as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from attnbench.compare.gate import GateResult
from attnbench.reports.formats import GAP, as_csv, as_markdown, as_text, string_console, written
from attnbench.reports.units import DIGITS_UNTOLD, duration, number, ratio, reach
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell, Difference
from attnbench.types.formats import Format
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from rich.console import Console


COLUMNS = (
    "case", "rule", "backend", "base_ms", "new_ms", "ratio", "low", "high", "verdict", "reason",
    "base_status", "new_status", "confidence", "p_value", "p_adjusted", "delta", "least_told", "forced",
)  # fmt: skip
"""Of JSON and CSV; scripts rely on them."""

HEADS = ("backend", "base", "new", "ratio", "interval", "told from", "verdict")
"""Of the table and Markdown."""


def cell_row(cell: ComparedCell, *, forced: bool) -> dict[str, Any]:
    """A cell with every column of :data:`COLUMNS`; None where there is nothing, never NaN or infinite."""
    values = {name: getattr(cell, name) for name in COLUMNS if name != "forced"}
    return {name: _finite(value) for name, value in values.items()} | {"forced": forced}


def cell_words(cell: ComparedCell) -> dict[str, str]:
    """A cell under the heads of :data:`HEADS`, to the digits that its interval justifies."""
    shown, bounds = ("", "") if cell.ratio is None else ratio(cell.ratio, cell.low, cell.high)
    least = "" if cell.least_told is None else least_words(cell.least_told)
    return {
        "backend": cell.backend,
        "base": "" if cell.base_ms is None else duration(cell.base_ms, _relative(cell, cell.base_ms)),
        "new": "" if cell.new_ms is None else duration(cell.new_ms, _relative(cell, cell.new_ms)),
        "ratio": shown,
        "interval": bounds,
        "told from": least,
        "verdict": cell.verdict,
    }


def least_words(share: float) -> str:
    """The least effect that could be told: 7 %, or from 100 % on as a factor."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"×{1 + share:.{DIGITS_UNTOLD}g}"


def _relative(cell: ComparedCell, ms: float) -> float | None:
    """A time to as many digits as its ratio has."""
    far = None if cell.ratio is None else reach(cell.ratio, cell.low, cell.high)
    return None if far is None or not cell.ratio else ms * far / cell.ratio


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


_WORDS = {"slower": "lost (slower)", "faster": "won (faster)", "same": "tied (same)"}


def counts(compared: Compared) -> str:
    """How many cells won, lost, tied, and the rest: one line."""
    found = Counter(cell.verdict for cell in compared.cells)
    order = ("faster", "slower", "same", *(outcome for outcome in OUTCOMES if outcome not in _WORDS))
    said = [f"{found[outcome]} {_WORDS.get(outcome, outcome)}" for outcome in order if found[outcome]]
    return f"{count_of(len(compared.cells), 'cell')}: {', '.join(said) or 'nothing'}"


def worst(compared: Compared) -> ComparedCell | None:
    """The cell with the worst verdict, of those that have a ratio and among them the largest."""
    with_ratio = [cell for cell in compared.cells if cell.ratio is not None]
    return min(with_ratio, key=lambda c: (_rank(c), -(c.ratio or 0.0)), default=None)


def _rank(cell: ComparedCell) -> int:
    """slower before all, then what isn't told, then the rest."""
    return {"slower": 0, "unclear": 1, "same": 2}.get(cell.verdict, 3)


def worst_words(cell: ComparedCell) -> str:
    """Where the worst is and how bad."""
    ratio = cell.ratio or 0.0
    far = reach(ratio, cell.low, cell.high)
    return f"worst: {name(cell)} at {number(ratio, far)} × base ({cell.verdict})"


def name(cell: ComparedCell) -> str:
    """Backend and case, or the case alone where that says it all."""
    return f"{cell.backend} on {cell.case}" if cell.backend else cell.case


def forced_words(compared: Compared) -> str:
    """That a comparison was forced, and over what; "" where it wasn't."""
    if not compared.forced:
        return ""
    over = ", ".join(difference_words(d) for d in compared.differences if d.matters)
    return f"FORCED: the sides were not measured alike, times hardly compare: {over}"


def difference_words(difference: Difference) -> str:
    """A fact and its two values."""
    return f"{difference.fact} ({difference.base} → {difference.new})"


def other_differences(compared: Compared) -> str:
    """What else isn't alike; "" where all is."""
    found = [difference_words(d) for d in compared.differences if not d.matters]
    return f"also unlike, without weight: {', '.join(found)}" if found else ""


def gate_words(result: GateResult) -> str:
    """What the gate says."""
    return f"gate {result.sentence}" if result.exit_code != 3 else f"gate: {result.sentence}"


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


MOST_OPEN = 15
"""Rows that stand open; the others are folded."""
MOST_FOLDED = 100
"""Rows beyond are left to other formats: a comment on GitHub may have 65,536 characters."""
_LONGEST_REASON = 200
_MOST_LINES = 20
_LONGEST_LINE = 500


def markdown(compared: Compared, gate: GateResult) -> str:
    """A sentence, a table of what isn't ``same``, the worst first, and the rest folded."""
    ordered = sorted(compared.cells, key=lambda cell: (OUTCOMES.index(cell.verdict), -(cell.ratio or 0.0)))
    told = [cell for cell in ordered if cell.verdict not in ("same", "none")]
    shown, folded = told[:MOST_OPEN], told[MOST_OPEN:]
    folded += [cell for cell in ordered if cell.verdict in ("same", "none")]
    mark = "✅" if gate.exit_code == 0 else "❌"
    lines = [f"**attnbench compare:** {mark} {gate_words(gate)}. {counts(compared)}.", ""]
    if compared.forced:
        lines = [f"**{as_text(forced_words(compared))}**", "", *lines]
    least = worst(compared)
    if least is not None:
        lines += [f"{as_text(worst_words(least))}.", ""]
    if shown:
        lines += [_rows(shown)]
    lines += (
        [_folded(f"{len(folded)} more cells", _rows(folded[:MOST_FOLDED]), len(folded))] if folded else []
    )
    notes = [f"warning: {warning}" for warning in gate.warnings]
    notes += [f"ignored by the gate: {name(cell)} ({cell.verdict}): {why}" for cell, why in gate.ignored]
    notes += [f"base: {compared.base}", f"new: {compared.new}", other_differences(compared)]
    lines += _notes([note for note in notes if note])
    return "\n".join(lines) + "\n"


def _rows(cells: Sequence[ComparedCell]) -> str:
    rows = [
        {"case": cell.case, **cell_words(cell), "why": _shortened(cell.reason, _LONGEST_REASON)}
        for cell in cells
    ]
    heads = ["case", *(head for head in HEADS if any(row[head] for row in rows))]
    heads += ["why"] if any(row["why"] for row in rows) else []
    left = ("case", "backend", "verdict", "why")
    return as_markdown(rows, heads, right=[head for head in heads if head not in left])


def _folded(summary: str, rows: str, count: int) -> str:
    cut = f"\n{count - MOST_FOLDED} more: --format json\n" if count > MOST_FOLDED else ""
    return f"<details><summary>{summary}</summary>\n\n{rows}{cut}\n</details>\n"


def _notes(notes: Sequence[str]) -> list[str]:
    shown = [f"- {as_text(_shortened(note, _LONGEST_LINE))}" for note in notes[:_MOST_LINES]]
    return shown + ([f"- and {len(notes) - _MOST_LINES} more"] if len(notes) > _MOST_LINES else [])


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def render_compared(
    compared: Compared, gate: GateResult, format: Format, *, width: int = 120, colour: bool = False
) -> str:
    """A comparison and what the gate says of it, as text that ends in a newline.

    JSON is an object whose ``cells`` have the columns of :data:`attnbench.reports.compared.COLUMNS`; CSV
    has these alone. width and colour are for the table.
    """
    if format == "table":
        return table(compared, gate, width, colour=colour)
    if format == "markdown":
        return markdown(compared, gate)
    rows = [cell_row(cell, forced=compared.forced) for cell in compared.cells]
    if format == "csv":
        return as_csv(rows, COLUMNS)
    head = {
        "base": compared.base,
        "new": compared.new,
        "forced": compared.forced,
        "exit_code": gate.exit_code,
        "gate": gate.sentence,
        "failing": [[cell.case, cell.backend] for cell in gate.failing],
        "ignored": [[cell.case, cell.backend, why] for cell, why in gate.ignored],
        "warnings": list(gate.warnings),
        "differences": [asdict(difference) for difference in compared.differences],
    }

    text = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=1)
    # A hundred thousand rows are written in a fifth of json's time.
    lines = [f"\n  {line.decode()}" for line in map(msgspec.json.Encoder().encode, rows)]
    cells = ",".join(lines) + "\n " if lines else ""
    return f'{text[:-2]},\n "cells": [{cells}]\n}}\n'
