"""``attnbench list``: the rules, backends, suites, cases and whatever else plugins bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.options import format_option, selected, selection_options
from attnbench.cli.output import print_listing
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from attnbench.plugins.registry import Entry
    from attnbench.types.backend import Backend
    from attnbench.types.columns import Format
    from attnbench.types.extensions import Metric, Suite
    from attnbench.types.rule import Rule

_SUMMARIES = ("name", "summary", "plugin")


@click.group("list", cls=NamingGroup)
def command() -> None:
    """List the rules, backends, suites, cases or whatever else plugins bring.

    \b
    attnbench list backends
    attnbench list cases gpt2 --dtype bfloat16
    """


@command.command("rules")
@plugin_option
@format_option
def rules(format_: Format) -> None:
    """Scoring rules: formula, source, the plugin that brings each.

    \b
    attnbench list rules
    """
    _print(load_plugins().rules, ("name", "formula", "source", "plugin"), format_, _of_rule)


def _of_rule(rule: Rule) -> dict[str, Any]:
    return {"formula": rule.formula, "source": rule.source, "dot_form": rule.has_dot_form}


@command.command("backends")
@plugin_option
@format_option
def backends(format_: Format) -> None:
    """Backends: operations, rules, dtypes and devices of each.

    \b
    attnbench list backends
    attnbench list backends --plugin my_kernel.py --format json
    """
    shown = ("name", "summary", "operations", "rules", "dtypes", "devices")
    _print(load_plugins().backends, shown, format_, _of_backend)


def _of_backend(backend: Backend) -> dict[str, Any]:
    return {
        "summary": backend.summary,
        "operations": list(backend.operations),
        "rules": _rules_of(backend),
        "dtypes": list(backend.dtypes),
        "devices": list(backend.devices),
        "passes": list(backend.passes),
        "requires": list(backend.requires),
        "compiles": backend.compiles,
    }


def _rules_of(backend: Backend) -> str | list[str]:
    if backend.rules is not None:
        return list(backend.rules)
    return "all with a dot form" if backend.needs_dot_form else "all"


@command.command("operations")
@plugin_option
@format_option
def operations(format_: Format) -> None:
    """Operations: what is computed around a rule.

    \b
    attnbench list operations
    """
    _print(load_plugins().operations, _SUMMARIES, format_, _of_any)


@command.command("suites")
@plugin_option
@format_option
def suites(format_: Format) -> None:
    """Suites: how many cases each has, and what it is.

    \b
    attnbench list suites
    """
    _print(load_plugins().suites, ("name", "cases", "summary"), format_, _of_suite)


def _of_suite(suite: Suite) -> dict[str, Any]:
    return {"cases": len(suite.cases), "summary": suite.summary, "check_only": suite.check_only}


@command.command("verdicts")
@plugin_option
@format_option
def verdicts(format_: Format) -> None:
    """Verdict rules of other tools, which the self-test scores.

    \b
    attnbench list verdicts
    """
    _print(load_plugins().verdict_rules, _SUMMARIES, format_, _of_any)


@command.command("metrics")
@plugin_option
@format_option
def metrics(format_: Format) -> None:
    """Columns that plugins add to what run, check and report print.

    \b
    attnbench list metrics --plugin my_metric.py
    """
    _print(load_plugins().metrics, ("name", "head", "summary", "plugin"), format_, _of_metric)


def _of_metric(metric: Metric) -> dict[str, Any]:
    return {"head": metric.head, "summary": metric.summary}


@command.command("reporters")
@plugin_option
@format_option
def reporters(format_: Format) -> None:
    """Formats that plugins add to run, check and report.

    \b
    attnbench list reporters --plugin my_reporter.py
    """
    _print(load_plugins().reporters, _SUMMARIES, format_, _of_any)


@command.command("facts")
@plugin_option
@format_option
def facts(format_: Format) -> None:
    """Facts of the machine that plugins state in run files.

    \b
    attnbench list facts --plugin my_fact.py
    """
    _print(load_plugins().environment_facts, _SUMMARIES, format_, _of_any)


def _of_any(record: Any) -> dict[str, Any]:
    return {"summary": record.summary}


def _print(
    entries: Mapping[str, Entry[Any]],
    shown: Sequence[str],
    format_: Format,
    fields: Callable[[Any], dict[str, Any]],
) -> None:
    """Print records: their names, fields, and the plugins that bring them. shown: the columns of a table."""
    rows = [
        {"name": name} | fields(entry.record) | {"plugin": entry.source.distribution}
        for name, entry in entries.items()
    ]
    print_listing(rows, shown, format_)


@command.command("cases")
@selection_options
@plugin_option
@format_option
def cases(format_: Format, **chosen: Any) -> None:
    """Ids of the cases that words and options choose, one a line.

    Without words those of the suite smoke.

    \b
    attnbench list cases
    attnbench list cases gpt2 --mask causal --mask window:256
    """
    from attnbench.cases.ids import case_id
    from attnbench.reports.rows import case_fields

    ids = [case_id(case) for case in selected(load_plugins(), chosen, timed=False).cases]
    if format_ == "table":
        click.echo("\n".join(ids))
        return
    rows = [{"id": text, "rule": text.split("/")[1]} | case_fields(text) for text in ids]
    print_listing(rows, list(rows[0]), format_)
