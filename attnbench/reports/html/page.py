"""The page: one HTML file that holds all it needs.

Its Content-Security-Policy lets a browser run only the scripts with these hashes, and load nothing. A name
that got past the escaping could neither run nor send anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from attnbench import __version__
from attnbench.reports.answer import (
    BRACKETS,
    Grid,
    case_numbers,
    cases_grid,
    is_of_step,
    over_columns,
    totals_grids,
)
from attnbench.reports.caches import caches_grid
from attnbench.reports.columns import KIND, Column, in_order, name_text, table_columns
from attnbench.reports.html.charts import COLOURS, SHAPES, asset, cache_rows, chart_rows, charts
from attnbench.reports.html.heat import STEPS, heat_of
from attnbench.reports.html.whole import (
    cases_words,
    is_told,
    part_findings,
    run_labels,
    user_has,
    whole_findings,
)
from attnbench.reports.html.words import (
    MOST_NOT_ASKED,
    MOST_VALUES,
    against_words,
    calls_of,
    facts,
    failures,
    findings,
    isolated,
    kinds_of,
    lead_rows,
    leads_key,
    minute,
    stages_of,
)
from attnbench.reports.judged import BASELINE, JudgedRecord, ReportPart
from attnbench.reports.names import conditions_words, heading_of, short_names, with_stages
from attnbench.reports.overview import SLOW, absent_words, is_slow, part_head
from attnbench.reports.run import Run
from attnbench.reports.table import footer, legend
from attnbench.results.targets import FileKind
from attnbench.stats.answer import disturbed
from attnbench.stats.records import CONTENDED
from attnbench.types.errors import BadInput, go_on_words
from attnbench.types.extensions import WORDS
from attnbench.types.status import MEANING, STATUSES, status_words
from attnbench.types.words import printable, without_home

ROWS_AT_FIRST = 200
"""Rows of the table that are shown before a reader asks for all."""
ROWS_OPEN = 40
"""Tables of a run with more rows are folded."""
_PACKAGES = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}
_VEGA_LITE = "6."
_FIRST = ("median_ms", "ratio", "ratio_to_best")
"""Columns that stand before the verdict."""
_LEFT_OUT = ("±", "prepare", "first call", "rms error", "max error")
"""Columns that few readers look for; --csv has them."""


def missing_packages() -> list[str]:
    """Return the packages that a page needs and that are not installed."""
    return [name for module, name in _PACKAGES.items() if find_spec(module) is None]


def check_packages() -> None:
    """Raise :class:`BadInput` if a package that a page needs is not installed."""
    if missing := missing_packages():
        raise BadInput(f"a page needs {' and '.join(missing)}: pip install 'attnbench[html]'")


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert-python. It defines ``vegaEmbed``."""
    import vl_convert

    version = [name for name in vl_convert.get_vegalite_versions() if name.startswith(_VEGA_LITE)][-1]
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


PAGE = FileKind("a page of results", b'<meta name="generator" content="attnbench')


def page(run: Run) -> str:
    """Render runs as a page. Each run is judged alone.

    Raises:
        BadInput: a package that a page needs is not installed.
    """
    check_packages()
    import jinja2

    reports = run.reports
    parts = [part for parts in reports for part in parts]
    several, fleet = len(parts) > 1, len(parts) > len(reports)
    # As in the sentences above them.
    parts = sorted(parts, key=lambda part: not is_told(part, parts))
    labels = [isolated(part.kind) for part in parts] if fleet else run_labels(run, parts)
    before = [f"{label}: " if several else "" for label in labels]
    rows = [
        row
        for part, label in zip(parts, before, strict=True)
        for row in (
            *chart_rows(
                part.judged,
                label,
                part.answer.leads if part.answer else (),
                _beside(run, part),
                part.answer.chosen if part.answer else {},
            ),
            *cache_rows(part.caches, label),
        )
    ]
    by_time = sorted(rows, key=lambda row: "ms" not in row)
    scripts = [_closed(vega()), _closed(asset("page.js"))]
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(asset),
    )
    drawn = charts(rows)
    sections = [
        _section(run, part, label, parts if fleet else [part], parts)
        for part, label in zip(parts, labels, strict=True)
    ]
    leads = [row for section in sections for row in section["leads"]]
    return environment.get_template("page.html").render(
        title=_title(run, parts),
        version=__version__,
        policy=_policy(scripts),
        style=asset("page.css"),
        scripts=scripts,
        whole=whole_findings(parts, labels),
        conditions=[_conditions(run, part) for part in parts],
        brackets=BRACKETS,
        runs=sections,
        leads_key=leads_key(leads) if leads else "",
        glossed=[name for name in dict.fromkeys(chain(*map(user_has, parts))) if name in run.summaries],
        maps_key=max((section["heat"].key for section in sections if section["heat"]), key=len, default=""),
        summaries={
            name: run.summaries[name]
            for name in sorted({one.backend for records in run.by_file for one in records if one.median_ms})
            if name in run.summaries
        },
        conventions=_conventions(parts),
        facts=_facts_once(sections),
        fleet=_devices(parts) if fleet else None,
        cases=cases_grid(parts) if fleet else None,
        several=several,
        slow=SLOW,
        is_slow=is_slow,
        steps=STEPS,
        labels=labels,
        label_head=KIND if fleet else "run",
        rows_at_first=ROWS_AT_FIRST,
        rows_open=ROWS_OPEN,
        charts=drawn,
        # tojson escapes <, > and &, so no name can end the script element.
        data={
            "rows": rows,
            "backends": list(dict.fromkeys(row["of"] for row in by_time)),
            "colours": COLOURS,
            "shapes": SHAPES,
            "specs": {chart["name"]: chart["spec"] for chart in drawn},
        },
        **_table(run, parts, labels),
    )


def _beside(run: Run, part: ReportPart) -> dict[str, str]:
    """Return what stands beside the name of each case: its stage, and of several suites its own."""
    stages = stages_of(run, part)
    return with_stages(part.suites, stages) if part.suites else stages


def _conditions(run: Run, part: ReportPart) -> str:
    """The conditions of a part beside its sentences, which say those of each suite where it has several."""
    if part.suites:
        return ""
    return conditions_words(dict.fromkeys(one.record.case for one in part.judged), stages_of(run, part))


def _title(run: Run, parts: Sequence[ReportPart]) -> str:
    order = dict.fromkeys(manifest for part in parts for manifest in part.runs)
    suites = list(filter(None, dict.fromkeys(heading_of(run.manifests[one]) for one in order)))
    machines = list(dict.fromkeys(isolated(kind) for part in parts for kind in kinds_of(part)))
    where = machines[0] if len(machines) == 1 else f"{len(machines)} kinds of device" if machines else ""
    names = dict.fromkeys(printable(path.name) for path in run.paths)
    # The runs of a merged file may be of a case each.
    what = ", ".join(suites if suites and len(suites) <= max(len(names), MOST_VALUES) else names)
    days = sorted({manifest.started[:10] for manifest in run.manifests} - {""})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    return " · ".join(filter(None, (f"attnbench: {isolated(what)}", where, when)))


def _section(
    run: Run, part: ReportPart, label: str, report: Sequence[ReportPart], parts: Sequence[ReportPart]
) -> dict[str, Any]:
    """The values of one part of a report for the template. parts: all of the page."""
    alone = len(parts) == 1
    manifests, paths = [run.manifests[one] for one in part.runs], [run.paths[one] for one in part.runs]
    manifest, judged = manifests[0], part.judged
    # A page is for sharing.
    shown = [printable(without_home(str(path))) for path in paths]
    failed, quiet = failures(judged)
    unfinished = [path in run.unfinished for path in paths]
    go_on = go_on_words(Path(shown[0]), live=bool(manifest.sides), command="attnbench run")
    several = len(report) > 1 or len(part.runs) > 1
    # What all cases of this part share stands above its tables, as in its sentences.
    users, names = user_has(part), short_names(case_numbers([part]))
    leads = lead_rows(part, users)
    ended = f"The run was cut off; {isolated(printable(go_on))}."
    if any(path in run.going for path in paths):
        ended = "The run still goes on: this is what it has measured so far."
    return {
        "title": part_head(part) if several else "The run" if alone else label,
        "label": label,
        "path": ", ".join(dict.fromkeys(shown)),
        "started": minute(manifest.started),
        "place": ", ".join(map(isolated, kinds_of(part))) if not alone else "",
        "torch": isolated(str(manifest.environment.get("torch") or "")),
        "cases": cases_words(one.record.case for one in judged),
        "cut_off": ended if any(unfinished) else "",
        "findings": findings(part, manifest) + part_findings(part, parts),
        "totals": [] if part.answer is None else list(totals_grids(part.answer, names, bounds=True)),
        "caches": None if part.answer is None else caches_grid(part.caches, part.answer, details=True),
        "stages": _beside(run, part),
        "of_steps": any(map(is_of_step, stages_of(run, part).values())),
        "calls": calls_of(run, part),
        "not_asked": part.not_asked if len(part.not_asked) > MOST_NOT_ASKED else (),
        "leads": leads,
        "users": users,
        "heat": heat_of(part, users),
        "failed": failed,
        "quiet": quiet,
        "absent": absent_words([one.record for one in judged]),
        "names": names,
        "unclear": footer(part.judged, names=names)[1:],
        "facts": facts(manifests, shown, [not one for one in unfinished]),
    }


def _conventions(parts: Sequence[ReportPart]) -> list[str]:
    """How it was measured and what the columns mean, once for all runs."""
    every = [one for part in parts for one in part.judged]
    answered = any(part.answer is not None and part.answer.leads for part in parts)
    return legend(every, {column.head for column in table_columns(every)} | ({"use"} if answered else set()))


def _columns(every: Sequence[JudgedRecord]) -> list[Column]:
    """The columns of numbers of the table of all outcomes.

    Where times are told over those of the fastest, those over the baseline's are left out: they point the
    other way. A live comparison has only these.
    """
    columns = [column for column in table_columns(every) if column.head not in (*_LEFT_OUT, "verdict")]
    if not any(column.head == "×best" for column in columns):
        return columns
    return [column for column in columns if column.key not in ("ratio", "ratio_low")]


@dataclass(frozen=True)
class FactTable:
    """Facts of one title: those that all runs share, and a table of the others with a column for each run."""

    shared: tuple[tuple[str, str], ...]
    others: Grid | None


def _facts_once(sections: Sequence[dict[str, Any]]) -> dict[str, FactTable]:
    """Return the facts of all runs, each once where it is the same everywhere."""
    found = {}
    for title in sections[0]["facts"] if sections else ():
        by_run = [dict(section["facts"][title]) for section in sections]
        names = dict.fromkeys(name for facts_of_run in by_run for name in facts_of_run)
        values = {name: [facts_of_run.get(name, "") for facts_of_run in by_run] for name in names}
        shared = tuple((name, texts[0]) for name, texts in values.items() if len(set(texts)) == 1)
        rows = tuple((name, *texts) for name, texts in values.items() if len(set(texts)) > 1)
        heads = ("", *(section["label"] for section in sections))
        found[title] = FactTable(shared, Grid(heads, rows, frozenset()) if rows else None)
    return found


def _devices(parts: Sequence[ReportPart]) -> Grid:
    """The table of devices: a row for each kind. Their facts stand below the outcomes."""
    rows = [
        (isolated(part.kind), str(len(part.runs)), str(len({one.record.case for one in part.judged})))
        for part in parts
    ]
    return Grid((KIND, "runs", "cases"), tuple(rows), frozenset({"runs", "cases"}))


def _table(run: Run, parts: Sequence[ReportPart], labels: Sequence[str]) -> dict[str, Any]:
    """The table of all outcomes, case by case, the fastest first, and the choices of its filters."""
    every = [one for part in parts for one in part.judged]
    columns = over_columns(_columns(every), parts, bounds=True)
    names = short_names(one.record.case for one in every)
    stages = [stages_of(run, part) for part in parts]
    statuses, verdicts = {one.record.status for one in every}, {one.verdict for one in every}
    rows = [
        (label, by_case.get(one.record.case, ""), one)
        for label, part, by_case in zip(labels, parts, stages, strict=True)
        for one in in_order(part.judged)
    ]
    return {
        # What could not run has no number to read, so it stands below all parts.
        "rows": sorted(rows, key=lambda row: MEANING[row[2].record.status].declined),
        "staged": any(stages),
        "disturbed": disturbed,
        "reason_of": _reason,
        "first": [column for column in columns if column.key in _FIRST],
        "rest": [column for column in columns if column.key not in _FIRST],
        "names": names,
        "meaning": MEANING,
        "status_words": status_words,
        "against": against_words,
        "backend_of": name_text,
        "backends": list(dict.fromkeys(name_text(one.record) for one in every)),
        "statuses": [status for status in STATUSES if status in statuses],
        "verdicts": [word for word in (*WORDS, BASELINE) if word in verdicts],
    }


def _reason(one: JudgedRecord) -> str:
    """Why a record is as it is; a disturbed measurement comes before what follows from it."""
    notes = sorted(one.record.notes, key=lambda note: not note.startswith(f"{CONTENDED}:"))
    contended = [note for note in notes if note.startswith(f"{CONTENDED}:")]
    told = [one.record.reason, *contended, one.why, *notes[len(contended) :]]
    return ". ".join(filter(None, told))


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _closed(script: str) -> str:
    """Escape the end tag in the strings of a script: HTML ends the element at the first one."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
