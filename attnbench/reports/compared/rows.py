"""A compared cell as one flat row of plain values, and as words for people."""

from __future__ import annotations

from math import isfinite
from typing import Any

from attnbench.reports.units import DIGITS_UNTOLD, duration, ratio, reach
from attnbench.types.compared import ComparedCell

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
