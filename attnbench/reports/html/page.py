"""The page: one HTML file that holds all it needs.

Its Content-Security-Policy lets a browser run only the scripts with these hashes, and load nothing. A name
that got past the escaping could neither run nor send anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from attnbench import __version__
from attnbench.reports.answer import takes_text
from attnbench.reports.columns import in_order, name_text, table_columns, time_text
from attnbench.reports.html.charts import COLOURS, SHAPES, asset, chart_rows, charts
from attnbench.reports.html.words import (
    facts,
    failures,
    findings,
    isolated,
    machine_of,
    suite_of,
)
from attnbench.reports.judged import BASELINE, Judged
from attnbench.reports.names import short_names
from attnbench.reports.run import Run
from attnbench.reports.table import footer, legend
from attnbench.types.errors import BadInput, go_on_words
from attnbench.types.extensions import WORDS
from attnbench.types.status import STATUSES
from attnbench.types.words import printable

ROWS_AT_FIRST = 200
"""Rows of the table that are shown before a reader asks for all."""
_PACKAGES = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}
_VEGA_LITE = "6."
_LEFT_OUT = ("±", "prepare", "first call", "rms error", "max error")
"""Columns that few readers look for; --csv has them."""


def check_packages() -> None:
    """Raise :class:`BadInput` if a package that a page needs is not installed."""
    missing = [name for module, name in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise BadInput(f"a page needs {' and '.join(missing)}: pip install 'attnbench[html]'")


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert-python. It defines ``vegaEmbed``."""
    import vl_convert

    version = [name for name in vl_convert.get_vegalite_versions() if name.startswith(_VEGA_LITE)][-1]
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


def page(run: Run) -> str:
    """Render runs as a page. Each run is judged alone.

    Raises:
        BadInput: a package that a page needs is not installed.
    """
    check_packages()
    import jinja2

    judged = run.judged_by_file
    several = len(judged) > 1
    rows = [
        row
        for number, one in enumerate(judged, start=1)
        for row in chart_rows(one, f"run {number}: " if several else "")
    ]
    timed = sorted(rows, key=lambda row: "ms" not in row)
    scripts = [_closed(vega()), _closed(asset("page.js"))]
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(asset),
    )
    drawn = charts(rows)
    return environment.get_template("page.html").render(
        title=_title(run),
        version=__version__,
        policy=_policy(scripts),
        style=asset("page.css"),
        scripts=scripts,
        runs=[_section(run, place, those) for place, those in enumerate(judged)],
        several=several,
        rows_at_first=ROWS_AT_FIRST,
        charts=drawn,
        # tojson escapes <, > and &, so no name can end the script element.
        data={
            "rows": rows,
            "backends": list(dict.fromkeys(row["backend"] for row in timed)),
            "colours": COLOURS,
            "shapes": SHAPES,
            "specs": {chart.name: chart.spec for chart in drawn},
        },
        **_table(judged),
    )


def _title(run: Run) -> str:
    manifests = run.manifests
    suites = dict.fromkeys(suite_of(manifest) for manifest in manifests)
    machines = dict.fromkeys(isolated(machine_of(manifest)) for manifest in manifests)
    names = dict.fromkeys(printable(path.name) for path in run.paths)
    what = ", ".join(filter(None, suites)) or ", ".join(names)
    return " · ".join(filter(None, (f"attnbench: {isolated(what)}", ", ".join(filter(None, machines)))))


def _section(run: Run, place: int, judged: Sequence[Judged]) -> dict[str, Any]:
    """The values of one run for the template."""
    manifest, path = run.manifests[place], run.paths[place]
    answer = run.answers[place]
    leads = () if answer is None else answer.leads
    failed, quiet = failures(judged)
    unfinished = path in run.unfinished
    go_on = go_on_words(path, live=bool(manifest.sides), command="attnbench run")
    return {
        "path": printable(str(path)),
        "suite": isolated(suite_of(manifest) or printable(path.name)),
        "machine": isolated(machine_of(manifest) or "an unnamed machine"),
        "started": manifest.started[:16].replace("T", " "),
        "torch": isolated(str(manifest.environment.get("torch") or "")),
        "cut_off": f"The run was cut off; {isolated(printable(go_on))}." if unfinished else "",
        "findings": findings(judged, leads, manifest),
        "leads": leads,
        "failed": failed,
        "quiet": quiet,
        "names": short_names(one.record.case for one in judged),
        "conventions": footer(judged) + legend(judged, {column.head for column in table_columns(judged)}),
        "facts": facts(manifest, printable(str(path)), not unfinished),
    }


def _table(judged: Sequence[Sequence[Judged]]) -> dict[str, Any]:
    """The table of all outcomes, case by case, the fastest first, and the choices of its filters."""
    every = [one for those in judged for one in those]
    columns = [column for column in table_columns(every) if column.head not in (*_LEFT_OUT, "verdict")]
    first = {"time", "ratio", *(f"×{one.record.baseline}" for one in every)}
    names = short_names(one.record.case for one in every)
    statuses, verdicts = {one.record.status for one in every}, {one.verdict for one in every}
    return {
        "rows": [(number, one) for number, those in enumerate(judged, start=1) for one in in_order(those)],
        "first": [column for column in columns if column.head in first],
        "rest": [column for column in columns if column.head not in first],
        "names": names,
        "backend_of": name_text,
        "time_of": time_text,
        "takes_of": takes_text,
        "backends": list(dict.fromkeys(name_text(one.record) for one in every)),
        "statuses": [status for status in STATUSES if status in statuses],
        "verdicts": [word for word in (*WORDS, BASELINE) if word in verdicts],
    }


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
