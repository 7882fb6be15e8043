"""Operations a second against operations a byte, under the limit that was measured in the run."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.cases.identity import parse_case
from attnbench.compare.limit import Limit
from attnbench.reports.columns import name_text, time_text
from attnbench.reports.html.chart import Chart, Marks, Row, Spec, Table, View, by_run
from attnbench.reports.html.layers import figure, log_axis, of_kind, points, tooltip
from attnbench.reports.html.shown import Shown, Work
from attnbench.reports.html.words import isolated
from attnbench.reports.units import number, percent
from attnbench.types.record import Record
from attnbench.types.words import count_of

_TIPS = (
    ("case", "case"), ("backend", "backend"), ("time", "time"), ("rate", "GFLOP/s"),
    ("limit", "limit, GFLOP/s"), ("share", "share of the limit"),
)  # fmt: skip
_BESIDE = 2.0
"""The roof goes on beyond the cases by this factor."""


def roofline_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """The roofline of each kind of case: Williams, Waterman, Patterson, CACM 52 (2009), 65."""
    x = log_axis("intensity", "operations per byte moved", padding=0)
    y = log_axis("gflops", "GFLOP/s")
    roof: Spec = {
        "mark": {"type": "line", "strokeWidth": 2, "opacity": 0.35, "color": "currentColor"},
        "encoding": {"x": x, "y": y, "detail": {"field": "which"}, "order": {"field": "intensity"}},
    }
    own: Spec = {
        "mark": {"type": "tick", "orient": "horizontal", "thickness": 2, "size": 18, "color": "currentColor"},
        "encoding": {"x": x, "y": y, "tooltip": tooltip(("case", "case"), ("limit", "limit, GFLOP/s"))},
    }
    measured = points(x, y, *_TIPS, size=50)
    return Chart(
        name="roofline",
        title="Against the limit of the machine",
        lead="The machine was measured beside every case: products of matrices, and convolutions where those "
        "are faster, give the flat part, copies as large as the case the slope. A tick is the limit of one "
        "case; lines are those of the fastest and the slowest copies. The fast end of what was seen counts, "
        "so honest rows lie below.",
        choice="Machine and kind",
        spec=figure([of_kind("roof", roof), of_kind("limit", own), of_kind("point", measured)]),
        views=by_run(runs, lambda run: _views(run, marks)),
        nothing="The machine's limit was not measured: nothing was timed, or the run was cut off before.",
    )  # fmt: skip


def _views(run: Shown, marks: Marks) -> list[View]:
    kinds: dict[str, list[tuple[Record, Work, Limit]]] = {}
    for record in run.records:
        work = run.work.get(record.case)
        if work is None or work.limit is None or work.flops <= 0 or work.bytes_moved <= 0:
            continue
        if record.status == "ok" and record.median_ms:
            kinds.setdefault(_kind(record.case), []).append((record, work, work.limit))
    return [_view(kind, those, marks) for kind, those in kinds.items()]


def _kind(text: str) -> str:
    case = parse_case(text)
    # Of a device threads say nothing, unless they were asked for.
    told = case.device == "cpu" or case.threads != 1
    return ", ".join((case.dtype, case.device, *([count_of(case.threads, "thread")] if told else [])))


def _view(label: str, those: Sequence[tuple[Record, Work, Limit]], marks: Marks) -> View:
    names = marks.ordered(name_text(record) for record, _, _ in those)
    points = [_point(record, work, limit) for record, work, limit in those]
    by_case = {record.case: (work, limit) for record, work, limit in those}
    ticks = [_tick(case, work, limit) for case, (work, limit) in by_case.items()]
    roofs = _roofs(list(by_case.values()))
    nearest = max(points, key=lambda point: point["of_limit"])
    return View(
        label=label,
        about=f"{count_of(len(points), 'outcome')} on {count_of(len(by_case), 'case')} "
        "beside the measured limit. "
        f"The largest share of it is {nearest['share']}, by {isolated(nearest['backend'])} on "
        f"{isolated(nearest['case'])}.",
        values=(*roofs, *ticks, *points),
        holds=marks.scales(names),
        tables=(Table("Rates and limits", _TIPS),),
    )


def _point(record: Record, work: Work, limit: Limit) -> Row:
    rate = work.flops / (record.median_ms or 1.0) / 1e6
    best = _best(work.flops / work.bytes_moved, limit)
    share = record.limit_share if record.limit_share is not None else rate / best
    return {
        "kind": "point", "case": record.case, "backend": name_text(record), "time": time_text(record),
        "intensity": work.flops / work.bytes_moved, "gflops": rate, "rate": number(rate, rate / 50),
        "limit": number(best, best / 50), "of_limit": share, "share": percent(share),
    }  # fmt: skip


def _tick(case: str, work: Work, limit: Limit) -> Row:
    intensity = work.flops / work.bytes_moved
    best = _best(intensity, limit)
    return {
        "kind": "limit", "case": case, "intensity": intensity, "gflops": best,
        "limit": number(best, best / 50),
    }  # fmt: skip


def _best(intensity: float, limit: Limit) -> float:
    """The most GFLOP/s at so many operations per byte."""
    return min(limit.flops_per_s, intensity * limit.bytes_per_s) / 1e9


def _roofs(those: Sequence[tuple[Work, Limit]]) -> list[Row]:
    """Corners of the roofs with the fastest copies and with the slowest."""
    intensities = [work.flops / work.bytes_moved for work, _ in those]
    ridges = [limit.flops_per_s / limit.bytes_per_s for _, limit in those]
    first, last = min(*intensities, *ridges) / _BESIDE, max(*intensities, *ridges) * _BESIDE
    corners = []
    for which, choose in (("highest", max), ("lowest", min)):
        limit = Limit(
            choose(limit.flops_per_s for _, limit in those),
            choose(limit.bytes_per_s for _, limit in those),
            0,
        )
        ridge = limit.flops_per_s / limit.bytes_per_s
        places = [first, *([ridge] if first < ridge < last else []), last]
        corners += [
            {"kind": "roof", "which": which, "intensity": place, "gflops": _best(place, limit)}
            for place in places
        ]
    return corners
