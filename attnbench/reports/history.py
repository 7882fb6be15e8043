"""The history of cells as a table, JSON, CSV or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from attnbench.compare.history import HistoryStep
from attnbench.reports.answer import Grid
from attnbench.reports.columns import KIND
from attnbench.reports.compared import least_words
from attnbench.reports.formats import GAP, as_markdown, finite, listing, string_console, written
from attnbench.reports.overview import print_grid
from attnbench.reports.units import duration, number, ratio, reach
from attnbench.stats.tests import ends
from attnbench.types.status import MEANING
from attnbench.types.words import Format

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = (
    "case", "rule", "backend", "started", "commit", "status", "median_ms", "low_ms", "high_ms", "ratio",
    "baseline", "verdict", "change", "change_low", "change_high", "before", "reason", "cpu",
    "device_kind", "path",
)  # fmt: skip
"""The columns of JSON and CSV; scripts rely on them."""

HEADS = (
    "date", "commit", KIND, "time", "×baseline", "×before", "interval", "resolution", "verdict", "note",
)  # fmt: skip
_RIGHT = ("time", "×baseline", "×before", "interval", "resolution")
_SPEAKS_FOR_ITSELF = ("slower", "faster", "same", "unclear")
_COMMIT_LETTERS = 9

CONVENTIONS = {
    "time": "median over processes",
    "×baseline": "over the run's own baseline, from pairs",
    "×before": "over the latest earlier run that was measured alike",
    "resolution": "the least difference that these runs can show",
}
"""The lines that explain a column, by its head."""


def step_row(step: HistoryStep) -> dict[str, Any]:
    """A step with every column of :data:`COLUMNS`; a missing value is None, never NaN or infinity."""
    cell, run, compared = step.cell, step.run, step.compared
    low, high, _ = ends(step)
    row = {
        "case": cell.case,
        "rule": cell.rule,
        "backend": cell.backend,
        "started": run.started,
        "commit": run.commit,
        "status": cell.status,
        "median_ms": _median_ms(step),
        "low_ms": low,
        "high_ms": high,
        "ratio": cell.ratio,
        "baseline": cell.baseline or None,
        "verdict": compared and compared.verdict,
        "change": compared and compared.ratio,
        "change_low": compared and compared.low,
        "change_high": compared and compared.high,
        "before": None if step.before is None else step.before.started,
        "reason": _reason(step),
        "cpu": run.environment.get("cpu"),
        "device_kind": step.device_kind,
        "path": str(run.path),
    }
    return finite(row)


def render_history(
    steps: Sequence[HistoryStep], format: Format, *, width: int = 120, colour: bool = False
) -> str:
    """Render steps as text that ends in a newline; a table has a block for each cell.

    A table and Markdown leave out cells that were never timed and never failed.
    """
    if format in ("json", "csv"):
        return listing([step_row(step) for step in steps], COLUMNS, format)
    telling = {step.cell.key for step in steps if _median_ms(step) is not None or _failed(step)}
    steps = [step for step in steps if step.cell.key in telling]
    if format == "markdown":
        words = [{"case": step.cell.case, "backend": step.cell.backend} | _words(step) for step in steps]
        return as_markdown(words, ("case", "backend", *_heads(words)), right=_RIGHT)
    return _table(steps, width, colour)


def _failed(step: HistoryStep) -> bool:
    return step.cell.status != "ok" and not MEANING[step.cell.status].declined


def _table(steps: Sequence[HistoryStep], width: int, colour: bool) -> str:
    console = string_console(width, colour=colour)
    several = len({step.device_kind for step in steps}) > 1
    shown: set[str] = set()
    for (case, backend, kind), group in groupby(steps, key=lambda one: (*one.cell.key, one.device_kind)):
        title = f"{case}  {backend}".rstrip() + (f"  on {kind}" if several else "")
        console.print(title, style="bold", soft_wrap=True)
        shown.update(_print_steps(console, list(group)))
    words = [f"{head}: {what}" for head, what in CONVENTIONS.items() if head in shown]
    if words:
        console.print("; ".join(words), style="dim")
    return written(console)


def _print_steps(console: Console, steps: Sequence[HistoryStep]) -> list[str]:
    words = [_words(step) for step in steps]
    heads = [head for head in _heads(words) if head != "note"]
    rows = tuple(tuple(row[head] for head in heads) for row in words)
    print_grid(console, Grid(tuple(heads), rows, frozenset(_RIGHT), GAP))
    for row in words:
        # Below the block, so that a run is a line.
        if row["note"]:
            console.print(f"{row['date']}: {row['note']}", style="yellow")
    console.print()
    return heads


def _heads(rows: Iterable[dict[str, str]]) -> list[str]:
    """The columns with a value; the kind of device only if there are several."""
    rows = list(rows)
    kinds = {row[KIND] for row in rows}
    shown = [head for head in HEADS if any(row[head] for row in rows)]
    return [head for head in shown if head != KIND or len(kinds) > 1]


def _words(step: HistoryStep) -> dict[str, str]:
    ms, compared = _median_ms(step), step.compared
    far = None if ms is None else reach(ms, *ends(step)[:2])
    time = "" if ms is None else duration(ms, far)
    relative = step.cell.ratio
    change, bounds = "", ""
    if compared is not None and compared.ratio is not None:
        change, bounds = ratio(compared.ratio, compared.low, compared.high)
    return {
        "date": step.run.started[:16].replace("T", " "),
        "commit": _short(step.run.commit),
        KIND: step.device_kind,
        "time": time,
        "×baseline": number(relative, relative * far / ms if far and ms else None) if relative else "",
        "×before": change,
        "interval": bounds,
        "verdict": "" if compared is None else compared.verdict,
        "resolution": least_words(None if compared is None else compared.resolution),
        "note": "" if compared is not None and compared.verdict in _SPEAKS_FOR_ITSELF else _reason(step),
    }


def _short(commit: str) -> str:
    """The first letters of a commit, with ``-dirty`` where files were changed since."""
    name, _, dirty = commit.partition("-")
    return name[:_COMMIT_LETTERS] + (f"-{dirty}" if dirty else "")


def _median_ms(step: HistoryStep) -> float | None:
    times = step.cell.processes_ns
    return median(times) / 1e6 if times else None


def _reason(step: HistoryStep) -> str:
    """The reason why there is no time, or no plain verdict."""
    if step.cell.status != "ok":
        return f"{step.cell.status.replace('_', ' ')}: {step.cell.reason}"
    return step.why if step.compared is None else step.compared.reason
