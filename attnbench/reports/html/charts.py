"""The charts of the page: their rows, and their specifications in Vega-Lite (``assets/charts.json``).

There is one flat row for each outcome, and for each way to hold a cache with a backend. A chart shows the
rows that have its field: ``in_time`` for the chart ``time``. The value of that field is the label of the view
that shows the row. A row that this view lacks has it in ``out_time``, and in ``left_time`` what stands for it
in the note below.

In the specifications, ``{"use": "log"}`` stands for the shared part of that name, and ``{"tips": {"ms":
"time"}}`` for the lines of a tooltip. The page's script fills in what depends on the rows that are shown:
``{"$": "backend"}`` are their values of that field, ``{"$": "colours"}`` and ``{"$": "shapes"}`` the marks of
those backends, by the field ``of``: a backend has the same in all charts, whichever kernel it runs. Vega
leaves most ticks of a short logarithmic axis without a number; one that spans less than a factor of three has
all that fit. Names from files are only values of data, never part of an expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from math import exp, log, sqrt
from types import MappingProxyType
from typing import Any

from attnbench.cases.ids import parse_case, short_id
from attnbench.cases.work import human_bytes
from attnbench.reports.answer import case_cell, times_text
from attnbench.reports.caches import cache_name, error_text, share_text, step_labels
from attnbench.reports.columns import COLUMNS, COUNTED_BYTES, name_text, time_text
from attnbench.reports.judged import JudgedRecord
from attnbench.reports.names import short_names, with_stages
from attnbench.reports.units import duration, number, reach
from attnbench.stats.answer import Lead, Total
from attnbench.stats.caches import CacheCost, CacheStep
from attnbench.stats.tests import ends
from attnbench.types.status import MEANING
from attnbench.types.words import count_of

Row = dict[str, Any]
Spec = dict[str, Any]

COLOURS = (
    "#4c72e0", "#e0503c", "#2f9a45", "#b87d00", "#a463f2", "#1c968c", "#e0559a", "#9c6b4e", "#3b97c4",
    "#808590",
)  # fmt: skip
"""Each has a contrast of 3 or more to the light and to the dark page (WCAG 2.2, 1.4.11)."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


def asset(name: str) -> str:
    """Read one of the files that the page is made of."""
    return files("attnbench.reports.html").joinpath("assets", name).read_text(encoding="utf-8")


def charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The charts that have rows to show: name, title and lead, the specification, the labels of the views."""
    views: dict[str, dict[str, None]] = {}
    for row in rows:
        for field in (field for field in row if field.startswith("in_")):
            views.setdefault(field[3:], {})[row[field]] = None
    found = json.loads(asset("charts.json"))
    return [
        one
        | {"spec": _figure(one, found["shared"]), "views": shown}
        | {
            "id": one["name"] if n == 1 else f"{one['name']}-{n}",
            "left_out": _LEFT_OUT[one["name"] == "memory"],
        }
        for one in found["charts"]
        if one["name"] in views
        for n, shown in enumerate(_figures(one["name"], list(views[one["name"]])), start=1)
    ]


def _figures(name: str, views: list[str]) -> list[list[str]]:
    """Divide the views of a chart into figures: one for each if they are few, else one to choose in."""
    return [views] if name in _CHOSEN or len(views) > ALL_DRAWN else [[view] for view in views]


def _figure(chart: Spec, shared: Spec) -> Spec:
    """A specification as wide as its place on the page."""
    figure = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": chart.get("height", HEIGHT),
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": {"$": "rows"}},
    }
    return figure | {part: _expanded(chart[part], shared) for part in ("encoding", "layer")}


def _expanded(node: Any, shared: Spec) -> Any:
    """Replace ``use`` and ``tips`` by what they stand for."""
    if isinstance(node, list):
        return [_expanded(one, shared) for one in node]
    if not isinstance(node, dict):
        return node
    if "tips" in node:
        return [{"field": field, "type": "nominal", "title": title} for field, title in node["tips"].items()]
    used = _expanded(shared[node["use"]], shared) if "use" in node else {}
    return used | {name: _expanded(one, shared) for name, one in node.items() if name != "use"}


LEAST_BUDGET = 0.01
"""Smaller errors stand here, because the scale is logarithmic."""
HEIGHT = 420
FAR = 20
"""A chart leaves out what takes more times as long as the best beside it, and says so."""
ALL_DRAWN = 6
"""Of a chart with so few views each is drawn, so that they are on paper too; of others one can be chosen."""
_CHOSEN = ("pareto",)
_BESIDE = (("time", "length"), ("pareto", "name"), ("roofline", "name"), ("caches", "cache"))
"""The charts that leave out what is far slower than others with the same value of a field."""
LEAST_PERCENT = 1e-4
"""Smaller errors of caches stand here."""
_LABEL_SHARE = 0.06
"""The height of a label at the end of a line, as a share of the axis."""
_CASE_SHARE = 0.04
"""The distance of two cases in the chart of limits, as a share of the axis."""
_MOST_LETTERS = 60
"""The names of cases have room beside each other if they have no more letters."""
_LEFT_OUT = (
    f"Left out, more than {FAR} times as long as the best",
    f"Left out, less than {human_bytes(COUNTED_BYTES)}",
)
"""What a note below a chart says of rows that it lacks: of all charts, and of that of memory."""
_LENGTHS = re.compile(r"Lq\d+-Lk\d+")
_LENGTH = re.compile(r"-?\bL[qk]?\d+(-Lk\d+)?")
_STARRED = re.compile(r"L[qk]\*-?|-L[qk]\*")
_ALONG = {(True, True): "length, Lq = Lk", (True, False): "queries, Lq", (False, True): "keys, Lk"}
"""What varies in a family, by whether there is a star for queries and for keys."""
_LIMIT = next(column for column in COLUMNS if column.head == "limit")


def chart_rows(
    judged: Sequence[JudgedRecord],
    before: str = "",
    leads: Iterable[Lead] = (),
    stages: Mapping[str, str] = MappingProxyType({}),
    chosen: Mapping[str, str] = MappingProxyType({}),
) -> list[Row]:
    """The rows of one run.

    before: the beginning of the labels of its views. leads: the fastest backend of each case, with the ratios
    of the others. stages: by case, the stage of a step that it is of. chosen: by case, of a tie the backend
    to use.
    """
    names, led = short_names(one.record.case for one in judged), {lead.best.case: lead for lead in leads}
    named = with_stages(names, stages)
    rows = [_row(one, named[one.record.case], led.get(one.record.case)) for one in judged]
    baselines = {one.record.baseline for one in judged}
    ran = {name_text(one.record) for one in judged if not MEANING[one.record.status].declined}
    rows = [row for row in rows if row["backend"] in ran]
    _add_names(rows, {case: chosen.get(case, lead.best.backend) for case, lead in led.items()}, baselines)
    _add_families(rows, stages)
    _add_fronts(rows)
    _add_places(rows)
    _leave_out_far(rows)
    _add_labels(rows, "time", "ms")
    _add_labels(rows, "memory", "mib")
    return _written(rows, before)


def _written(rows: Sequence[Row], before: str) -> list[Row]:
    """Rows without empty fields, with the labels of their views in full."""
    return [
        {
            key: f"{before}{value}" if key.startswith(("in_", "out_")) else value
            for key, value in row.items()
            if value is not None
        }
        for row in rows
    ]


def cache_rows(steps: Sequence[CacheStep], before: str = "") -> list[Row]:
    """The rows of the chart of caches: a step with each way to hold its cache, by each backend.

    before: as of :func:`chart_rows`.
    """
    rows: list[Row] = []
    for step, label in zip(steps, step_labels(steps), strict=True):
        shown = [
            _cache_row(step, cache, total) | {"in_caches": label or step.case}
            for cache in step.caches
            for total in cache.totals[1:]
            if cache.error is not None and cache.share is not None
        ]
        front = pareto_front((row["ms"], row["error"]) for row in shown)
        for row in shown:
            row["front"] = (row["ms"], row["error"]) in front
        _name_caches(shown)
        rows += shown
    _leave_out_far(rows)
    return _written(rows, before)


def _name_caches(rows: Sequence[Row]) -> None:
    """Name the fastest point of each cache, on the side of it where there is more room, as ``cache_right`` or
    ``cache_left``. Names that would meet move apart, to the place ``cache_place`` on the axis of times."""
    fastest = {row["cache"]: row for row in sorted(rows, key=lambda row: -row["ms"])}
    named = sorted(fastest.values(), key=lambda row: row["ms"])
    if not named:
        return
    middle = sqrt(min(row["error"] for row in named) * max(row["error"] for row in named))
    for row, place in zip(named, _places(rows, named, "ms"), strict=True):
        side = "right" if row["error"] <= middle else "left"
        row |= {"cache_place": place, f"cache_{side}": f"{row['cache']} ({row['share']})"}


def _cache_row(step: CacheStep, cache: CacheCost, total: Total) -> Row:
    low, high, _ = ends(total)
    return {
        "backend": total.backend,
        "of": total.backend,
        "cache": cache_name(step, cache),
        "share": share_text(cache),
        "ms": total.ms,
        "low": total.ms if low is None else low,
        "high": total.ms if high is None else high,
        "time": duration(total.ms, reach(total.ms, low, high)),
        # In the digits that are shown: of two that look alike neither is the more exact.
        "error": max(float(f"{100 * (cache.error or 0.0):.2g}"), LEAST_PERCENT),
        "error_text": error_text(cache.error),
    }


def _row(judged: JudgedRecord, name: str, lead: Lead | None) -> Row:
    record = judged.record
    row: Row = {
        "case": record.case, "name": name, "backend": name_text(record), "of": record.backend,
    }  # fmt: skip
    if record.status not in ("ok", "inaccurate") or record.median_ms is None:
        return row
    low = record.median_ms if record.low_ms is None else record.low_ms
    high = record.median_ms if record.high_ms is None else record.high_ms
    row |= {"ms": record.median_ms, "low": low, "high": high, "time": time_text(record), "over": ""}
    if lead is not None and record.status == "ok":
        row["over"] = case_cell(judged, lead, bounds=True)
        if record.backend in lead.over:
            row["times"] = times_text(lead.over[record.backend])
    memory = record.peak_extra_bytes
    if memory is not None and memory >= COUNTED_BYTES:
        row |= {"mib": memory / 2**20, "memory": human_bytes(memory)}
    if record.accuracy is not None:
        # Errors stand where they are told to be: of 1.000 and 1.004 neither is the more exact.
        budget = number(record.accuracy.error_budget)
        row |= {"error": max(float(budget), LEAST_BUDGET), "budget": budget}
    return row | _roofline(judged)


def _roofline(judged: JudgedRecord) -> Row:
    """Operations per byte and per second, and the limit that was measured in the run at this intensity.

    Source: Williams, Waterman, Patterson, Roofline, CACM 52 (2009), 65.
    """
    record = judged.record
    if not record.tflops or not record.gbps or not record.limit_share:
        return {}
    case, intensity = parse_case(record.case), 1e3 * record.tflops / record.gbps
    threads = f", {count_of(case.threads, 'thread')}" if case.on_host else ""
    return {
        "in_roofline": f"{case.dtype}, {case.device}{threads}",
        "intensity": intensity,
        "per_byte": number(intensity),
        "gflops": 1e3 * record.tflops,
        "limit": float(number(1e3 * record.tflops / record.limit_share, 0.0, most=3)),
        "share": _LIMIT.cell(judged),
    }


def _add_families(rows: Sequence[Row], stages: Mapping[str, str]) -> None:
    """Add ``length`` and the views to rows with a time whose case has others that differ in length alone.

    Memory has a view where that of two backends, or of the only one, was counted at several lengths.
    """
    lengths: dict[tuple[str, str], set[int]] = {}
    timed = [row for row in rows if "ms" in row]
    for row in timed:
        for family, length in _families(row["case"]).items():
            lengths.setdefault((family, stages.get(row["case"], "")), set()).add(length)
    # Nobody asks what lies between a decode and a prompt.
    several = {group for group, found in lengths.items() if len(found) > 1}
    names = short_names(family for family, _ in several)
    views: dict[tuple[str, str], list[Row]] = {}
    for row in timed:
        stage = stages.get(row["case"], "")
        for family, length in _families(row["case"]).items():
            if (family, stage) in several:
                row |= {"length": length, "along": _ALONG["Lq*" in family, "Lk*" in family]}
                views.setdefault((family, stage), []).append(row)
                break
    for (family, stage), those in views.items():
        name = _STARRED.sub("", names[family]).strip()
        if names[family] == family:
            # The whole id, of a single family or of one that has nothing that others lack.
            name = _LENGTH.sub("", short_id(parse_case(those[0]["case"])))
        label = f"{name} {stage}".strip() or those[0]["along"]
        for row in those:
            row["in_time"] = label
        counted = [row for row in those if "mib" in row]
        lengths_of: dict[str, set[int]] = {}
        for row in counted:
            lengths_of.setdefault(row["backend"], set()).add(row["length"])
        lines = sum(len(found) > 1 for found in lengths_of.values())
        # A line beside lone points, or beside backends whose memory is too small to count, compares nothing.
        if lines > 1 or lines == len({row["backend"] for row in those}) == 1:
            for row in counted:
                row["in_memory"] = label
            _tell_of_little(
                [row for row in those if "mib" not in row], label, len({row["length"] for row in those})
            )


def _tell_of_little(rows: Sequence[Row], label: str, lengths: int) -> None:
    """Name once each backend whose memory is too small to be counted, with its lengths if it has others."""
    little: dict[str, list[Row]] = {}
    for row in rows:
        little.setdefault(row["backend"], []).append(row)
    for name, those in little.items():
        at = f" (at {', '.join(str(row['length']) for row in those)})" if len(those) < lengths else ""
        those[0] |= {"out_memory": label, "left_memory": f"{name}{at}"}


def _families(case: str) -> Mapping[str, int]:
    """The id of a case with a star for each length that may vary, and that length."""
    queries, keys = parse_case(case).Lq, parse_case(case).Lk
    if queries == keys:
        return {_LENGTHS.sub("Lq*-Lk*", case): keys}
    return {_LENGTHS.sub(f"Lq{queries}-Lk*", case): keys, _LENGTHS.sub(f"Lq*-Lk{keys}", case): queries}


def _leave_out_far(rows: Sequence[Row]) -> None:
    """Take rows out of charts of time that are far slower than the best beside them.

    ``left_time`` then says how slow it is.
    """
    for chart, beside in _BESIDE:
        best: dict[tuple[Any, Any], float] = {}
        shown = [row for row in rows if row.get(f"in_{chart}") is not None]
        for row in shown:
            key = row[f"in_{chart}"], row[beside]
            best[key] = min(row["ms"], best.get(key, row["ms"]))
        for row in shown:
            far = row["ms"] / best[row[f"in_{chart}"], row[beside]]
            if far > FAR:
                row |= {f"out_{chart}": row[f"in_{chart}"], f"in_{chart}": None}
                text = row.get("times") or number(far)
                row[f"left_{chart}"] = f"{row['backend']} ({text} × at {row[beside]})"


def _add_labels(rows: Sequence[Row], chart: str, field: str) -> None:
    """Add the place of the name of each line, at its last length; names that would meet move apart.

    Places are values of the axis, whose scale is logarithmic.
    """
    views: dict[str, list[Row]] = {}
    for row in rows:
        if row.get(f"in_{chart}") is not None:
            views.setdefault(row[f"in_{chart}"], []).append(row)
    for those in views.values():
        last: dict[str, Row] = {}
        for row in those:
            if row["backend"] not in last or row["length"] > last[row["backend"]]["length"]:
                last[row["backend"]] = row
        ordered = sorted(last.values(), key=lambda row: row[field])
        for row, place in zip(ordered, _places(those, ordered, field), strict=True):
            row[f"{chart}_label"] = place


def _places(rows: Sequence[Row], named: Sequence[Row], field: str) -> list[float]:
    """The places of names beside rows of ascending values; rows: all that the axis holds."""
    values = [log(row[field]) for row in rows]
    least = _LABEL_SHARE * max(max(values) - min(values), log(2))
    return [exp(place) for place in apart([log(row[field]) for row in named], least)]


def apart(places: Sequence[float], least: float) -> list[float]:
    """Move ascending places apart to the least distance, as a block around the middle of those that meet."""
    blocks: list[list[float]] = []
    for place in places:
        blocks.append([place])
        while len(blocks) > 1 and _top(blocks[-2], least) + least > _bottom(blocks[-1], least):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_bottom(block, least) + number * least for block in blocks for number in range(len(block))]


def _bottom(block: Sequence[float], least: float) -> float:
    return sum(block) / len(block) - (len(block) - 1) * least / 2


def _top(block: Sequence[float], least: float) -> float:
    return _bottom(block, least) + (len(block) - 1) * least


def _add_names(rows: Sequence[Row], use: Mapping[str, str], baselines: Collection[str | None]) -> None:
    """Add ``named`` to the rows that have their colour in the chart of limits, and ``best`` to all.

    Of each case these are the backend to use, which is ``best``, and the baseline. The others are grey, since
    in a chart of many nobody tells them apart. use: by case; where it is empty, all have their colour.
    """
    for row in rows:
        row["best"] = row["of"] == use.get(row["case"])
        if not use or row["best"] or row["of"] in baselines:
            row["named"] = row["backend"]


def _add_places(rows: Sequence[Row]) -> None:
    """Add ``middle`` and ``place`` to rows with an intensity, both near it; to one of a case ``case_label``.

    middle: of the case, apart from those of all others. place: of the backend, beside that of the next faster
    and of the next slower one. case_label: the name of the case, where there is room for all. tick: of
    the axis, for the first case of those that round to one number.
    """
    views: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if "intensity" in row:
            views.setdefault(row["in_roofline"], {}).setdefault(row["case"], []).append(row)
    for cases in views.values():
        ordered = sorted(cases.values(), key=lambda those: those[0]["intensity"])
        values = [log(those[0]["intensity"]) for those in ordered]
        least = min(_CASE_SHARE, 1 / len(values)) * max(values[-1] - values[0], log(2))
        short = sum(len(those[0]["name"]) for those in ordered) <= _MOST_LETTERS
        before = ""
        for middle, those in zip(apart(values, least), ordered, strict=True):
            shown = number(exp(middle))
            tick, before = (exp(middle) if shown != before else None), shown
            for n, row in enumerate(sorted(those, key=lambda row: row["gflops"])):
                # The one to use stands below its limit, the others on both sides.
                beside = 0 if row["best"] else -1 if n % 2 else 1
                row |= {"middle": exp(middle), "place": exp(middle + beside * least / 8)}
                # What is far slower than others is left out.
                row |= {"tick": tick, "case_label": row["name"] if short and n == len(those) - 1 else ""}


def _add_fronts(rows: Sequence[Row]) -> None:
    """Add the view and ``front`` to rows of cases in which two backends or more have a time and an error.

    front: True if no other backend of the case is both as fast and as exact, and better in one.
    """
    cases: dict[str, list[Row]] = {}
    for row in rows:
        if "ms" in row and "error" in row:
            cases.setdefault(row["name"], []).append(row)
    for name, those in cases.items():
        if len(those) > 1:
            front = pareto_front((row["ms"], row["error"]) for row in those)
            for row in those:
                row |= {"in_pareto": name, "front": (row["ms"], row["error"]) in front}


def pareto_front(points: Iterable[tuple[float, float]]) -> set[tuple[float, float]]:
    """The points (time, error) that no other point equals or beats in both."""
    front: set[tuple[float, float]] = set()
    least = float("inf")
    for time, error in sorted(points):
        if error < least:
            front.add((time, error))
            least = error
    return front
