"""The table of kinds is what hooks, registry, lists and documents agree with."""

from __future__ import annotations

import inspect
from dataclasses import fields

import click
import pytest

import attnbench
from attnbench import hookspecs
from attnbench.cli import list as listing
from attnbench.plugins.kinds import KINDS, Kind, hook_table
from attnbench.plugins.registry import Registry, load_registry

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.field)


def test_every_hook_is_of_a_kind_and_every_kind_has_its_hook() -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("attnbench_")]
    assert sorted(hooks) == sorted(kind.hook for kind in KINDS)


@kinds
def test_a_kind_has_its_field_its_list_and_its_exported_type(kind: Kind) -> None:
    assert kind.field in {field.name for field in fields(Registry)}
    context = click.Context(listing.command)
    assert kind.listed in listing.command.list_commands(context)
    assert getattr(attnbench, kind.type.__name__) is kind.type
    assert {"name", *kind.unlike} <= {field.name for field in fields(kind.type)}


def test_the_table_of_hooks_is_that_of_the_specification() -> None:
    table = {row["yields"]: row for row in hook_table()}
    assert len(table) == len(KINDS)
    assert table["Metric"] == {
        "hook": "attnbench_metrics() -> Iterable[Metric]",
        "yields": "Metric",
        "what": "Numbers to be made of records: a column each in tables, JSON, CSV and frames.",
        "listed by": "attnbench list metrics",
    }
    assert all(row["what"] == inspect.cleandoc(row["what"]) != "" for row in table.values())


def test_what_a_plugin_brings_is_listed_by_kind() -> None:
    registry = load_registry()
    suites = next(source for source in registry.plugins if source.module == "attnbench.suites")
    brought = registry.brought_by(suites)
    assert list(brought) == [kind.listed for kind in KINDS]
    assert brought["suites"] == list(registry.suites)
    assert all(not names for listed, names in brought.items() if listed != "suites")
