"""Metrics, reporters and environment facts come in as all else does; what can't be used is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnbench.plugins.kinds import fault
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.reports.columns import HEADS, KEYS, record_row, table_columns
from attnbench.reports.judged import Judged
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter
from attnbench.types.record import Accuracy, Record

Install = Callable[..., Path]

METRIC = Metric("price", "a test", "$/call", value=lambda record, case: 1.0)
REPORTER = Reporter("lines", "a test", render=lambda rows, runs: "")
FACT = EnvironmentFact("turbo", "a test", read=lambda: True)

ALL = """
from attnbench import EnvironmentFact, Metric, Reporter, hookimpl
@hookimpl
def attnbench_metrics():
    yield Metric({name!r}, "a test", {head!r}, value=print)
@hookimpl
def attnbench_reporters():
    yield Reporter({name!r}, "a test", render=print)
@hookimpl
def attnbench_environment_facts():
    yield EnvironmentFact({name!r}, "a test", read=print)
"""


def both(install: Install, first: str, second: str) -> Registry:
    install("mini_a", first, distribution="attnbench-a")
    install("mini_b", second, distribution="attnbench-b", version="2.0")
    return load_registry(source for source in installed() if source.name.startswith("mini_"))


def test_they_come_in_by_name_with_who_brings_them(install: Install) -> None:
    registry = both(install, ALL.format(name="one", head="1"), ALL.format(name="two", head="2"))
    for entries in (registry.metrics, registry.reporters, registry.environment_facts):
        assert {name: entry.source.distribution for name, entry in entries.items()} == {
            "one": "attnbench-a", "two": "attnbench-b",
        }  # fmt: skip
    assert registry.faults == ()


def test_clashes_name_both_and_the_first_keeps_it(install: Install) -> None:
    registry = both(install, ALL.format(name="one", head="1"), ALL.format(name="one", head="2"))
    who = "as attnbench-a 1.0 (mini_a) does; the first is used"
    assert registry.faults == (
        f"attnbench-b 2.0 (mini_b): brings a metric 'one', {who}",
        f"attnbench-b 2.0 (mini_b): brings a reporter 'one', {who}",
        f"attnbench-b 2.0 (mini_b): brings an environment fact 'one', {who}",
    )


def test_two_columns_never_have_the_same_head(install: Install) -> None:
    registry = both(install, ALL.format(name="one", head="J"), ALL.format(name="two", head="J"))
    assert registry.faults == (
        "attnbench-b 2.0 (mini_b): brings a metric with the head 'J', as attnbench-a 1.0 (mini_a) does; "
        "the first is used",
    )
    assert list(registry.metrics) == ["one"]


def test_what_is_called_as_ours_is_a_fault_naming_both(install: Install) -> None:
    registry = both(install, ALL.format(name="json", head="1"), ALL.format(name="ratio", head="2"))
    assert registry.faults == (
        "attnbench-a 1.0 (mini_a): attnbench_reporters gave a Reporter that can't be used: json: a format "
        "'json' is attnbench's own: call it otherwise",
        "attnbench-b 2.0 (mini_b): attnbench_metrics gave a Metric that can't be used: ratio: a column "
        "'ratio' is attnbench's own: call it otherwise",
    )


def test_good_ones_have_no_fault() -> None:
    assert [fault(record) for record in (METRIC, REPORTER, FACT)] == [None] * 3


@pytest.mark.parametrize(
    ("record", "field", "value", "words"),
    [
        (METRIC, "name", "a b", "the name 'a b': letters, digits"),
        (METRIC, "summary", None, "price: summary = None: a text is needed"),
        (METRIC, "value", 3, "price: value = 3: a function is needed"),
        (METRIC, "digits", 0, "price: digits = 0: 1 or more"),
        (METRIC, "digits", "2", "price: digits = '2': 1 or more"),
        (METRIC, "head", None, "price: head = None: a text is needed"),
        (METRIC, "head", "", "price: head = '': 1 to 24 printable characters are needed"),
        (METRIC, "head", "a\nb", r"price: head = 'a\nb': 1 to 24 printable characters are needed"),
        (METRIC, "head", "x" * 25, "1 to 24 printable characters are needed"),
        (METRIC, "head", "×mine", "price: a column headed '×mine' is attnbench's own: head it otherwise"),
        (METRIC, "head", "limit", "price: a column headed 'limit' is attnbench's own: head it otherwise"),
        (METRIC, "name", "Lq", "Lq: a column 'Lq' is attnbench's own: call it otherwise"),
        (REPORTER, "render", None, "lines: render = None: a function is needed"),
        (REPORTER, "summary", 3, "lines: summary = 3: a text is needed"),
        (REPORTER, "name", "markdown", "markdown: a format 'markdown' is attnbench's own: call it otherwise"),
        (FACT, "read", True, "turbo: read = True: a function is needed"),
        (FACT, "summary", b"x", "turbo: summary = b'x': a text is needed"),
    ],
)
def test_each_wrong_field_is_named(record: Any, field: str, value: Any, words: str) -> None:
    said = fault(replace(record, **{field: value}))
    assert said is not None
    assert words in said


def test_every_column_of_ours_is_known_to_be_ours() -> None:
    case = "attention/dot/B1-H1-Lq4-Lk4-D4/none/float32/cpu/forward"
    numbers = Accuracy(1e-7, 1e-6, 1e-7, 1e-6, 4e-7, 6e-6, 1, 1, 1)
    whole = Record(
        case, "dot", "mine", "ok", median_ms=1.0, low_ms=0.9, high_ms=1.1, ratio=2.0, ratio_low=1.9,
        ratio_high=2.1, baseline="eager", best="eager", ratio_to_best=2.0, accuracy=numbers, tflops=1.0,
        gbps=1.0, limit_share=0.5, peak_extra_bytes=1, prepare_ms=1.0, first_call_ms=1.0,
    )  # fmt: skip
    judged = Judged(whole, "slower")
    assert tuple(record_row(judged)) == KEYS
    heads = {column.head for column in table_columns([judged])}
    assert len(heads) == 16
    assert heads - set(HEADS) == {"×eager"}


def test_an_unknown_format_gives_the_nearest_of_all(install: Install) -> None:
    registry = both(install, ALL.format(name="lines", head="1"), ALL.format(name="others", head="2"))
    assert registry.reporter("lines").source.distribution == "attnbench-a"
    for word, sentence in (
        ("lnies", "no format 'lnies'; did you mean 'lines'?"),
        ("jsn", "no format 'jsn'; did you mean 'json'?"),
        ("zzz", "no format 'zzz'; there are table, json, csv, markdown, lines, others."),
    ):
        with pytest.raises(BadInput) as wrong:
            registry.reporter(word)
        assert str(wrong.value) == sentence
