"""Ratios to the baseline, case by backend, as a map of colours."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.columns import name_text, ratio_text
from attnbench.reports.html.chart import Chart, Row, Spec, Table, View, by_run
from attnbench.reports.html.layers import figure, of_the_view, tooltip
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import Shown
from attnbench.reports.judged import BASELINE, Judged
from attnbench.types.words import count_of

MOST_CASES = 30
"""Of a view: more can't be read at once."""
FARTHEST = 4
"""Ratios beyond this, and below its inverse, all have the last colour."""
_CLEARLY = 1.4
CELLS = (
    "rgba(31, 111, 180, 0.75)", "rgba(31, 111, 180, 0.4)", "rgba(130, 130, 130, 0.15)",
    "rgba(196, 89, 27, 0.4)", "rgba(196, 89, 27, 0.75)",
)  # fmt: skip
"""From faster to slower. All let the page shine through, light or dark, so that its ink is read on them."""
_ROW, _BESIDE = 28, 170
"""Height of a case, and of names and legend together, in pixels."""
_COLUMN, _LETTER, _LONGEST_LINE = 46, 6.5, 300
"""The least width of a backend, that of a letter of a case's name, and the most for a line of that."""
_ONE_LINE = 24
"""Letters of a name that stand in one line; longer ones are broken, or no cell would be seen on a phone."""
_TIPS = (
    ("case", "case"), ("backend", "backend"), ("ratio", "ratio"), ("interval", "interval"),
    ("said", "verdict"),
)  # fmt: skip


def ratio_chart(runs: Sequence[Shown]) -> Chart:
    """The ratio of each backend on each case by colour, in words where there is none."""
    x: Spec = {
        "field": "backend", "type": "nominal", "scale": {"domain": of_the_view("backends")}, "title": None,
        "axis": {"orient": "top", "labelAngle": -40, "labelLimit": 150, "domain": False, "ticks": False},
    }  # fmt: skip
    y: Spec = {
        "field": "line", "type": "nominal", "scale": {"domain": of_the_view("cases")}, "title": None,
        "axis": {
            # Vega hangs further lines below the first; so two stand around the middle.
            "labelBaseline": {
                "condition": {"test": "indexof(datum.value, '\\n') >= 0", "value": "bottom"},
                "value": "middle",
            },
            "labelLimit": _LONGEST_LINE, "labelExpr": "split(datum.label, '\\n')", "labelFontSize": 10.5,
            "domain": False, "ticks": False,
        },
    }  # fmt: skip
    scale = {
        "type": "log", "domain": [1 / FARTHEST, 1 / _CLEARLY, 1, _CLEARLY, FARTHEST], "range": list(CELLS),
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
        "mark": {"type": "text", "fontSize": 11, "color": "currentColor"},
        "encoding": {"x": x, "y": y, "text": {"field": "text"}},
    }
    others: Spec = {
        "transform": [{"filter": "!isValid(datum.value)"}],
        "mark": {"type": "text", "fontSize": 10, "opacity": 0.65, "color": "currentColor"},
        "encoding": {"x": x, "y": y, "text": {"field": "text"}, "tooltip": tooltip(*_TIPS)},
    }
    return Chart(
        name="ratios",
        title="Ratios, case by backend",
        lead="Time over the baseline's: blue is faster, orange slower. Pale with a question mark: unclear, "
        "neither is proved. Where there is a word, there is no time that counts; – was not run.",
        choice="Cases",
        spec=figure([colours, numbers, others], of_the_view("height"), config={"view": {"stroke": None}}),
        views=by_run(runs, _views),
        nothing="No outcome has a ratio: nothing was timed, or the baseline has no time.",
        wide=True,
    )


def _views(run: Shown) -> list[View]:
    if not any(one.record.ratio is not None for one in run.judged):
        return []
    by_case: dict[str, list[Judged]] = {}
    for one in run.judged:
        by_case.setdefault(one.record.case, []).append(one)
    # In the order of the run: in its file those that were refused stand first.
    named = dict.fromkeys([*run.manifest.backends, *(one.record.backend for one in run.judged)])
    backends = [name for name in named if _told(name, run.judged, bool(run.manifest.sides))]
    cases = list(by_case)
    views = []
    for begin in range(0, len(cases), MOST_CASES):
        part = cases[begin : begin + MOST_CASES]
        label = f"all {len(cases)}" if len(cases) > 1 else cases[0]
        if len(cases) > MOST_CASES:
            label = f"{begin + 1} to {begin + len(part)} of {len(cases)}"
        views.append(_view(label, part, by_case, backends))
    return views


def _told(backend: str, judged: Sequence[Judged], sides: bool) -> bool:
    """Whether it has more to show than that it can't or, where every backend is its own baseline, a 1."""
    quiet = ("unsupported", "unavailable")
    return any(
        one.record.status not in quiet and not (sides and one.verdict == BASELINE)
        for one in judged
        if one.record.backend == backend
    )


def _view(label: str, cases: Sequence[str], by_case: dict[str, list[Judged]], backends: list[str]) -> View:
    common = common_part(cases)
    short = {case: _in_lines(shortened(case, common)) for case in cases}
    longest = max(len(line) for name in short.values() for line in name.split("\n"))
    rows = tuple(
        _row(one, short[case]) for case in cases for one in by_case[case] if one.record.backend in backends
    )
    note = f" What all have in common, {common.text}, is left out of the names." if common.text else ""
    return View(
        label=label,
        about=f"Ratios of {count_of(len(backends), 'backend')} on {count_of(len(cases), 'case')}.{note}",
        values=rows,
        holds={
            "cases": list(short.values()),
            "backends": backends,
            "height": _BESIDE + _ROW * len(cases),
            "width": round(min(_LETTER * longest, _LONGEST_LINE)) + _COLUMN * len(backends),
        },
        tables=(Table("Ratios: time over the baseline's", _TIPS),),
    )


def _in_lines(name: str) -> str:
    """A name in two lines where it is long and has parts: broken at the blank that is nearest its middle, or,
    of an id that is whole, after the stroke.
    """
    breaks = [place for place, letter in enumerate(name) if letter in " /"]
    if len(name) <= _ONE_LINE or not breaks:
        return name
    place = min(breaks, key=lambda place: abs(place - len(name) / 2))
    return f"{name[: place + 1].rstrip()}\n{name[place + 1 :]}"


def _row(judged: Judged, line: str) -> Row:
    record = judged.record
    timed = judged.verdict is not None and record.ratio is not None
    ratio, bounds = ratio_text(record) if timed else ("", "")
    mark = "?" if judged.verdict == "unclear" else ""
    return {
        "line": line,
        "case": record.case,
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
