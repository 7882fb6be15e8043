"""``attnbench list``: the rules, backends, suites, cases and whatever else plugins bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.options import format_option, selected, selection_options
from attnbench.cli.output import print_listing
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnbench.plugins.registry import Entry
    from attnbench.types.backend import Backend
    from attnbench.types.formats import Format


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
    """Scoring rules: formula, source, and the plugin that brings each.

    \b
    attnbench list rules
    """
    rows = [
        {
            "name": name,
            "formula": entry.record.formula,
            "source": entry.record.source,
            "dot_form": entry.record.has_dot_form,
            "plugin": entry.source.distribution,
        }
        for name, entry in load_plugins().rules.items()
    ]
    print_listing(rows, ("name", "formula", "source", "plugin"), format_)


@command.command("backends")
@plugin_option
@format_option
def backends(format_: Format) -> None:
    """Backends: operations, rules, dtypes and devices, and the plugin that brings each.

    \b
    attnbench list backends
    attnbench list backends --plugin my_kernel.py --format json
    """
    rows = [
        {
            "name": name,
            "summary": entry.record.summary,
            "operations": list(entry.record.operations),
            "rules": _rules_of(entry.record),
            "dtypes": list(entry.record.dtypes),
            "devices": list(entry.record.devices),
            "passes": list(entry.record.passes),
            "requires": list(entry.record.requires),
            "compiles": entry.record.compiles,
            "plugin": entry.source.distribution,
        }
        for name, entry in load_plugins().backends.items()
    ]
    print_listing(rows, ("name", "summary", "operations", "rules", "dtypes", "devices"), format_)


def _rules_of(backend: Backend) -> str | list[str]:
    if backend.rules is not None:
        return list(backend.rules)
    return "all with a dot form" if backend.needs_dot_form else "all"


@command.command("suites")
@plugin_option
@format_option
def suites(format_: Format) -> None:
    """Suites: how many cases each has, and what it is.

    \b
    attnbench list suites
    """
    rows = [
        {
            "name": name,
            "cases": len(entry.record.cases),
            "summary": entry.record.summary,
            "check_only": entry.record.check_only,
            "plugin": entry.source.distribution,
        }
        for name, entry in load_plugins().suites.items()
    ]
    print_listing(rows, ("name", "cases", "summary"), format_)


@command.command("verdicts")
@plugin_option
@format_option
def verdicts(format_: Format) -> None:
    """Rules that attnbench selftest scores beside attnbench's own verdicts.

    \b
    attnbench list verdicts
    """
    _print_summaries(load_plugins().verdict_rules, format_)


@command.command("metrics")
@plugin_option
@format_option
def metrics(format_: Format) -> None:
    """Columns that plugins add to what run, check and report print.

    \b
    attnbench list metrics --plugin my_metric.py
    """
    rows = [
        {
            "name": name,
            "head": entry.record.head,
            "summary": entry.record.summary,
            "plugin": entry.source.distribution,
        }
        for name, entry in load_plugins().metrics.items()
    ]
    print_listing(rows, ("name", "head", "summary", "plugin"), format_)


@command.command("reporters")
@plugin_option
@format_option
def reporters(format_: Format) -> None:
    """Formats that plugins add to --format of run, check and report.

    \b
    attnbench list reporters --plugin my_reporter.py
    """
    _print_summaries(load_plugins().reporters, format_)


@command.command("facts")
@plugin_option
@format_option
def facts(format_: Format) -> None:
    """Facts of the machine and its software that plugins state in every run file.

    \b
    attnbench list facts --plugin my_fact.py
    """
    _print_summaries(load_plugins().environment_facts, format_)


def _print_summaries(entries: Mapping[str, Entry[Any]], format_: Format) -> None:
    rows = [
        {"name": name, "summary": entry.record.summary, "plugin": entry.source.distribution}
        for name, entry in entries.items()
    ]
    print_listing(rows, ("name", "summary", "plugin"), format_)


@command.command("cases")
@selection_options
@plugin_option
@format_option
def cases(format_: Format, **chosen: Any) -> None:
    """Ids of the cases that words and options choose, one a line; without words, of the suite smoke.

    \b
    attnbench list cases
    attnbench list cases gpt2 --mask causal --mask window:256
    """
    from attnbench.cases.identity import case_id
    from attnbench.reports.rows import case_fields

    ids = [case_id(case) for case in selected(load_plugins(), chosen, timed=False).cases]
    if format_ == "table":
        click.echo("\n".join(ids))
        return
    rows = [{"id": text, "rule": text.split("/")[1]} | case_fields(text) for text in ids]
    print_listing(rows, list(rows[0]), format_)
