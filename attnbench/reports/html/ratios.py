"""Ratios to the baseline, case by backend, as a map of colours."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.columns import name_text, ratio_text
from attnbench.reports.html.chart import Chart, Row, Spec, Table, View, figure, of_the_view, tooltip
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import Shown
from attnbench.reports.judged import BASELINE, Judged

MOST_CASES = 30
"""Of a view: more can't be read at once."""
FARTHEST = 4
"""Ratios beyond this, and below its inverse, all have the last colour."""
_CLEARLY = 1.4
_COLOURS = (
    "rgba(31, 111, 180, 1)", "rgba(31, 111, 180, 0.5)", "rgba(130, 130, 130, 0.15)",
    "rgba(196, 89, 27, 0.5)", "rgba(196, 89, 27, 1)",
)  # fmt: skip
"""From faster to slower; the middle lets the page shine through, light or dark."""
_ROW, _BESIDE = 24, 170
"""Height of a case, and of names and legend together, in pixels."""
_TIPS = (
    ("case", "case"), ("backend", "backend"), ("ratio", "ratio"), ("interval", "interval"),
    ("said", "verdict"),
)  # fmt: skip


def ratio_chart(runs: Sequence[Shown]) -> Chart:
    """The ratio of each backend on each case by colour, in words where there is none."""
    x: Spec = {
        "field": "backend", "type": "nominal", "sort": of_the_view("backends"), "title": None,
        "axis": {"orient": "top", "labelAngle": -40, "labelLimit": 150, "domain": False, "ticks": False},
    }  # fmt: skip
    y: Spec = {
        "field": "case", "type": "nominal", "sort": of_the_view("cases"), "title": None,
        "axis": {"labelLimit": 260, "domain": False, "ticks": False},
    }  # fmt: skip
    scale = {
        "type": "log", "domain": [1 / FARTHEST, 1 / _CLEARLY, 1, _CLEARLY, FARTHEST], "range": list(_COLOURS),
        "clamp": True, "interpolate": "rgb",
    }  # fmt: skip
    legend = {
        "title": "time over the baseline's", "orient": "bottom", "gradientLength": 220, "format": "~g",
        "values": [1 / FARTHEST, 0.5, 1, 2, FARTHEST],
    }  # fmt: skip
    measured = {"filter": "isValid(datum.value)"}
    colours: Spec = {
        "transform": [measured],
        "mark": {"type": "rect", "cornerRadius": 2},
        "encoding": {
            "x": x, "y": y, "tooltip": tooltip(*_TIPS),
            "color": {"field": "value", "type": "quantitative", "scale": scale, "legend": legend},
            "opacity": {"condition": {"test": "datum.sure", "value": 1}, "value": 0.45},
        },
    }  # fmt: skip
    numbers: Spec = {
        "transform": [measured],
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "x": x, "y": y, "text": {"field": "text"},
            "color": {
                "condition": [
                    {"test": "datum.sure && (datum.value > 2 || datum.value < 0.5)", "value": "#fff"},
                ],
                "value": "currentColor",
            },
        },
    }  # fmt: skip
    others: Spec = {
        "transform": [{"filter": "!isValid(datum.value)"}],
        "mark": {"type": "text", "fontSize": 10, "opacity": 0.65, "color": "currentColor"},
        "encoding": {"x": x, "y": y, "text": {"field": "text"}, "tooltip": tooltip(*_TIPS)},
    }
    return Chart(
        name="ratios",
        title="Ratios, case by backend",
        lead="Time over the baseline's: blue is faster, orange slower. Pale with a question mark: unclear, "
        "neither is proved. Where there is a word, there is no time that counts.",
        choice="Cases",
        spec=figure([colours, numbers, others], of_the_view("height"), config={"view": {"stroke": None}}),
        views=tuple(view for run in runs for view in _views(run, len(runs) > 1)),
        nothing="No outcome has a ratio: the baseline has no time.",
        wide=True,
    )


def _views(run: Shown, several: bool) -> list[View]:
    if not any(one.record.ratio is not None for one in run.judged):
        return []
    by_case: dict[str, list[Judged]] = {}
    for one in run.judged:
        by_case.setdefault(one.record.case, []).append(one)
    backends = [n for n in dict.fromkeys(one.record.backend for one in run.judged) if _told(n, run.judged)]
    cases = list(by_case)
    views = []
    for begin in range(0, len(cases), MOST_CASES):
        part = cases[begin : begin + MOST_CASES]
        label = f"all {len(cases)}"
        if len(cases) > MOST_CASES:
            label = f"{begin + 1} to {begin + len(part)} of {len(cases)}"
        views.append(_view(f"run {run.number}: {label}" if several else label, part, by_case, backends))
    return views


def _told(backend: str, judged: Sequence[Judged]) -> bool:
    """Whether it has more to show than that it can't."""
    quiet = ("unsupported", "unavailable")
    return any(one.record.backend == backend and one.record.status not in quiet for one in judged)


def _view(label: str, cases: Sequence[str], by_case: dict[str, list[Judged]], backends: list[str]) -> View:
    common = common_part(cases)
    short = {case: shortened(case, common) for case in cases}
    rows = tuple(
        _row(one, short[case]) for case in cases for one in by_case[case] if one.record.backend in backends
    )
    note = f" What all have in common, {common.text}, is left out of the names." if common.text else ""
    return View(
        label=label,
        about=f"Ratios of {len(backends)} backends on {len(cases)} cases.{note}",
        values=rows,
        holds={"cases": list(short.values()), "backends": backends, "height": _BESIDE + _ROW * len(cases)},
        tables=(Table("Ratios: time over the baseline's", _TIPS),),
    )


def _row(judged: Judged, case: str) -> Row:
    record = judged.record
    timed = judged.verdict is not None and record.ratio is not None
    ratio, bounds = ratio_text(record) if timed else ("", "")
    mark = "?" if judged.verdict == "unclear" else ""
    return {
        "case": case,
        "backend": record.backend,
        "name": name_text(record),
        "value": record.ratio if timed else None,
        "sure": judged.verdict not in (None, "unclear"),
        "ratio": ratio,
        "interval": bounds,
        "said": judged.verdict if timed else record.status.replace("_", " "),
        "text": _cell(judged, ratio) + mark if timed else _SHORT.get(record.status, record.status),
    }


def _cell(judged: Judged, ratio: str) -> str:
    return "1" if judged.verdict == BASELINE else ratio.rstrip("?")


_SHORT = {
    "ok": "no ratio", "unsupported": "–", "unavailable": "–", "out_of_memory": "memory", "crashed": "crash",
    "mismatch": "wrong",
}  # fmt: skip
