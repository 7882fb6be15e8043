"""A comparison of two sides as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import dataclasses
import glob
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, log
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from attnbench.compare.gate import ACCEPTABLE, PLACEHOLDER, GateResult
from attnbench.reports.columns import KIND
from attnbench.reports.formats import (
    GAP,
    as_csv,
    as_markdown,
    as_text,
    bare_table,
    finite,
    print_indented,
    string_console,
    written,
)  # fmt: skip
from attnbench.reports.names import shared_words, short_names
from attnbench.reports.overview import gathered
from attnbench.reports.units import as_shown, duration, number, ratio, reach, upper_end
from attnbench.stats.unpaired import percent
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell, Difference, Outcome
from attnbench.types.words import Format, count_of, first_of

if TYPE_CHECKING:
    from rich.console import Console

    from attnbench.reports.table import View


COLUMNS = (
    "case", "rule", "backend", "base_ms", "new_ms", "ratio", "low", "high", "verdict", "reason",
    "base_status", "new_status", "confidence", "p_value", "p_adjusted", "delta", "resolution", "device_kind",
    "forced",
)  # fmt: skip
"""The columns of JSON and CSV; scripts rely on them."""

HEADS = (KIND, "backend", "base", "new", "ratio", "interval", "resolution", "verdict")
"""The heads of the table and of Markdown; the first only where kinds of device differ."""


def heads_of(compared: Compared) -> tuple[str, ...]:
    """Return the heads of :data:`HEADS` that a comparison has."""
    return HEADS if len({cell.device_kind for cell in compared.cells}) > 1 else HEADS[1:]


def cell_words(cell: ComparedCell) -> dict[str, str]:
    """A cell under the heads of :data:`HEADS`, rounded to the precision that its interval supports."""
    shown, bounds = "", ""
    if cell.ratio is not None:
        shown, bounds = ratio(cell.ratio, cell.low, cell.high, above=cell.most_accepted)
    return {
        KIND: cell.device_kind,
        "backend": cell.backend,
        "base": _time(cell, cell.base_ms),
        "new": _time(cell, cell.new_ms),
        "ratio": shown,
        "interval": bounds,
        "resolution": least_words(cell.resolution),
        "verdict": cell.verdict,
    }


def least_words(share: float | None) -> str:
    """The least difference that these runs can show: 7 %; "" for None."""
    return "" if share is None else percent(share)


def _time(cell: ComparedCell, ms: float | None) -> str:
    """A time with as many digits as the ratio of its cell; "" for None."""
    return "" if ms is None else duration(ms, _reach_of_time(cell, ms))


def _reach_of_time(cell: ComparedCell, ms: float) -> float | None:
    far = reach(cell.ratio, cell.low, cell.high) if cell.ratio else None
    # Two digits at least: 42 ms and 56 ms must not become 40 and 60, whose ratio is another.
    return None if far is None or not cell.ratio else ms * min(far / cell.ratio, _TWO_DIGITS)


def unlike_words(cells: Iterable[ComparedCell]) -> str:
    """Say why a ratio is not that of its times; "" where those shown give it up to half its interval."""
    for cell in cells:
        if not (cell.base_ms and cell.new_ms and cell.ratio) or cell.low is None or cell.high is None:
            continue
        base, new = (as_shown(ms, _reach_of_time(cell, ms)) for ms in (cell.base_ms, cell.new_ms))
        if abs(new / base - cell.ratio) > (cell.high - cell.low) / 2:
            return "where times and ratio disagree, the ratio decides: it is of the same repetitions"
    return ""


def worst_words(compared: Compared, names: Mapping[str, str]) -> str:
    """Name the cell that became slower by most; "" if none did. names: of cases, as the table has them."""
    slower = [cell for cell in compared.cells if cell.verdict == "slower" and cell.ratio]
    if not slower:
        return ""
    cell = max(slower, key=lambda cell: cell.ratio or 0.0)
    far = reach(cell.ratio or 0.0, cell.low, cell.high)
    where = f" on {cell.device_kind}" if KIND in heads_of(compared) else ""
    return f"worst: {name(cell, names)}{where} at {number(cell.ratio or 0.0, far)} × base"


def unclear_words(compared: Compared) -> list[str]:
    """Say what to do about unclear cells: of stored runs in one line, of live ones each reason once."""
    reasons: Counter[str] = Counter()
    for cell in compared.cells:
        if cell.verdict == "unclear":
            stored = cell.p_value is None and cell.resolution is not None
            reasons[_MEASURE_LIVE if stored else cell.reason] += 1
    lines = [f"unclear, {count}: {why}" for why, count in reasons.most_common(_MOST_REASONS)]
    if len(reasons) > _MOST_REASONS:
        lines.append("unclear for other reasons too: see --details")
    return lines


_MEASURE_LIVE = "attnbench compare --ref measures two commits at once, and shows smaller differences"


def name(cell: ComparedCell, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Backend and case, or the case alone for a benchmark without a backend. names: of cases."""
    case = names.get(cell.case, cell.case)
    return f"{cell.backend} on {case}" if cell.backend else case


def forced_words(compared: Compared) -> str:
    """The differences that a forced comparison ignores; "" if it was not forced."""
    if not compared.forced:
        return ""
    over = ", ".join(difference_words(d) for d in compared.differences if d.matters)
    return f"FORCED: the sides were not measured alike, so their times hardly compare: {over}"


def difference_words(difference: Difference) -> str:
    """A fact and its two values."""
    return f"{difference.fact} ({difference.base} → {difference.new})"


def code_differences(compared: Compared) -> str:
    """The code that differs, which is what a comparison is about; "" if it is the same."""
    found = [difference_words(d) for d in compared.differences if _is_code(d)]
    return f"code that differs: {', '.join(found)}" if found else ""


def other_differences(compared: Compared) -> str:
    """The other differences that do not matter; "" if there are none."""
    found = [difference_words(d) for d in compared.differences if not d.matters and not _is_code(d)]
    return f"other differences, which hardly affect times: {', '.join(found)}" if found else ""


def _is_code(difference: Difference) -> bool:
    return not difference.matters and difference.fact.startswith(("attnbench", "plugin "))


def ignored_words(gate: GateResult) -> list[str]:
    """A line for each cell that the gate ignores."""
    return [f"ignored by the gate: {name(cell)} ({cell.verdict}): {why}" for cell, why in gate.ignored]


_MOST_LEFT_OUT = 3


def left_out_words(compared: Compared) -> str:
    """The backends that were not measured because no code of theirs differs; "" for none."""
    names = compared.left_out
    if not names:
        return ""
    return (
        f"left out, their code is the same on both sides: {first_of(names, _MOST_LEFT_OUT)}; "
        "--all measures them too"
    )


_MOST_ENTRIES = 3
_PLAIN = re.compile(r"[][\w@./:+=,-]*")


def _accept_words(gate: GateResult) -> str:
    """Say where the lines of :func:`acceptance_lines` go."""
    where = f"{gate.file} (in place of older ones of these cells)" if gate.file else _NEW_FILE
    return f"to accept it before a merge, add these lines to {where}, with your reason for {PLACEHOLDER!r}:"


_NEW_FILE = "gate.toml, and compare with --gate gate.toml"


def acceptance_lines(gate: GateResult) -> list[str]:
    """Return the lines of a gate file that accept what fails; none where nothing can be accepted.

    Of many cells there is one entry for each backend, and none where many backends fail. Names that no
    plugin can have are in no entry: they come from files of others.
    """
    cells = [cell for cell in gate.failing if cell.verdict in ACCEPTABLE]
    cells = [cell for cell in cells if _PLAIN.fullmatch(cell.case) and _PLAIN.fullmatch(cell.backend)]
    entries = [(glob.escape(cell.case), cell.backend, [cell]) for cell in cells]
    if len(entries) > _MOST_ENTRIES:
        names = dict.fromkeys(cell.backend for cell in cells)
        entries = [("*", name, [cell for cell in cells if cell.backend == name]) for name in names]
    if len(entries) > _MOST_ENTRIES:
        return []
    lines = []
    for case, backend, own in entries:
        lines += ["[[cells]]", f"case = {_quoted(case)}"]
        if backend:
            lines += [f"backend = {_quoted(glob.escape(backend))}"]
        lines += [f"accept = {_quoted(PLACEHOLDER)}"]
        most = max(map(_most_likely, own))
        if most > 1:
            lines += [f"at-most = {most:g}"]
        lines += [""]
    return lines[:-1]


def _most_likely(cell: ComparedCell) -> float:
    """The upper end of a cell's interval, as printed; 0 where nothing bounds its ratio.

    The ratio itself would not do: in the next comparison of the same code the interval may lie above it.
    """
    high = cell.high
    if cell.ratio is not None and high is None and cell.resolution is not None:
        high = cell.ratio * (1 + cell.resolution)
    if cell.ratio is None or high is None or not isfinite(high):
        return 0.0
    return float(upper_end(cell.ratio, cell.ratio if cell.low is None else cell.low, high))


def cause_lines(gate: GateResult) -> list[str]:
    """Return commands that check wrong outputs again: one for each backend, for a few of them.

    They check the code as it is here. Names of others' files that are no plain words are in none.
    """
    wrong: dict[str, ComparedCell] = {}
    for cell in gate.failing:
        if cell.verdict == "mismatch" and cell.rule and cell.backend:
            wrong.setdefault(cell.backend, cell)
    plugins = [word for plugin in gate.plugins for word in ("--plugin", plugin)]
    return [
        shlex.join(["attnbench", "check", cell.case, "--backend", cell.backend, *plugins])
        for cell in wrong.values()
        if _PLAIN.fullmatch(cell.case) and _PLAIN.fullmatch(cell.backend)
    ][:_MOST_ENTRIES]


_CAUSE = "to check a wrong output again, where the new code is installed:"


def _why(cell: ComparedCell, compared: Compared) -> str:
    """Return why a cell has its verdict, without what a line outside of the table says.

    Of unclear cells such a line has each reason once; of a wrong output it has the mistake, so that the
    errors of the output alone are left, with their limits.
    """
    if cell.verdict == "unclear":
        return ""
    if cell.verdict == "mismatch" and any(
        line.startswith(f"advice for {cell.backend}: ") for line in compared.advice
    ):
        return cell.reason.partition("; worst at ")[0]
    return cell.reason


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def gate_words(result: GateResult) -> str:
    """The result of the gate."""
    return f"gate {result.sentence}" if result.exit_code != 3 else f"gate: {result.sentence}"


_STYLES = {
    "slower": "red", "mismatch": "red", "missing": "red", "accepted": "yellow", "unclear": "yellow",
    "faster": "green",
}  # fmt: skip
_LEFT = ("case", KIND, "backend", "verdict")
_UNCHANGED = ("unclear", "same")
_ORDER: tuple[Outcome, ...] = (
    "slower", "mismatch", "missing", "accepted", "faster", "unclear", "same", "none",
)  # fmt: skip
_MOST_REASONS = 3
_DROPPED_FIRST = ("resolution", "interval", "base")
"""The columns that a narrow terminal drops, in this order."""
_NARROW_REASON = 28
_LEAST_NAME = 13
_TWO_DIGITS = 0.04
"""A reach of this share of a time leaves it two digits."""
MOST_CELLS = 500
"""A table shows no more cells; other formats do."""


def table(compared: Compared, gate: GateResult, view: View) -> str:
    """Render a comparison as a table; of many cells it shows those that changed, the worst first."""
    from rich.text import Text

    console = string_console(view.width, colour=view.colour)
    console.print(Text(f"base: {compared.base}\nnew:  {compared.new}"), soft_wrap=True)
    if compared.forced:
        console.print(Text(forced_words(compared), style="bold red"))
    console.print()
    if view.details:
        names: Mapping[str, str] = {}
        _print_by_case(console, compared.cells[:MOST_CELLS], heads_of(compared))
        if len(compared.cells) > MOST_CELLS:
            console.print(f"{len(compared.cells) - MOST_CELLS} more cells: --format json")
    else:
        names = _print_changed(console, compared, gate)
    _print_summary(console, compared, gate, view, names)
    hidden = ["--details"] * (not view.details) + ["--legend"] * (not view.legend)
    if hidden:
        console.print(Text(f"more: {', '.join(hidden)}", style="dim"))
    return written(console)


def _print_changed(console: Console, compared: Compared, gate: GateResult) -> dict[str, str]:
    """Print the cells that changed or fail, the worst first, and the others too if they are few.

    Returns what the table calls each case.
    """
    heads = heads_of(compared)
    rows = _worst_first(cell for cell in compared.cells if cell.verdict != "none")
    failing = set(map(id, gate.failing))
    if len(rows) > MOST_OPEN:
        rows = [cell for cell in rows if cell.verdict not in _UNCHANGED or id(cell) in failing]
    if not rows:
        return {}
    from rich.text import Text

    if len(rows) > MOST_CELLS:
        console.print(f"{len(rows) - MOST_CELLS} more cells have changed: --format json")
        rows = rows[:MOST_CELLS]
    reasons = [_why(cell, compared) for cell in rows]
    cases = [cell.case for cell in rows if cell.backend]
    names = short_names(cases)
    if len({cell.case for cell in rows}) == 1 and rows[0].backend:
        console.print(rows[0].case, style="bold", soft_wrap=True)
        _print_rows(console, rows, heads, reasons)
    else:
        if shared := shared_words(cases):
            console.print(Text(f"all {shared}:", style="dim"))
        _print_rows(console, rows, heads, reasons, names)
    console.print()
    return names


def _worst_first(cells: Iterable[ComparedCell]) -> list[ComparedCell]:
    """Sort cells: by verdict, then by the size of the change."""
    return sorted(cells, key=lambda cell: (_ORDER.index(cell.verdict), -abs(log(cell.ratio or 1.0))))


def _print_by_case(console: Console, cells: Sequence[ComparedCell], heads: Sequence[str]) -> None:
    """Print all cells, the cases in their order."""
    by_case: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        by_case.setdefault(cell.case, []).append(cell)
    for case, those in by_case.items():
        console.print(case, style="bold", soft_wrap=True)
        rows = [cell for cell in those if cell.verdict != "none"]
        _print_rows(console, rows, heads, [cell.reason for cell in rows])
        none = [(cell.reason, cell.backend or cell.case) for cell in those if cell.verdict == "none"]
        for reason, names in gathered(none):
            print_indented(console, f"none: {names}: {reason}")
        console.print()


def _print_rows(
    console: Console,
    cells: Sequence[ComparedCell],
    heads: Sequence[str],
    reasons: Sequence[str],
    names: Mapping[str, str] | None = None,
) -> None:
    """Print cells in rows. reasons: of each cell. names: of cases, if the rows are of several."""
    from rich.text import Text

    rows = [cell_words(cell) | {"case": (names or {}).get(cell.case, cell.case)} for cell in cells]
    if not rows:
        return
    heads = [
        head for head in (heads if names is None else ("case", *heads)) if any(row[head] for row in rows)
    ]
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in heads}
    for dropped in _DROPPED_FIRST:
        room = console.width - (GAP + _NARROW_REASON if any(reasons) else 0)
        if sum(widths[head] + GAP for head in heads) <= room:
            break
        heads = [head for head in heads if head != dropped]
    block = bare_table()
    for head in heads:
        justify: Literal["left", "right"] = "left" if head in _LEFT else "right"
        folds = head in ("backend", "case", KIND)
        least = min(widths[head], _LEAST_NAME) if folds else None
        block.add_column(head, justify=justify, no_wrap=not folds, overflow="fold", min_width=least)
    block.add_column("why" if any(reasons) else "", overflow="fold")
    for cell, row, reason in zip(cells, rows, reasons, strict=True):
        words = {head: Text(row[head]) for head in heads}
        words["verdict"].stylize(_STYLES.get(cell.verdict, ""))
        block.add_row(*(words[head] for head in heads), Text(reason))
    print_indented(console, block)


def _print_summary(
    console: Console, compared: Compared, gate: GateResult, view: View, names: Mapping[str, str]
) -> None:
    from rich.text import Text

    for line in (*compared.advice, *filter(None, (worst_words(compared, names), *ignored_words(gate)))):
        console.print(Text(line), soft_wrap=True)
    for line in () if view.details else unclear_words(compared):
        console.print(Text(line))
    for warning in gate.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    for hint in gate.hints:
        console.print(Text(hint, style="dim"))
    console.print(Text(gate_words(gate), style="green" if gate.exit_code == 0 else "bold red"))
    if lines := acceptance_lines(gate):
        console.print(Text(_accept_words(gate)), soft_wrap=True)
        console.print(Text("\n".join(f"  {line}".rstrip() for line in lines)), soft_wrap=True)
    if lines := cause_lines(gate):
        console.print(Text("\n".join([_CAUSE, *(f"  {line}" for line in lines)])), soft_wrap=True)
    conventions = compared.conventions if view.legend else ()
    told = code_differences(compared), other_differences(compared), left_out_words(compared)
    for line in filter(None, (*told, *conventions)):
        console.print(Text(line, style="dim"))


MOST_OPEN = 15
"""Rows beyond these are folded."""
MOST_FOLDED = 100
"""No more folded rows are written: a comment on GitHub may have 65,536 characters."""
_LONGEST_FOLDED = 200
_MOST_LINES = 20
_LONGEST_LINE = 500


def markdown(compared: Compared, gate: GateResult) -> str:
    """A sentence with the machine and the time, a table of all but ``same``, and the rest folded."""
    ordered = sorted(compared.cells, key=lambda cell: (OUTCOMES.index(cell.verdict), -(cell.ratio or 0.0)))
    heads = heads_of(compared)
    told = [cell for cell in ordered if cell.verdict not in ("same", "none")]
    shown, folded = told[:MOST_OPEN], told[MOST_OPEN:]
    folded += [cell for cell in ordered if cell.verdict == "same"]
    none = [cell for cell in ordered if cell.verdict == "none"]
    cases = [cell.case for cell in ordered if cell.backend]
    names, shared = short_names(cases), shared_words(cases)
    lines = [f"{as_text(_sentence(compared, gate, names))}.", ""]
    lines += [f"{as_text(line)}\n" for line in compared.advice]
    if compared.forced:
        lines = [f"**{as_text(forced_words(compared))}**", "", *lines]
    if shared:
        lines += [f"All cases: {as_text(shared)}.", ""]
    if shown:
        lines += [_rows(compared, shown, heads, names, _LONGEST_LINE)]
        if unlike := unlike_words(shown):
            lines.append(f"{unlike}\n")
    if folded or none:
        cut = f"\n{len(folded) - MOST_FOLDED} more: --format json\n" if len(folded) > MOST_FOLDED else ""
        rows = (
            f"{_rows(compared, folded[:MOST_FOLDED], heads, names, _LONGEST_FOLDED)}{cut}\n" if folded else ""
        )
        told_none = "".join(f"{line}\n" for line in _notes(_none_notes(none)))
        summary = f"<summary>{count_of(len(folded) + len(none), 'more cell' if shown else 'cell')}</summary>"
        lines += [f"<details>{summary}\n\n{rows}{told_none}\n</details>\n"]
    if entries := acceptance_lines(gate)[:_MOST_LINES]:
        lines += [
            f"{_accept_words(gate)}\n",
            "```toml",
            *(_shortened(line, _LONGEST_LINE) for line in entries),
            "```",
            "",
        ]
    if commands := cause_lines(gate):
        lines += [f"{_CAUSE}\n", "```sh", *(_shortened(line, _LONGEST_LINE) for line in commands), "```", ""]
    notes = unclear_words(compared) + [f"warning: {warning}" for warning in gate.warnings]
    notes += [*gate.hints, *ignored_words(gate)]
    notes += [f"base: {compared.base}", f"new: {compared.new}"]
    notes += [code_differences(compared), other_differences(compared)]
    notes += [left_out_words(compared)]
    lines += _notes([note for note in notes if note])
    return "\n".join(lines) + "\n"


def _sentence(compared: Compared, gate: GateResult, names: Mapping[str, str]) -> str:
    """The whole comparison in a sentence: where and how long, the gate, the counts, the worst cell."""
    mark = "✅" if gate.exit_code == 0 else "❌"
    where = f", {compared.measured}" if compared.measured else ""
    said = filter(None, (gate_words(gate), worst_words(compared, names)))
    return f"{mark} attnbench compare{where}: {'; '.join(said)}"


def _rows(
    compared: Compared, cells: Sequence[ComparedCell], heads: Sequence[str], names: Mapping[str, str],
    longest: int,
) -> str:  # fmt: skip
    rows = [
        {
            "case": names.get(cell.case, cell.case),
            **cell_words(cell),
            "why": _shortened(_why(cell, compared), longest),
        }
        for cell in cells
    ]
    heads = ["case", *(head for head in heads if any(row[head] for row in rows))]
    heads += ["why"] if any(row["why"] for row in rows) else []
    left = (*_LEFT, "why")
    return as_markdown(rows, heads, right=[head for head in heads if head not in left])


def _none_notes(cells: Sequence[ComparedCell]) -> list[str]:
    """A line for each reason why cells could not be compared, with their number and backends."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        reasons.setdefault(cell.reason, []).append(cell.backend or cell.case)
    told = []
    for why, names in reasons.items():
        backends = first_of(tuple(dict.fromkeys(names)), _MOST_NAMES)
        told.append(f"{count_of(len(names), 'cell')} of {backends} not compared: {why}")
    return told


_MOST_NAMES = 6


def _notes(notes: Sequence[str]) -> list[str]:
    shown = [f"- {as_text(_shortened(note, _LONGEST_LINE))}" for note in notes[:_MOST_LINES]]
    return shown + ([f"- and {len(notes) - _MOST_LINES} more"] if len(notes) > _MOST_LINES else [])


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def render_compared(compared: Compared, gate: GateResult, format: Format, view: View) -> str:
    """Render a comparison and the result of the gate as text that ends in a newline.

    JSON is an object whose ``cells`` have the columns of :data:`attnbench.reports.compared.COLUMNS`; CSV
    has these alone. view: of the table.
    """
    if format == "table":
        return table(compared, gate, view)
    if format == "markdown":
        return markdown(compared, gate)
    names = [name for name in COLUMNS if name != "forced"]
    rows = [
        finite({name: getattr(cell, name) for name in names} | {"forced": compared.forced})
        for cell in compared.cells
    ]
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
        "differences": [dataclasses.asdict(difference) for difference in compared.differences],
    }

    text = json.dumps(head, ensure_ascii=False, allow_nan=False, indent=1)
    # A hundred thousand rows are written in a fifth of json's time.
    lines = [f"\n  {line.decode()}" for line in map(msgspec.json.Encoder().encode, rows)]
    cells = ",".join(lines) + "\n " if lines else ""
    return f'{text[:-2]},\n "cells": [{cells}]\n}}\n'
