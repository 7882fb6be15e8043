"""The page: one file that needs nothing else, and asks for nothing.

Its policy (Content-Security-Policy) lets a browser run the scripts that are in it by their hashes, and load
nothing from anywhere: even a name that got past the escaping could neither run nor tell.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from attnbench import __version__
from attnbench.reports.columns import all_columns, name_text
from attnbench.reports.footer import footer
from attnbench.reports.html.against_baseline import standings
from attnbench.reports.html.bundle import check_packages, script
from attnbench.reports.html.chart import Chart, Marks
from attnbench.reports.html.facts import environment_facts, protocol_facts, run_facts
from attnbench.reports.html.lead_table import lead_rows
from attnbench.reports.html.lengths import memory_chart, time_chart
from attnbench.reports.html.pareto import pareto_chart
from attnbench.reports.html.ratios import ratio_chart
from attnbench.reports.html.records import outcomes
from attnbench.reports.html.roofline import roofline_chart
from attnbench.reports.html.sentences import summary
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.words import isolated

PAGE_ROWS = 100
"""Rows of the table that stand at once."""
_ASSETS = "assets"


def page(runs: Sequence[Shown]) -> str:
    """Runs as a page.

    Raises:
        BadInput: a package that a page needs isn't installed.
    """
    check_packages()
    import jinja2

    drawn = charts(runs)
    scripts = [harmless(text) for text in (script(), _asset("table.js"), _asset("page.js"))]
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_asset),
    )
    return environment.get_template("page.html").render(
        title=_title(runs),
        version=__version__,
        policy=policy(scripts),
        style=_asset("page.css"),
        scripts=scripts,
        runs=[_section(run) for run in runs],
        several=len(runs) > 1,
        table=outcomes(runs),
        page_rows=PAGE_ROWS,
        charts=drawn,
        chart_data={
            chart.name: {"spec": chart.spec, "views": _views(chart)} for chart in drawn if chart.views
        },
    )


def charts(runs: Sequence[Shown]) -> list[Chart]:
    """All charts, those that have nothing to show too."""
    records = [record for run in runs for record in run.records]
    # Those without a time are never drawn, and must not use up colours.
    marks = Marks(name_text(one) for one in sorted(records, key=lambda one: one.median_ms is None))
    return [
        ratio_chart(runs),
        time_chart(runs, marks),
        memory_chart(runs, marks),
        roofline_chart(runs, marks),
        pareto_chart(runs, marks),
    ]


def policy(scripts: Sequence[str]) -> str:
    """What the page may do: run these scripts, and nothing from outside."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def harmless(text: str) -> str:
    """A script that nothing in it can end: HTML looks for its end without knowing of strings."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("attnbench.reports.html").joinpath(_ASSETS, name).read_text(encoding="utf-8")


def _title(runs: Sequence[Shown]) -> str:
    if len(runs) == 1:
        return f"attnbench: {isolated(runs[0].path.name)}"
    return f"attnbench: {len(runs)} runs"


def _section(run: Shown) -> dict[str, Any]:
    """A run as the template takes it."""
    judged = list(run.judged)
    heads = {column.head for column in all_columns(judged)}
    return {
        "number": run.number,
        "path": str(run.path),
        "file": run.path.name,
        "machine": isolated(run.machine),
        "torch": isolated(run.torch),
        "started": run.manifest.started[:16].replace("T", " "),
        "sentences": summary(run),
        "leads": lead_rows(run.leads),
        "standings": standings(judged, run.foremost),
        "conventions": footer(judged, heads),
        "facts": [
            ("Run", run_facts(run)),
            ("Environment", environment_facts(run)),
            ("Protocol", protocol_facts(run)),
        ],
    }


def _views(chart: Chart) -> list[dict[str, Any]]:
    # Not by dataclasses.asdict, which copies every row.
    return [vars(view) | {"tables": [vars(table) for table in view.tables]} for view in chart.views]
