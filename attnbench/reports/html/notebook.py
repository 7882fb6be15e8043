"""The answer of a run as a piece of HTML for a notebook: styles stand at their elements, and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from attnbench.reports.answer import ABSENT, Grid, case_cell, case_numbers, totals_grids
from attnbench.reports.columns import NAMES, name_text, table_columns, time_text
from attnbench.reports.html.heat import STEPS, Heat, Tile, heat_of
from attnbench.reports.html.whole import cases_words, part_findings, run_labels, user_has, whole_findings
from attnbench.reports.html.words import (
    FailedOutcomes,
    Sentence,
    failures,
    findings,
    isolated,
    kinds_of,
    lead_rows,
    leads_key,
    minute,
    stages_of,
    verdict_words,
)
from attnbench.reports.judged import ReportPart
from attnbench.reports.names import short_names, with_stages
from attnbench.reports.overview import absent_words
from attnbench.reports.run import Run
from attnbench.stats.answer import Lead
from attnbench.types.status import status_words
from attnbench.types.words import capital, clean, count_of, first_of

MOST_CASES = 40
"""A notebook shows no more cases; the page has all."""
_TONES = {
    "best": "background:#bfe3cd;color:#1d2127;font-weight:700",
    "tied": "background:#e4f3ea;color:#1d2127",
    "likely": "background:#e4f3ea;color:#1d2127;font-weight:700",
    "step1": "background:#fdf0dc;color:#1d2127",
    "step2": "background:#f7d3b0;color:#1d2127",
    "step3": "background:#efab85;color:#1d2127",
    "failed": "background:#fbe6e3;color:#a52a2a",
}
_BARS = {
    "good": "solid #2f9a45",
    "plain": "solid #c9c5bd",
    "unsure": "dashed #b87d00",
    "bad": "solid #c0392b",
}
_PADDED = "padding:2px 8px"
_UPRIGHT = f"writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;{_PADDED}"
_MOST_LETTERS = 30
"""Heads of a map with more letters stand upright."""
_MOST_NAMED = 5
"""A failure names no more cases."""
_LEFT, _MIDDLE = f"text-align:left;{_PADDED}", f"text-align:center;{_PADDED}"
_RIGHT = f"text-align:right;white-space:nowrap;{_PADDED}"
_NUMBERS = ("×best", "limit", "rms/ref", "extra")
"""Columns behind the time in the table of a run of one case."""


def notebook_html(run: Run) -> str:
    """Return sentences, the time of a step, the backend to use in each case, and the map of all backends.

    A run of one case has a sentence and a table of its backends.
    """
    parts = [part for parts in run.reports for part in parts]
    labels = run_labels(run, parts)
    said = [*_sentences(parts, labels)]
    for part, label in zip(parts, labels, strict=True):
        if len(parts) > 1:
            said.append(f"<b>{_safe(label)}</b>")
        said += _of_part(run, part, parts)
    return "<div>" + "\n".join(said) + "</div>"


def _sentences(parts: list[ReportPart], labels: list[str]) -> list[str]:
    return [_said(one) for one in whole_findings(parts, labels)]


def _said(one: Sentence) -> str:
    """A sentence with a bar in the colour of its tone, as on the page."""
    style = f"margin:4px 0;padding-left:10px;border-left:4px {_BARS[one.tone]}"
    text = f"{one.run and f'{one.run}: '}{one.subject} {one.text}".strip()
    return f'<p style="{style}">{_safe(text)}</p>'


def _of_part(run: Run, part: ReportPart, parts: Sequence[ReportPart]) -> list[str]:
    leads = () if part.answer is None else part.answer.leads
    sentences = findings(part, run.manifests[part.runs[0]])
    sentences += part_findings(part, parts)
    stages, short = stages_of(run, part), short_names(case_numbers([part]))
    names = with_stages(short, stages)
    lines = (_place(run, part), cases_words(one.record.case for one in part.judged))
    said = [f"<p>{'<br>'.join(map(_safe, filter(None, lines)))}</p>", *map(_said, sentences)]
    if part.answer is not None:
        said += map(_step, totals_grids(part.answer, short, bounds=True))
    heat = heat_of(part, user_has(part))
    if len(leads) == len(names) == 1:
        said.append(_table_of_backends(part, leads[0]))
    elif leads:
        said.append(_table_of_leads(part, names))
    if heat is not None and len(names) > 1:
        said.append(_map(heat, names))
    if heat is not None:
        said += [f"<p>{_safe(words)}</p>" for words in _absent(part, heat)]
    if failed := failures(part.judged)[0]:
        said.append(_table_of_failures(failed, names))
    left = len({one.record.case for one in part.judged}) - MOST_CASES
    if left > 0:
        said.append(f"<p>{count_of(left, 'more case')}: attnbench report FILE --html page.html</p>")
    return said


def _place(run: Run, part: ReportPart) -> str:
    """When and where a part was measured, and its file."""
    first = part.runs[0]
    machine, torch = ", ".join(map(isolated, kinds_of(part))), part.torch and f"torch {part.torch}"
    known = (minute(run.manifests[first].started), machine, torch, run.paths[first].name)
    return " · ".join(filter(None, known))


def _absent(part: ReportPart, heat: Heat) -> list[str]:
    """Say why backends of the map do not run in some of its cases, in a list that is empty where all do."""
    told = absent_words([one.record for one in part.judged if name_text(one.record) in heat.backends])
    return [f"{ABSENT}: {'; '.join(told)}"] if told else []


def _step(total: Grid) -> str:
    """The time of one step with each backend."""
    styles = [_RIGHT if head in total.right else _LEFT for head in total.heads]
    title, *others = total.heads
    heads = list(zip((NAMES, *others), styles, strict=True))
    rows = [list(zip(row, styles, strict=True)) for row in total.rows]
    return _table(capital(title), heads, rows)


def _table_of_backends(part: ReportPart, lead: Lead) -> str:
    """The backends of a run of one case, with their numbers."""
    timed = [one for one in part.judged if one.record.status == "ok" and one.record.median_ms is not None]
    # By the ratio, which the sentence goes by: times of two backends may look alike.
    timed.sort(key=lambda one: lead.over[one.record.backend].ratio if one.record.backend in lead.over else 0)
    columns = [column for column in table_columns(timed) if column.head in _NUMBERS]
    heads = [(NAMES, _LEFT), ("time", _RIGHT), *((column.head, _RIGHT) for column in columns)]
    heads += [("verdict", _LEFT)]
    body = []
    for one in timed:
        cells = [
            case_cell(one, lead, bounds=True) if column.head == "×best" else column.cell(one) or ""
            for column in columns
        ]
        cells = [name_text(one.record), time_text(one.record) or "", *cells, verdict_words(one)]
        body.append([(cell, style) for cell, (_, style) in zip(cells, heads, strict=True)])
    return _table("All backends", heads, body)


def _table_of_leads(part: ReportPart, names: Mapping[str, str]) -> str:
    users = user_has(part)
    heads = [("case", _LEFT), ("use", _LEFT), ("time", _RIGHT)]
    heads += [(f"{user} ×", _RIGHT) for user in users] + [("next ×", _LEFT)]
    body = []
    rows = lead_rows(part, users)[:MOST_CASES]
    for row in rows:
        use = " ".join(filter(None, (row.use, row.also, row.fails and f"({row.fails})")))
        time = f"{row.time} (disturbed)" if row.disturbed else row.time
        cells = [names[row.case], use, time, *row.users, row.following]
        body.append([(cell, style) for cell, (_, style) in zip(cells, heads, strict=True)])
    return _table("The fastest backend of each case", heads, body, leads_key(rows))


def _table_of_failures(failed: Sequence[FailedOutcomes], names: Mapping[str, str]) -> str:
    heads = [("backend", _LEFT), ("status", _LEFT), ("reason", _LEFT), ("cases", _LEFT)]
    body = []
    for one in failed:
        cases = first_of([names[case] for case in one.cases], _MOST_NAMED)
        cells = (one.backend, status_words(one.status), one.reason, cases)
        body.append([(cell, _LEFT) for cell in cells])
    return _table("Failures", heads, body)


def _map(heat: Heat, names: Mapping[str, str]) -> str:
    upright = _UPRIGHT if len("".join(heat.backends)) > _MOST_LETTERS else _MIDDLE
    heads = [("case", f"{_LEFT};vertical-align:bottom"), *((backend, upright) for backend in heat.backends)]
    body = [
        [(names[case], _LEFT), *((cell.text, _style(cell)) for cell in cells)]
        for case, cells in list(heat.rows.items())[:MOST_CASES]
    ]
    colours = ", ".join(f"{step:g}" for step in STEPS)
    return _table("All backends in all cases", heads, body, f"{heat.key} Colours change at {colours}.")


def _style(cell: Tile) -> str:
    return ";".join(filter(None, (_MIDDLE, _TONES.get(cell.tone, ""))))


def _table(title: str, heads: list[tuple[str, str]], rows: list[list[tuple[str, str]]], key: str = "") -> str:
    """A table under its title. key: what its cells are."""
    head = "".join(f'<th style="{style}">{_safe(text)}</th>' for text, style in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{_safe(text)}</td>' for text, style in row) + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    above = f'<p style="margin:12px 0 2px"><b>{_safe(title)}</b> {_safe(key)}</p>'
    return f'{above}<div style="overflow-x:auto;margin-bottom:12px">{table}</div>'


def _safe(text: str) -> str:
    return escape(clean(text))
