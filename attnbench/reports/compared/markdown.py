"""A comparison as Markdown that fits into a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.compared.rows import HEADS, cell_words
from attnbench.reports.compared.summary import (
    counts,
    forced_words,
    gate_words,
    name,
    other_differences,
    worst_words,
)
from attnbench.reports.compared.summary import worst as worst_of
from attnbench.reports.formats import as_markdown, as_text
from attnbench.stored.gate import GateResult
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell

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
    least = worst_of(compared)
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
