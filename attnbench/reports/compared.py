"""A comparison of two sides as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from attnbench.compare.gate import GateResult
from attnbench.reports.formats import GAP, as_csv, as_markdown, as_text, finite, string_console, written
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
"""The columns of JSON and CSV; scripts rely on them."""

HEADS = ("backend", "base", "new", "ratio", "interval", "told from", "verdict")
"""The heads of the table and of Markdown."""


def cell_row(cell: ComparedCell, *, forced: bool) -> dict[str, Any]:
    """A cell with every column of :data:`COLUMNS`; a missing value is None, never NaN or infinity."""
    return finite({name: getattr(cell, name) for name in COLUMNS if name != "forced"} | {"forced": forced})


def cell_words(cell: ComparedCell) -> dict[str, str]:
    """A cell under the heads of :data:`HEADS`, rounded to the precision that its interval supports."""
    shown, bounds = ("", "") if cell.ratio is None else ratio(cell.ratio, cell.low, cell.high)
    return {
        "backend": cell.backend,
        "base": _time(cell, cell.base_ms),
        "new": _time(cell, cell.new_ms),
        "ratio": shown,
        "interval": bounds,
        "told from": least_words(cell.least_told),
        "verdict": cell.verdict,
    }


def least_words(share: float | None) -> str:
    """The least difference that these runs can show: 7 %, or a factor from 100 % on; "" for None."""
    if share is None:
        return ""
    return f"{100 * share:.2g} %" if share < 0.995 else f"×{1 + share:.{DIGITS_UNTOLD}g}"


def _time(cell: ComparedCell, ms: float | None) -> str:
    """A time with as many digits as the ratio of its cell; "" for None."""
    if ms is None:
        return ""
    far = reach(cell.ratio, cell.low, cell.high) if cell.ratio else None
    return duration(ms, None if far is None or not cell.ratio else ms * far / cell.ratio)


_WORDS = {"slower": "lost (slower)", "faster": "won (faster)", "same": "tied (same)"}


def counts(compared: Compared) -> str:
    """Count the cells that won, lost, tied, and the rest, in one line."""
    found = Counter(cell.verdict for cell in compared.cells)
    order = ("faster", "slower", "same", *(outcome for outcome in OUTCOMES if outcome not in _WORDS))
    said = [f"{found[outcome]} {_WORDS.get(outcome, outcome)}" for outcome in order if found[outcome]]
    return f"{count_of(len(compared.cells), 'cell')}: {', '.join(said) or 'nothing'}"


def worst(compared: Compared) -> ComparedCell | None:
    """The cell with the worst verdict and the largest ratio; None if no cell has a ratio."""
    rank = {"slower": 0, "unclear": 1, "same": 2, "faster": 3}
    with_ratio = [(rank.get(cell.verdict, 3), -cell.ratio, cell) for cell in compared.cells if cell.ratio]
    return min(with_ratio, key=lambda one: one[:2])[2] if with_ratio else None


def worst_words(compared: Compared) -> str:
    """Name the worst cell with its ratio; "" if there is none."""
    cell = worst(compared)
    if cell is None or cell.ratio is None:
        return ""
    far = reach(cell.ratio, cell.low, cell.high)
    return f"worst: {name(cell)} at {number(cell.ratio, far)} × base ({cell.verdict})"


def name(cell: ComparedCell) -> str:
    """Backend and case, or the case alone for a benchmark without a backend."""
    return f"{cell.backend} on {cell.case}" if cell.backend else cell.case


def forced_words(compared: Compared) -> str:
    """The differences that a forced comparison ignores; "" if it was not forced."""
    if not compared.forced:
        return ""
    over = ", ".join(difference_words(d) for d in compared.differences if d.matters)
    return f"FORCED: the sides were not measured alike, so their times hardly compare: {over}"


def difference_words(difference: Difference) -> str:
    """A fact and its two values."""
    return f"{difference.fact} ({difference.base} → {difference.new})"


def other_differences(compared: Compared) -> str:
    """The differences that do not matter; "" if there are none."""
    found = [difference_words(d) for d in compared.differences if not d.matters]
    return f"other differences, which hardly affect times: {', '.join(found)}" if found else ""


def ignored_words(gate: GateResult) -> list[str]:
    """A line for each cell that the gate ignores."""
    return [f"ignored by the gate: {name(cell)} ({cell.verdict}): {why}" for cell, why in gate.ignored]


_MOST_LEFT_OUT = 3


def left_out_words(compared: Compared) -> str:
    """The backends that were not measured because no code of theirs differs; "" for none."""
    names = compared.left_out
    if not names:
        return ""
    more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
    return (
        f"left out, their code is the same on both sides: {', '.join(names[:_MOST_LEFT_OUT])}{more}; "
        "--all measures them too"
    )


def gate_words(result: GateResult) -> str:
    """The result of the gate."""
    return f"gate {result.sentence}" if result.exit_code != 3 else f"gate: {result.sentence}"


_STYLES = {
    "slower": "red", "mismatch": "red", "missing": "red", "unclear": "yellow", "faster": "green",
}  # fmt: skip
_LEFT = ("backend", "verdict")
_DROPPED_FIRST = ("told from", "interval", "base")
"""The columns that a narrow terminal drops, in this order."""
_NARROW_REASON = 28
MOST_CELLS = 500
"""A table shows no more cells; other formats do."""


def table(compared: Compared, gate: GateResult, width: int = 120, *, colour: bool = False) -> str:
    """Render a comparison as a table of at most ``width`` columns (60 at least); only ids may be longer."""
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
    """All cells in their order, or the ones with the worst verdicts if there are very many."""
    if len(cells) <= MOST_CELLS:
        return cells
    worst_first = sorted(range(len(cells)), key=lambda i: OUTCOMES.index(cells[i].verdict))
    return [cells[i] for i in sorted(worst_first[:MOST_CELLS])]


def _fitting(cells: Sequence[ComparedCell], width: int) -> tuple[list[str], list[int]]:
    """The columns that have values and fit beside the reasons, and their widths."""
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
    """Print the cells of a case, then those with nothing to compare, together by reason."""
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
    for line in filter(None, (worst_words(compared), *ignored_words(gate))):
        console.print(Text(line), soft_wrap=True)
    for warning in gate.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    console.print(Text(gate_words(gate), style="green" if gate.exit_code == 0 else "bold red"))
    for line in filter(None, (other_differences(compared), left_out_words(compared), *compared.conventions)):
        console.print(Text(line, style="dim"))


MOST_OPEN = 15
"""Rows beyond these are folded."""
MOST_FOLDED = 100
"""No more folded rows are written: a comment on GitHub may have 65,536 characters."""
_LONGEST_REASON = 200
_MOST_LINES = 20
_LONGEST_LINE = 500


def markdown(compared: Compared, gate: GateResult) -> str:
    """A sentence, a table of all but ``same``, the worst first, and the rest folded."""
    ordered = sorted(compared.cells, key=lambda cell: (OUTCOMES.index(cell.verdict), -(cell.ratio or 0.0)))
    told = [cell for cell in ordered if cell.verdict not in ("same", "none")]
    shown, folded = told[:MOST_OPEN], told[MOST_OPEN:]
    folded += [cell for cell in ordered if cell.verdict in ("same", "none")]
    mark = "✅" if gate.exit_code == 0 else "❌"
    lines = [f"**attnbench compare:** {mark} {gate_words(gate)}. {counts(compared)}.", ""]
    if compared.forced:
        lines = [f"**{as_text(forced_words(compared))}**", "", *lines]
    if worst_words(compared):
        lines += [f"{as_text(worst_words(compared))}.", ""]
    if shown:
        lines += [_rows(shown)]
    if folded:
        cut = f"\n{len(folded) - MOST_FOLDED} more: --format json\n" if len(folded) > MOST_FOLDED else ""
        summary = f"<summary>{len(folded)} more cells</summary>"
        lines += [f"<details>{summary}\n\n{_rows(folded[:MOST_FOLDED])}{cut}\n</details>\n"]
    notes = [f"warning: {warning}" for warning in gate.warnings] + ignored_words(gate)
    notes += [f"base: {compared.base}", f"new: {compared.new}", other_differences(compared)]
    notes += [left_out_words(compared)]
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


def _notes(notes: Sequence[str]) -> list[str]:
    shown = [f"- {as_text(_shortened(note, _LONGEST_LINE))}" for note in notes[:_MOST_LINES]]
    return shown + ([f"- and {len(notes) - _MOST_LINES} more"] if len(notes) > _MOST_LINES else [])


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def render_compared(
    compared: Compared, gate: GateResult, format: Format, *, width: int = 120, colour: bool = False
) -> str:
    """Render a comparison and the result of the gate as text that ends in a newline.

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
        "left_out": list(compared.left_out),
        "differences": [asdict(difference) for difference in compared.differences],
    }

    text = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=1)
    # A hundred thousand rows are written in a fifth of json's time.
    lines = [f"\n  {line.decode()}" for line in map(msgspec.json.Encoder().encode, rows)]
    cells = ",".join(lines) + "\n " if lines else ""
    return f'{text[:-2]},\n "cells": [{cells}]\n}}\n'
