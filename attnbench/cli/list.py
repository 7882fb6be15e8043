"""``attnbench list``: the rules, backends, suites, cases and whatever else plugins bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.options import SELECTION, WORDS, decorated, format_option, selected
from attnbench.cli.output import print_listing, say
from attnbench.cli.parameters import load_plugins, plugin_option
from attnbench.types.device import DEVICES

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry
    from attnbench.types.backend import Backend
    from attnbench.types.words import Format


@click.group("list", cls=NamingGroup)
def command() -> None:
    """List the rules, backends, suites, cases and other parts that plugins bring.

    \b
    attnbench list backends
    attnbench list cases gpt2 --dtype bfloat16
    """


def _summary(record: Any) -> dict[str, Any]:
    return {"summary": record.summary}


def _add(
    name: str, summary: str, fields: Callable[[Any], dict[str, Any]] = _summary,
    shown: tuple[str, ...] = ("name", "summary", "plugin"), *, plugin: str = "", registry: str = "",
) -> None:  # fmt: skip
    """Add a command for one kind of what plugins bring.

    fields: of a record; JSON and CSV have all of them after the name and before the plugin. shown: the
    columns of tables. plugin: in the example. registry: the attribute of the registry, if it is not called as
    the command.
    """

    @plugin_option
    @format_option
    def run(format_: Format) -> None:
        print_listing(_rows(getattr(load_plugins(), registry or name), fields), shown, format_)

    example = f"attnbench list {name}" + (f" --plugin {plugin}" if plugin else "")
    command.add_command(click.command(name, help=f"{summary}\n\n\b\n{example}")(run))


def _rows(entries: Mapping[str, Entry[Any]], fields: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, **fields(entry.record), "plugin": entry.source.distribution}
        for name, entry in entries.items()
    ]


def _of_backend(backend: Backend) -> dict[str, Any]:
    rules: str | list[str] = "all with a dot form" if backend.needs_dot_form else "all"
    return {
        "summary": backend.summary,
        "operations": list(backend.operations),
        "rules": rules if backend.rules is None else list(backend.rules),
        "dtypes": list(backend.dtypes),
        "devices": list(backend.devices),
        "passes": list(backend.passes),
        "storages": list(backend.storages),
        "encodings": list(backend.encodings),
        "returns": list(backend.returns),
        "converts": list(backend.converts),
        "requires": list(backend.requires),
        "compiles": backend.compiles,
        "masks": list(backend.masks),
        "masks_by_head": backend.masks_by_head,
    }


@command.command("backends")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="For each backend that can't run on this device here, say why.",
)
@plugin_option
@format_option
def backends(names: tuple[str, ...], device: str | None, format_: Format) -> None:
    """Backends: operations, rules, dtypes and devices. With names, only these.

    \b
    attnbench list backends
    attnbench list backends --device cuda
    attnbench list backends mine --plugin my_kernel.py --format json
    """
    registry = load_plugins()
    for name in names:
        registry.backend(name)
    entries = {name: one for name, one in registry.backends.items() if not names or name in names}
    if device is None:
        shown = ("name", "summary", "operations", "rules", "dtypes", "devices")
        print_listing(_rows(entries, _of_backend), shown, format_)
        return
    from attnbench.testing.cases import absent

    rows = _rows(entries, lambda backend: _of_backend(backend) | {"unavailable": absent(backend, device)})
    print_listing(rows, ("name", "summary", "unavailable"), format_)


_add(
    "rules", "Scoring rules: formula, constants, plugin.",
    lambda rule: {
        "formula": rule.formula, "constants": [str(constant) for constant in rule.constants],
        "source": rule.source, "dot_form": rule.has_dot_form,
    },
    ("name", "formula", "constants", "plugin"),
)  # fmt: skip
_add("operations", "Operations: computations that use a rule.")
_add(
    "storages", "Storages: where the numbers of a batch lie.",
    lambda storage: {
        "summary": storage.summary,
        "sizes": [f"{size.name} ({size.default}): {size.meaning}" for size in storage.sizes],
    },
    ("name", "summary", "sizes"),
)  # fmt: skip
_add(
    "encodings", "Encodings: how keys and values are held, as codes and scales.",
    lambda encoding: {"summary": encoding.summary, "grains": list(encoding.grains)},
    ("name", "summary", "grains"),
)  # fmt: skip
_add(
    "suites", "Suites: number of cases, summary.",
    lambda suite: {"cases": len(suite.cases), "summary": suite.summary, "check_only": suite.check_only},
    ("name", "cases", "summary"),
)  # fmt: skip
_add("verdicts", "Verdict rules of other tools, which the self-test scores.", registry="verdict_rules")
_add(
    "metrics", "Columns that plugins add to run, check and report.",
    lambda metric: {"head": metric.head, "summary": metric.summary},
    ("name", "head", "summary", "plugin"), plugin="my_metric.py",
)  # fmt: skip
_add("reporters", "Formats that plugins add to run, check and report.", plugin="my_reporter.py")
_add("executors", "Executors: values of --on in run and fleet.")
_add(
    "facts", "Facts of the machine that plugins add to run files.",
    plugin="my_fact.py", registry="environment_facts",
)  # fmt: skip


@command.command("cases")
@decorated(WORDS, *SELECTION, plugin_option, format_option)
def cases(format_: Format, **chosen: Any) -> None:
    """Ids of the selected cases, one a line.

    Without arguments, it lists the suite smoke.

    \b
    attnbench list cases
    attnbench list cases gpt2 --mask causal --mask window:256
    """
    from attnbench.cases.ids import case_id
    from attnbench.reports.columns import case_fields

    found = {case_id(case): case.rule for case in selected(load_plugins(), chosen, timed=False).cases}
    if format_ == "table":
        say("\n".join(found))
        return
    rows = [{"id": text, "rule": rule} | case_fields(text) for text, rule in found.items()]
    print_listing(rows, list(rows[0]), format_)
