"""The answer of a run as a piece of HTML for a notebook: styles stand at their elements, and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from attnbench.reports.answer import case_numbers
from attnbench.reports.html.heat import Heat, Tile, heat_of
from attnbench.reports.html.whole import cases_words, run_labels, user_has, whole_findings
from attnbench.reports.html.words import findings, lead_rows, use_words
from attnbench.reports.judged import ReportPart
from attnbench.reports.names import short_names
from attnbench.reports.run import Run
from attnbench.types.words import clean, count_of

MOST_CASES = 40
"""A notebook shows no more cases; the page has all."""
_TONES = {
    "best": "background:#bfe3cd;color:#1d2127;font-weight:700",
    "tied": "background:#e4f3ea;color:#1d2127",
    "step1": "background:#fdf0dc;color:#1d2127",
    "step2": "background:#f7d3b0;color:#1d2127",
    "step3": "background:#efab85;color:#1d2127",
    "failed": "background:#fbe6e3;color:#a52a2a",
}
_LEFT = "text-align:left;white-space:nowrap"
_RIGHT, _MIDDLE = "text-align:right;white-space:nowrap", "text-align:center"


def notebook_html(run: Run) -> str:
    """Return sentences, the backend to use in each case, and the map of all backends."""
    parts = [part for parts in run.reports for part in parts]
    labels = run_labels(run, parts)
    said = [*_sentences(parts, labels)]
    for part, label in zip(parts, labels, strict=True):
        if len(parts) > 1:
            said.append(f"<b>{_safe(label)}</b>")
        said += _of_part(run, part, alone=len(parts) == 1)
    return "<div>" + "\n".join(said) + "</div>"


def _sentences(parts: list[ReportPart], labels: list[str]) -> list[str]:
    return [f"<p>{_safe(one.text)}</p>" for one in whole_findings(parts, labels)]


def _of_part(run: Run, part: ReportPart, *, alone: bool) -> list[str]:
    leads = () if part.answer is None else part.answer.leads
    sentences = findings(part.judged, run.manifests[part.runs[0]]) + ([] if alone else use_words(leads))
    told = [f"{one.subject} {one.text}".strip() for one in sentences]
    names = short_names(case_numbers([part]))
    said = [f"<p>{_safe(cases_words(one.record.case for one in part.judged))}<br>{_safe(' '.join(told))}</p>"]
    if leads:
        said.append(_table_of_leads(part, names))
    heat = heat_of(part)
    if heat is not None:
        said.append(f"<p>{_safe(heat.key)}</p>{_map(heat, names)}")
    left = len({one.record.case for one in part.judged}) - MOST_CASES
    if left > 0:
        said.append(f"<p>{count_of(left, 'more case')}: attnbench report FILE --html page.html</p>")
    return said


def _table_of_leads(part: ReportPart, names: Mapping[str, str]) -> str:
    users = user_has(part)
    heads = [("case", _LEFT), ("use", _LEFT), ("time", _RIGHT)]
    heads += [(f"{user} ×", _RIGHT) for user in users] + [("next ×", _LEFT)]
    body = []
    for row in lead_rows(part, users)[:MOST_CASES]:
        use = f"{row.use} {row.also}".strip()
        cells = [names[row.case], use, row.time, *row.users, row.following]
        body.append([(cell, style) for cell, (_, style) in zip(cells, heads, strict=True)])
    return _table(heads, body)


def _map(heat: Heat, names: Mapping[str, str]) -> str:
    heads = [("case", _LEFT), *((backend, _MIDDLE) for backend in heat.backends)]
    body = [
        [(names[case], _LEFT), *((cell.text, _style(cell)) for cell in cells)]
        for case, cells in list(heat.rows.items())[:MOST_CASES]
    ]
    return _table(heads, body)


def _style(cell: Tile) -> str:
    return ";".join(filter(None, (_MIDDLE, _TONES.get(cell.tone, ""))))


def _table(heads: list[tuple[str, str]], rows: list[list[tuple[str, str]]]) -> str:
    head = "".join(f'<th style="{style}">{_safe(text)}</th>' for text, style in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{_safe(text)}</td>' for text, style in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(text: str) -> str:
    return escape(clean(text))
